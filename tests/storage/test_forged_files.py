"""Files that are damaged, forged or of another version: one error, and no code is run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import FBetaClassifier
from fbeta.methods import PARTS, load_part
from fbeta.storage.model_files import ModelFileError, load_model, save_model

from .. import make_models

sio = pytest.importorskip("skops.io", reason="skops is not installed")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = (X[:, :3] + 0.5 * RNG.normal(size=(40, 3)) > 0).astype(int)


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_is_refused_without_running_it(tmp_path: Path) -> None:
    path, target = tmp_path / "m.skops", tmp_path / "exploded"
    path.write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(ModelFileError, match="not a model"):
        load_model(path)
    assert not target.exists()
    pickle.loads(path.read_bytes())
    assert target.exists(), "the pickle has to be a real threat for this test to mean anything"


def edit(
    source: bytes, change: Any, member: str = "model.json", extra: dict[str, bytes] | None = None
) -> bytes:
    """Change a JSON member of a model file; `extra` members are added or take the place of old."""
    out, extra = io.BytesIO(), extra or {}
    with zipfile.ZipFile(io.BytesIO(source)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == member:
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema).encode()
            if name not in extra:
                new.writestr(name, content)
        for name, content in extra.items():
            new.writestr(name, content)
    return out.getvalue()


def edit_schema(source: bytes, change: Any, extra: dict[str, bytes] | None = None) -> bytes:
    """Change the schema of a file of format 2."""
    return edit(source, change, "schema.json", extra)


def edit_parts(source: bytes, change: Any) -> bytes:
    """Change the schema of the parts of scikit-learn in a file of format 3."""
    with zipfile.ZipFile(io.BytesIO(source)) as archive:
        parts = edit_schema(archive.read("parts.skops"), change)
    return edit(source, lambda content: None, extra={"parts.skops": parts})


@pytest.fixture(scope="module")
def model_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.skops"
    save_model(path, FBetaClassifier().fit(X, Y))
    return path.read_bytes()


@pytest.fixture(scope="module")
def pipeline_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model with a part of scikit-learn."""
    path = tmp_path_factory.mktemp("pipeline") / "m.skops"
    save_model(path, make_pipeline(StandardScaler(), FBetaClassifier()).fit(X, Y))
    return path.read_bytes()


@pytest.fixture(scope="module")
def skops_bytes() -> bytes:
    """A kept file of format 2."""
    return (make_models.FOLDER / "method-fbeta.skops").read_bytes()


DANGEROUS = [
    ("os", "system", "FunctionNode"),
    ("builtins", "eval", "FunctionNode"),
    ("builtins", "eval", "TypeNode"),
    ("os", "system", "TypeNode"),
    ("subprocess", "Popen", "ObjectNode"),
    ("fbeta.storage.model_files", "write_text", "FunctionNode"),
    ("functools", "partial", "PartialNode"),
    ("operator", "methodcaller", "OperatorFuncNode"),
    ("builtins", "method", "MethodNode"),
    ("numpy", "load", "FunctionNode"),
    ("fbeta.estimators.statistics_base", "FBetaClassifier", "FunctionNode"),
    ("fbeta.rivals.limo", "os", "ObjectNode"),
    ("fbeta.rivals.limo.os", "Limo", "ObjectNode"),
    ("evil.fbeta.rivals.limo", "Limo", "ObjectNode"),
    ("fbeta.rivals.limo", "Limo", "TypeNode"),
]


@pytest.mark.parametrize(("module", "name", "loader"), DANGEROUS)
def test_types_outside_the_list_are_refused(
    skops_bytes: bytes,
    pipeline_bytes: bytes,
    tmp_path: Path,
    module: str,
    name: str,
    loader: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = {
        "__class__": name,
        "__module__": module,
        "__loader__": loader,
        "__id__": 1,
        "content": {"module_path": module, "function": name},
    }
    monkeypatch.setattr(os, "system", lambda *a: pytest.fail("code was run"))
    path = tmp_path / "m.skops"
    for data in (
        edit_schema(skops_bytes, lambda schema: schema["content"].update(reading=node)),
        edit_parts(pipeline_bytes, lambda schema: schema["content"].append(node)),
    ):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match=rf"not trusted: {module}\.{name}"):
            load_model(path)


def test_an_untrusted_skops_file_is_refused_without_making_its_objects(tmp_path: Path) -> None:
    # ColumnTransformer and FunctionTransformer hold functions: skops itself would ask for trust
    from sklearn.preprocessing import FunctionTransformer

    path = tmp_path / "m.skops"
    sio.dump({"kind": "fbeta model", "estimator": FunctionTransformer(os.getcwd)}, path)
    with pytest.raises(ModelFileError, match=r"not trusted: .*FunctionTransformer"):
        load_model(path)


