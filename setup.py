"""The compiled part, which is optional: without a compiler the package does without it."""

import os
import subprocess
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "src/fbeta/linear/"
HEADERS = ("engine.hpp", "matrix.hpp", "newton.hpp", "objectives.hpp", "vectors.hpp")
FLAGS = [
    "-std=gnu++17", "-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math",
    "-Wno-psabi",
]  # fmt: skip
OF_GCC = ["-fvect-cost-model=dynamic"]  # an error elsewhere


class Build(build_ext):
    """Builds with the flags that the compiler knows."""

    def build_extensions(self) -> None:
        """Ask the compiler who it is, and build."""
        if self._is_gcc():
            for extension in self.extensions:
                extension.extra_compile_args += OF_GCC
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

setup(ext_modules=modules, cmdclass={"build_ext": Build})
