"""The compiled part, which is optional: without a compiler the package does without it."""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

FOLDER = "src/fbeta/linear/"
FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]

modules = cythonize(
    Extension(
        "fbeta.linear._compiled",
        [FOLDER + name for name in ("_compiled.pyx", "lanes.c", "softmax.c", "certify.c")],
        depends=[FOLDER + name for name in ("lanes.h", "products.h", "certify.h", "vectors.h")],
        extra_compile_args=[] if sys.platform == "win32" else FLAGS,
    ),
    language_level=3,
)
for module in modules:
    module.optional = True  # cythonize does not keep it

setup(ext_modules=modules)