def test_pickled_arrays_inside_a_file_are_refused(
    model_bytes: bytes, skops_bytes: bytes, tmp_path: Path
) -> None:
    target = tmp_path / "exploded"
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb(target)], dtype=object), allow_pickle=True)

    def point(schema: dict[str, Any]) -> None:
        def walk(node: Any) -> None:
            if isinstance(node, dict):
                if node.get("__loader__") == "NdArrayNode" and "file" in node:
                    node["file"] = "evil.npy"
                for part in node.values():
                    walk(part)
            elif isinstance(node, list):
                for part in node:
                    walk(part)

        walk(schema)

    path = tmp_path / "m.skops"
    for data in (
        edit_schema(skops_bytes, point, {"evil.npy": buffer.getvalue()}),
        edit(model_bytes, lambda content: None, extra={"0.npy": buffer.getvalue()}),
    ):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match="allow_pickle=False"):
            load_model(path)
        assert not target.exists()


def test_compressed_files_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b" " * 10_000_000)
    with pytest.raises(ModelFileError, match="compressed"):
        load_model(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "other"),
        ("label_names", []),
        ("feature_names", []),
        ("estimator", []),
        ("estimator", "[[["),
        ("leaves", []),
        ("leaves", [{"part": 0}]),
        ("leaves", [{"file": "model.json"}]),
        ("parts", {"file": "absent.skops"}),
        ("parts", [{"file": "0.npy"}]),
    ],
)
def test_parts_that_do_not_fit_together(
    model_bytes: bytes, tmp_path: Path, key: str, value: Any
) -> None:
    path = tmp_path / "m.skops"
    path.write_bytes(edit(model_bytes, lambda content: content.update({key: value})))
    with pytest.raises(ModelFileError, match=r"m\.skops: not a model of fbeta"):
        load_model(path)


def forge_state(source: bytes, change: Any) -> bytes:
    """Change the state of the estimator inside a model file."""
    return edit(source, lambda content: change(content["estimator"]))


def node_of(state: Any, wanted: Any) -> Any:
    """The first object in a state for which something holds."""
    if isinstance(state, dict) and wanted(state):
        return state
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()
    return next(filter(None, (node_of(part, wanted) for part in parts)), None)


def root(state: Any) -> Any:
    return state


def form(state: Any) -> Any:
    return node_of(state, lambda node: node.get("fbeta") == "LabelForm")


def leaf(state: Any) -> Any:
    return node_of(state, lambda node: "leaf" in node)


