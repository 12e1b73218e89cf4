"""The compiled part, which is optional: without a compiler the package does without it."""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]

setup(
    ext_modules=cythonize(
        Extension(
            "fbeta.linear._compiled",
            ["src/fbeta/linear/_compiled.pyx", "src/fbeta/linear/lanes.c"],
            depends=["src/fbeta/linear/lanes.h"],
            extra_compile_args=[] if sys.platform == "win32" else FLAGS,
            optional=True,
        ),
        language_level=3,
    )
)
