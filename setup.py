"""Builds the compiled solver, which is optional: the package works without a compiler."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "src/fbeta/linear/"
# the longest to compile first
SOURCES = (
    "newton.cpp",
    "wide.cpp",
    "matrix.cpp",
    "_engine.pyx",
    "objectives.cpp",
    "cardinality.cpp",
)
HEADERS = ("engine.hpp", "matrix.hpp", "objectives.hpp", "vectors.hpp")
FLAGS = [
    "-std=gnu++17",
    "-O2",
    "-ftree-vectorize",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-g0",
]
GCC_FLAGS = ["-fvect-cost-model=dynamic"]  # an error elsewhere


class Build(build_ext):
    """Builds with the flags that the compiler knows, several sources at the same time."""

    def build_extensions(self) -> None:
        """Add flags for GCC, and compile on all cores."""
        if self._is_gcc():
            for extension in self.extensions:
                extension.extra_compile_args += GCC_FLAGS
        compile_all = self.compiler.compile

        def compile_in_parallel(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(lambda source: compile_all([source], **options), sources)
                return [name for names in objects for name in names]

        self.compiler.compile = compile_in_parallel
        super().build_extensions()

    def _is_gcc(self) -> bool:
        kinds = (getattr(self.compiler, name, None) for name in ("compiler_so_cxx", "compiler_so"))
        command = next((kind for kind in kinds if kind), None)
        try:
            asked = subprocess.run([command[0], "--version"], capture_output=True, text=True)
        except (OSError, TypeError):  # there is none, or it is Microsoft's
            return False
        return "Free Software Foundation" in asked.stdout


modules = cythonize(
    Extension(
        "fbeta.linear._engine",
        [FOLDER + name for name in SOURCES],
        depends=[FOLDER + name for name in HEADERS],
        extra_compile_args=[] if sys.platform == "win32" else FLAGS,
    ),
    language_level=3,
)
for module in modules:
    # cythonize does not keep it; FBETA_REQUIRE_COMPILED=1 makes a failed build an error
    module.optional = os.environ.get("FBETA_REQUIRE_COMPILED", "") in ("", "0")

setup(ext_modules=modules, cmdclass={"build_ext": Build})