# where, what is put there, and what is said
FORGED: dict[str, tuple[Any, tuple[str, ...], Any, str]] = {
    "part": (root, ("fbeta",), "Nope", r"m\.skops: it has a part 'Nope', which this version"),
    "version": (root, ("version",), 2, r"FBetaClassifier has version 2, .* knows 1 to 1"),
    "not a version": (root, ("version",), "1", "has version '1'"),
    "no version": (root, ("version",), None, "has version None"),
    "inner part": (form, ("fbeta",), "X", "a part 'X'"),
    "not a part": (form, ("fbeta",), ["X"], "unhashable"),
    "no part": (root, ("state", "x"), {"os": "system"}, r"expected a part, found \['os'\]"),
    "leaf": (leaf, ("leaf",), 99, "out of range"),
    "method": (root, ("state", "predict_proba"), 1, "the name of a method"),
    "parameter": (root, ("params", "gamma"), 1, "unexpected keyword"),
    "dtype": (form, ("params", "dtype", "type"), "O", "labels of type 'O'"),
    # a name in place of a type is not looked up
    "dtype by name": (form, ("params", "dtype"), "int8", "no form of labels 'array' of 'int8'"),
    "container": (form, ("params", "container"), "os", "no labels in a 'os'"),
    "kind": (form, ("params", "kind"), "x", "no form of labels 'x'"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_state_is_told(model_bytes: bytes, tmp_path: Path, name: str) -> None:
    where, (*place, last), value, words = FORGED[name]

    def change(state: dict[str, Any]) -> None:
        node = where(state)
        for key in place:
            node = node[key]
        node[last] = value

    path = tmp_path / "m.skops"
    path.write_bytes(forge_state(model_bytes, change))
    with pytest.raises(ModelFileError, match=words):
        load_model(path)


@pytest.mark.parametrize("number", [1, 3])
def test_another_format_of_skops_files_is_told_before_its_types(
    skops_bytes: bytes, tmp_path: Path, number: int
) -> None:
    def change(schema: dict[str, Any]) -> None:
        schema["content"]["version"]["content"] = str(number)
        # as the first format had it
        schema["content"]["estimator"].update(
            __class__="FBetaClassifier", __module__="fbeta.classifier", __loader__="ObjectNode"
        )

    path = tmp_path / "m.skops"
    path.write_bytes(edit_schema(skops_bytes, change))
    with pytest.raises(ModelFileError, match=rf"format {number}, .* reads formats 2 and 3: fit"):
        load_model(path)


@pytest.mark.parametrize("number", [2, 4, "3"])
def test_another_format_is_told(model_bytes: bytes, tmp_path: Path, number: Any) -> None:
    path = tmp_path / "m.skops"
    path.write_bytes(edit(model_bytes, lambda content: content.update(version=number)))
    with pytest.raises(ModelFileError, match=rf"format {number!r}, .* reads formats 2 and 3: fit"):
        load_model(path)


def test_an_older_state_is_brought_up_to_date(
    model_bytes: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upgrade(version: int, params: Any, state: Any) -> Any:
        assert version == 1
        return {**params, "beta": 3.0}, {**state, "new_": True}

    monkeypatch.setattr(FBetaClassifier, "state_version", 2, raising=False)
    monkeypatch.setattr(FBetaClassifier, "upgrade_state", upgrade, raising=False)
    (tmp_path / "m.skops").write_bytes(model_bytes)
    loaded = load_model(tmp_path / "m.skops").estimator
    assert (loaded.beta, loaded.new_) == (3.0, True)
    save_model(tmp_path / "n.skops", loaded)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match="version 2, and this version of fbeta knows 1 to 1"):
        load_model(tmp_path / "n.skops")


def test_a_module_that_moves_breaks_no_file(
    model_bytes: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.skops").write_bytes(model_bytes)
    before = load_model(tmp_path / "m.skops").estimator
    moved = types.ModuleType("fbeta_moved")
    for name in ("FBetaClassifier", "LabelForm"):
        class_ = load_part(name)
        # what a file that names the module would need is not there any more
        monkeypatch.setitem(sys.modules, class_.__module__, None)
        monkeypatch.setattr(class_, "__module__", "fbeta_moved")
        setattr(moved, f"{name}2", type(f"{name}2", (class_,), {}))
        monkeypatch.setitem(PARTS, name, f"fbeta_moved:{name}2")
    monkeypatch.setitem(sys.modules, "fbeta_moved", moved)
    after = load_model(tmp_path / "m.skops").estimator
    assert type(after).__name__ == "FBetaClassifier2"
    np.testing.assert_array_equal(after.predict(X), before.predict(X))


def test_other_skops_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.skops"
    for content in ({"a": 1}, [1, 2], LogisticRegression().fit(X, Y[:, 0])):
        sio.dump(content, path)
        with pytest.raises(ModelFileError):
            load_model(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "absent.skops")


@settings(
    max_examples=150, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(st.data())
def test_damaged_files_raise_one_error(
    pipeline_bytes: bytes, skops_bytes: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from([pipeline_bytes, skops_bytes])))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(content), len(content) // 2, len(content) - 5]))
    path = tmp_path / "m.skops"
    path.write_bytes(bytes(content[:cut]))
    with contextlib.suppress(ModelFileError):
        load_model(path)


def places(node: Any) -> list[tuple[Any, Any]]:
    """All the (container, key) pairs of a schema."""
    items: list[tuple[Any, Any]] = []
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, part in list(pairs):
        items.append((node, key))
        if isinstance(part, dict | list):
            items += places(part)
    return items


JUNK = st.one_of(
    st.none(), st.integers(), st.text(max_size=5), st.booleans(), st.just([]), st.just({}),
    st.sampled_from(["FunctionNode", "os", "system", "nan", "-1", "1e999", "[[[", "ObjectNode"]),
)  # fmt: skip


@settings(
    max_examples=150, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(st.data())
def test_forged_schemas_and_states_raise_one_error(
    pipeline_bytes: bytes, skops_bytes: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    def forge(content: dict[str, Any]) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            node, key = data.draw(st.sampled_from(places(content)))
            node[key] = data.draw(JUNK)

    path = tmp_path / "m.skops"
    way = data.draw(st.sampled_from([edit_schema, edit_parts, edit, forge_state]))
    path.write_bytes(way(skops_bytes if way is edit_schema else pipeline_bytes, forge))
    with contextlib.suppress(ModelFileError):
        load_model(path)
