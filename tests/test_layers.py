"""What needs what: data flows one way, and nobody reaches for the private names of others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import fbeta
from fbeta import FBetaClassifier
from fbeta.linear.compiled import is_compiled

from . import layout
from .cli.toys import TEST, TRAIN, write_csv

SOURCE = Path(fbeta.__file__).parent

# The rooms that each room may import, at the top of a module, inside of functions or by a string.
# Modules of the whole library (arrays, threads, checks of parameters, files) are open to all.
SHARED = {"_array", "_threads", "_files"}
ALLOWED = {
    "labels": "",
    "losses": "",
    "statistics": "labels losses",
    "metrics": "labels statistics",
    "decoding": "labels statistics",
    "linear": "losses statistics",
    "blocks": "datasets labels linear losses statistics",
    "estimators": "blocks datasets decoding labels linear losses metrics statistics",
    "rivals": "decoding estimators labels linear losses metrics statistics",
    "nn": "decoding estimators labels linear metrics statistics",
    "datasets": "decoding losses statistics",
    "fbeta": "decoding estimators metrics nn statistics",
    "methods": "datasets decoding estimators fbeta labels linear losses rivals statistics",
    "storage": "datasets decoding estimators fbeta linear losses methods statistics",
    "report": "datasets decoding labels methods metrics statistics storage",
    "experiments": "datasets estimators methods metrics nn report storage",
    "cli": "blocks datasets decoding estimators experiments fbeta methods metrics report "
    "statistics storage",
}
# Edges and names that are not as they should be. The lists only get shorter.
KNOWN_EDGES: set[tuple[str, str]] = set()
KNOWN_NAMES = {"Form", "Goal", "SizeLaw"}
# Private attributes of other libraries that have no public name, and the API of named tuples.
FOREIGN = {
    "torch._C",
    "torch._C._get_tracing_state",
    # the trees of scikit-learn's gradient boosting
    "model._baseline_prediction",
    "model._predictors",
}
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
# Modules of fbeta that are loaded by ``import fbeta``, and once every public name was used.
MAX_LOADED_BY_IMPORT, MAX_LOADED_BY_ALL_NAMES = 45, 80
# Files in which one warm fit, and one prediction, of FBetaClassifier call a function.
MAX_FILES_OF_FIT, MAX_FILES_OF_PREDICT = 12, 11
NAME = re.compile(r"fbeta(\.\w+)*:\w+|fbeta(\.\w+)+")  # of a module, as a string
NOT_LOADED = ("blocks", "nn", "rivals", "datasets", "report", "experiments", "cli")
# what no import of the library loads, models in files and on disk included
OPTIONAL = [
    "torch",
    "torchmetrics",
    "skorch",
    "onnx",
    "triton",
    "dask",
    "distributed",
    "matplotlib",
]


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "fbeta"


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of the library that a module imports, also by a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "fbeta":
            yield from (f"fbeta.{a.name}" if is_module(a.name) else "fbeta" for a in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fbeta."):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "fbeta")
        elif isinstance(node, ast.Constant) and NAME.fullmatch(str(node.value)):
            yield str(node.value).partition(":")[0]


def is_module(name: str) -> bool:
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()


def edges() -> set[tuple[str, str]]:
    found = set()
    for path, tree in trees().items():
        own = "fbeta" if path == "__init__.py" else path.partition("/")[0].removesuffix(".py")
        found |= {(own, room_of(module)) for module in imported(tree)}
    return {(one, other) for one, other in found if one != other and one not in SHARED}


def test_rooms_import_what_they_may() -> None:
    allowed = {(room, other) for room, others in ALLOWED.items() for other in others.split()}
    found = {edge for edge in edges() if edge[1] not in SHARED}
    assert found - allowed - KNOWN_EDGES == set()
    assert not KNOWN_EDGES & allowed


def test_allowed_imports_go_one_way() -> None:
    order = TopologicalSorter({room: others.split() for room, others in ALLOWED.items()})
    assert len(list(order.static_order())) == len(ALLOWED)  # raises where there is a cycle


def test_shared_modules_know_no_room() -> None:
    for path, tree in trees().items():
        if path.removesuffix(".py") in SHARED:
            assert {room_of(module) for module in imported(tree)} <= SHARED, path


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.AST) -> set[str]:
    """The private functions, methods and attributes that a module defines."""
    names = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    attributes = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute))
    return names | {
        a.attr for a in attributes if isinstance(a.ctx, ast.Store) and owner_of(a) == "self"
    }


def owner_of(node: ast.Attribute) -> str:
    return ast.unparse(node.value)


def drafts(tree: ast.AST) -> set[str]:
    """The names of copies of ``self`` in a module."""
    items = (i for n in ast.walk(tree) if isinstance(n, ast.With) for i in n.items)
    names = {
        ast.unparse(item.optional_vars)
        for item in items
        if item.optional_vars and ast.unparse(item.context_expr) == "all_or_nothing(self)"
    }
    return names | {"self", "cls", "super()", "copy(self)"}


def reached(path: str, tree: ast.AST) -> Iterator[str]:
    """The private names of other modules that a module uses."""
    mine, selves = own_names(tree), drafts(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fbeta"):
            module = str(node.module)
            private = any(map(is_private, module.split(".")[1:]))
            within = room_of(module) == path.partition("/")[0]
            if private and not within and room_of(module) not in SHARED:
                yield module
            yield from (
                f"{module}.{a.name}"
                for a in node.names
                if is_private(a.name) and not is_module(a.name) and not within
            )
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            name = f"{owner_of(node)}.{node.attr}"
            known = node.attr in mine | NAMED_TUPLE or name in FOREIGN
            if not known and owner_of(node) not in selves:
                yield name


def test_no_private_names_of_others() -> None:
    found = {path: list(reached(path, tree)) for path, tree in trees().items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not is_private(node.name):
                places[node.name].append(path)
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in KNOWN_NAMES} == {}


def test_modules_that_imports_load() -> None:
    program = f"""
