"""Leaves out modules whose optional dependencies are not installed; how threads wait."""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Tests run in several processes: threads of BLAS and OpenMP that wait for work are not to spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

ROOT = Path(__file__).resolve().parent
EXAMPLES_NEED = {"onnx_export.py": "onnx"}  # packages that only the examples of a module import


@cache
def is_installed(name: str) -> bool:
    """Tell whether a package can be imported."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # hidden by a test
        return False


@cache
def needs(path: Path) -> frozenset[str]:
    """Return the packages that a file needs to be imported, by way of modules of ours too."""
    out, seen, todo = set(), {path}, [path]
    while todo:
        files, packages = direct_needs(todo.pop())
        out |= packages
        todo += files - seen
        seen |= files
    return frozenset(out)


@cache
def direct_needs(path: Path) -> tuple[set[Path], set[str]]:
    """Return the files of ours, and the packages of others, that a file itself imports."""
    files, packages = set(), set()
    for name in imports(path):
        if name.partition(".")[0] in ("fbeta", "tests"):
            files.update(modules(name))
        else:
            packages.add(name.partition(".")[0])
    return files, packages


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return the absolute names that a file imports at its top level."""
    names: list[str] = []
    for node in head(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folders = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            start = ".".join([*folders, *([node.module] if node.module else [])])
            names += [f"{start}.{alias.name}" for alias in node.names]
    return tuple(names)


def head(text: str) -> ast.Module:
    """Parse what is above the first function or class, where all imports are: Ruff sees to that."""
    try:
        return ast.parse(re.split(r"^(?:@|def |class )", text, maxsplit=1, flags=re.MULTILINE)[0])
    except SyntaxError:  # a text with the code of another program is above it
        return ast.parse(text)


@cache
def modules(name: str) -> list[Path]:
    """Return the files that the import of a name runs: packages, and the module at its end."""
    parts = name.split(".")
    base = ROOT / "src" if parts[0] == "fbeta" else ROOT
    paths = [base.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)]
    files = (file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py"))
    return [file for file in files if file.exists()]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a file of which something is missing."""
    if collection_path.suffix != ".py":
        return None
    folders = [folder for folder in collection_path.parents if folder.is_relative_to(ROOT)]
    packages = [folder / "__init__.py" for folder in folders if (folder / "__init__.py").exists()]
    names = frozenset().union(*(needs(file) for file in (collection_path, *packages)))
    names |= {EXAMPLES_NEED.get(collection_path.name, "pytest")}
    return not all(is_installed(name) for name in names) or None
