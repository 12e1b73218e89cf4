"""What needs what: data flows one way, and nobody reaches for the private names of others."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fbeta

from .cli.toys import TEST, TRAIN, write_csv

SOURCE = Path(fbeta.__file__).parent
# the command line, and what it stands on
ROOMS = ("cli", "report", "experiments", "storage")
FILES = sorted(path for room in ROOMS for path in (SOURCE / room).glob("*.py"))
# of the whole library
SHARED = {"fbeta._array", "fbeta._files"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def reached(path: Path) -> Iterator[str]:
    """The private names of other modules that a file uses."""
    folders = path.relative_to(SOURCE).parent.parts
    own = ".".join(["fbeta", *folders]) + "."
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fbeta"):
            private = any(map(is_private, node.module.split(".")))
            within = folders and f"{node.module}.".startswith(own)
            if private and not within and node.module not in SHARED:
                yield node.module
            yield from (f"{node.module}.{a.name}" for a in node.names if is_private(a.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            yield from [f"{owner}.{node.attr}"] if owner not in ("self", "cls") else []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_private_names_of_others(path: Path) -> None:
    assert list(reached(path)) == []


PROGRAM = """
import sys
from fbeta.cli import main
folder = sys.argv[1]
train, test, model = (f"{folder}/{name}" for name in ("train.csv", "test.csv", "m.skops"))
labels = ["--label-prefix", "is_"]
assert main(["fit", train, *labels, "--alphas", "1", "--cv", "2", "-o", model]) == 0
assert main(["predict", model, test, "-o", f"{folder}/out.csv", "--expected"]) == 0
plots = ["--plots", f"{folder}/plots", "--report", f"{folder}/page.html"]
assert main(["evaluate", model, test, *plots]) == 0
assert main(["compare", train, test, *labels, "--alphas", "1", "--cv", "2"]) == 0
assert not [name for name in sys.modules if name.startswith("fbeta.experiments")]
"""


def test_fitting_and_predicting_do_not_need_the_experiments(tmp_path: Path) -> None:
    for name in ("typer", "skops", "matplotlib"):
        pytest.importorskip(name)
    write_csv(tmp_path / "train.csv", *TRAIN)
    write_csv(tmp_path / "test.csv", *TEST)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_only_the_command_line_imports_the_experiments() -> None:
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        if not place.startswith("experiments/") and place not in (
            "cli/reproduce.py", "cli/demo.py"
        ):  # fmt: skip
            assert "fbeta.experiments" not in path.read_text(encoding="utf-8"), place


def test_the_library_imports_no_optional_dependency() -> None:
    names = (
        "torch",
        "torchmetrics",
        "skorch",
        "onnx",
        "triton",
        "dask",
        "distributed",
        "matplotlib",
    )
    program = f"""
import sys
import fbeta, fbeta.blocks, fbeta.methods, fbeta.rivals
import fbeta.storage.model_files, fbeta.storage.onnx_export
found = [name for name in {names} if name in sys.modules]
assert not found, found
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_blocks_know_arrays_codes_and_solvers_but_no_estimators() -> None:
    above = {"estimators", "rivals", "methods", "storage", "cli"}
    for path in (SOURCE / "blocks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and "fbeta." in node.module:
                assert node.module.split(".")[1] not in above, path