import sys, fbeta
ours = lambda: {{name for name in sys.modules if name.split(".")[0] == "fbeta"}}
assert len(ours()) <= {MAX_LOADED_BY_IMPORT}, len(ours())
for name in fbeta.__all__:
    getattr(fbeta, name)
assert len(ours()) <= {MAX_LOADED_BY_ALL_NAMES}, len(ours())
found = [name for name in ours() if name.split(".")[1:2] and name.split(".")[1] in {NOT_LOADED}]
assert not found, found
import fbeta.blocks, fbeta.methods, fbeta.rivals
import fbeta.storage.model_files, fbeta.storage.onnx_export
found = [name for name in {OPTIONAL} if name in sys.modules]
assert not found, found
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def files_passed(work: Callable[[], object]) -> list[str]:
    """The files of the library in which some work, on one thread, calls a function."""
    found = set()
    sys.setprofile(lambda frame, *_: found.add(frame.f_code.co_filename))
    try:
        work()
    finally:
        sys.setprofile(None)
    return sorted(file for file in found if file.startswith(str(SOURCE)))


@pytest.mark.skipif(not is_compiled(), reason="the array solver has files of its own")
def test_files_that_a_fit_and_a_prediction_pass() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    Y = (X[:, :5] + rng.normal(size=(200, 5)) > 0.5).astype(int)
    clf = FBetaClassifier().fit(X, Y)
    clf.predict(X)
    fit, predict = files_passed(lambda: clf.fit(X, Y)), files_passed(lambda: clf.predict(X))
    assert len(fit) <= MAX_FILES_OF_FIT, fit
    assert len(predict) <= MAX_FILES_OF_PREDICT, predict


PROGRAM = """
import sys
from fbeta.cli import main
folder = sys.argv[1]
train, test, model = (f"{folder}/{name}" for name in ("train.csv", "test.csv", "m.skops"))
labels = ["--label-prefix", "is_", "--alphas", "1", "--cv", "2"]
assert main(["fit", train, *labels, "--method", "fbeta", "-o", model]) == 0
assert main(["predict", model, test, "-o", f"{folder}/out.csv", "--expected"]) == 0
plots = ["--plots", f"{folder}/plots", "--report", f"{folder}/page.html"]
assert main(["evaluate", model, test, *plots]) == 0
assert main(["compare", train, test, *labels, "--methods", "fbeta,br"]) == 0
assert not [name for name in sys.modules if name.startswith("fbeta.experiments")]
"""


@pytest.mark.slow
def test_fitting_and_predicting_do_not_need_the_experiments(tmp_path: Path) -> None:
    for name in ("typer", "skops", "matplotlib"):
        pytest.importorskip(name)
    write_csv(tmp_path / "train.csv", *TRAIN)
    write_csv(tmp_path / "test.csv", *TEST)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_only_the_command_line_imports_the_experiments() -> None:
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        if not place.startswith("experiments/") and place != "cli/reproduce.py":
            assert "fbeta.experiments" not in path.read_text(encoding="utf-8"), place


@pytest.mark.skipif(not layout.PAGE.exists(), reason="the page is not in an installed package")
def test_the_table_of_rooms_is_that_of_the_tree() -> None:
    text = layout.PAGE.read_text(encoding="utf-8")
    assert layout.with_table(text) == text, "run python -m tests.layout"
