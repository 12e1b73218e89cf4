"""The compiled part, which is optional: without a compiler the package does without it."""

import os
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

FOLDER = "src/fbeta/linear/"
HEADERS = ("engine.hpp", "matrix.hpp", "newton.hpp", "objectives.hpp", "vectors.hpp")
FLAGS = [
    "-std=gnu++17", "-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fno-math-errno",
    "-fno-trapping-math", "-Wno-psabi",
]  # fmt: skip

modules = cythonize(
    Extension(
        "fbeta.linear._compiled",
        [FOLDER + "_compiled.pyx", FOLDER + "engine.cpp"],
        depends=[FOLDER + name for name in HEADERS],
        extra_compile_args=[] if sys.platform == "win32" else FLAGS,
    ),
    language_level=3,
)
for module in modules:
    # cythonize does not keep it; FBETA_REQUIRE_COMPILED=1 makes a failed build an error
    module.optional = os.environ.get("FBETA_REQUIRE_COMPILED", "") in ("", "0")

setup(ext_modules=modules)
