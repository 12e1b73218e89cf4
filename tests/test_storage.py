from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from fbeta import AlphaSearchCV, FBetaClassifier, FBetaClassifierCV, FBetaReduction
from fbeta.experiments.methods import METHODS, available_methods, make_method
from fbeta.losses import get_loss
from fbeta.storage import (
    TRUSTED,
    ModelFileError,
    load_model,
    save_model,
    write_atomically,
    write_text,
)

sio = pytest.importorskip("skops.io", reason="skops is not installed")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = (X[:, :3] + 0.5 * RNG.normal(size=(40, 3)) > 0).astype(int)
SETS = [[name for name, on in zip("abc", row, strict=True) if on] for row in Y]


def fitted(**parameters: Any) -> FBetaClassifier:
    return FBetaClassifier(**parameters).fit(X, Y)


ESTIMATORS = {
    "plain": lambda: fitted(),
    "loss object": lambda: fitted(loss=get_loss("exponential")),
    "cv": lambda: FBetaClassifierCV([0.1, 1.0], cv=2).fit(X, Y),
    "search": lambda: AlphaSearchCV(FBetaClassifier(), alphas=[1.0], cv=KFold(2)).fit(X, Y),
    "reduction": lambda: FBetaReduction(LogisticRegression()).fit(X, Y),
    "sets": lambda: FBetaClassifier().fit(X, SETS),
    "python sets": lambda: FBetaClassifier().fit(X, [set(row) for row in SETS]),
    "sparse": lambda: FBetaClassifier().fit(sp.csr_array(X), sp.csr_array(Y)),
    "single": lambda: FBetaClassifier().fit(X, Y[:, 0]),
    "float32": lambda: FBetaClassifier().fit(X.astype(np.float32), Y.astype(bool)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_models_predict_the_same_after_a_round_trip(name: str, tmp_path: Path) -> None:
    model = ESTIMATORS[name]()
    save_model(tmp_path / "m.skops", model)
    loaded = load_model(tmp_path / "m.skops").estimator
    assert type(loaded) is type(model)
    assert loaded.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    before, after = model.predict(X), loaded.predict(X)
    assert type(after) is type(before)
    assert str(after) == str(before)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_stored(method: str, tmp_path: Path) -> None:
    if method not in available_methods():
        pytest.skip(f"{method} is not in this installation")
    model = make_method(method).fit(X, Y)
    save_model(tmp_path / "m.skops", model)
    loaded = load_model(tmp_path / "m.skops").estimator
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_what_goes_with_the_model_comes_back(tmp_path: Path) -> None:
    reading = {"missing": "mean", "means": [0.5, 1.0], "label_column": None, "zero_based": True}
    save_model(
        tmp_path / "new" / "m.skops", fitted(), label_names=["x", "y", "z"],
        feature_names=list("abcde"), reading=reading, versions={"fbeta": "1"},
    )  # fmt: skip
    stored = load_model(tmp_path / "new" / "m.skops")
    assert stored.label_names == ("x", "y", "z")
    assert stored.feature_names == tuple("abcde")
    assert stored.reading == reading
    assert stored.versions == {"fbeta": "1"}


def test_a_model_with_foreign_parts_is_not_stored(tmp_path: Path) -> None:
    model = FBetaReduction(LogisticRegression()).fit(X, Y)
    model.extra_ = KFold  # a class outside the list
    with pytest.raises(
        ModelFileError, match=r"not trusted: sklearn\.model_selection\._split\.KFold"
    ):
        save_model(tmp_path / "m.skops", model)
    assert list(tmp_path.iterdir()) == []


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


def edit_schema(source: bytes, change: Any, extra: dict[str, bytes] | None = None) -> bytes:
    """Change the schema inside a model file."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(source)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema).encode()
            new.writestr(name, content)
        for name, content in (extra or {}).items():
            new.writestr(name, content)
    return out.getvalue()


@pytest.fixture(scope="module")
def model_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.skops"
    save_model(path, fitted())
    return path.read_bytes()


DANGEROUS = [
    ("os", "system", "FunctionNode"),
    ("builtins", "eval", "FunctionNode"),
    ("builtins", "eval", "TypeNode"),
    ("os", "system", "TypeNode"),
    ("subprocess", "Popen", "ObjectNode"),
    ("fbeta.storage", "write_text", "FunctionNode"),
    ("functools", "partial", "PartialNode"),
    ("operator", "methodcaller", "OperatorFuncNode"),
    ("builtins", "method", "MethodNode"),
    ("numpy", "load", "FunctionNode"),
    ("fbeta.models.linear", "FBetaClassifier", "FunctionNode"),
    ("fbeta.rivals.limo", "os", "ObjectNode"),
    ("fbeta.rivals.limo.os", "Limo", "ObjectNode"),
    ("evil.fbeta.rivals.limo", "Limo", "ObjectNode"),
    ("fbeta.rivals.limo", "Limo", "TypeNode"),
]


@pytest.mark.parametrize(("module", "name", "loader"), DANGEROUS)
def test_types_outside_the_list_are_refused(
    model_bytes: bytes, tmp_path: Path, module: str, name: str, loader: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def hide(schema: dict[str, Any]) -> None:
        schema["content"]["reading"] = {
            "__class__": name, "__module__": module, "__loader__": loader, "__id__": 1,
            "content": {"module_path": module, "function": name},
        }  # fmt: skip

    path = tmp_path / "m.skops"
    path.write_bytes(edit_schema(model_bytes, hide))
    monkeypatch.setattr(os, "system", lambda *a: pytest.fail("code was run"))
    with pytest.raises(ModelFileError, match=rf"not trusted: {module}\.{name}"):
        load_model(path)


def test_an_untrusted_skops_file_is_refused_without_making_its_objects(tmp_path: Path) -> None:
    # ColumnTransformer and FunctionTransformer hold functions: skops itself would ask for trust
    from sklearn.preprocessing import FunctionTransformer

    path = tmp_path / "m.skops"
    sio.dump({"kind": "fbeta model", "estimator": FunctionTransformer(os.getcwd)}, path)
    with pytest.raises(ModelFileError, match=r"not trusted: .*FunctionTransformer"):
        load_model(path)


def test_pickled_arrays_inside_a_file_are_refused(model_bytes: bytes, tmp_path: Path) -> None:
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
    path.write_bytes(edit_schema(model_bytes, point, {"evil.npy": buffer.getvalue()}))
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
    [("version", "2"), ("kind", '"other"'), ("label_names", None), ("feature_names", None)],
)
def test_parts_that_do_not_fit_together(
    model_bytes: bytes, tmp_path: Path, key: str, value: str | None
) -> None:
    def change(schema: dict[str, Any]) -> None:
        content = schema["content"]
        if value is not None:
            content[key]["content"] = value
        else:
            content[key] = {**content["label_names"], "content": []}

    path = tmp_path / "m.skops"
    path.write_bytes(edit_schema(model_bytes, change))
    with pytest.raises(ModelFileError, match=r"m\.skops: not a model of fbeta"):
        load_model(path)


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
    model_bytes: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(model_bytes)
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
def test_forged_schemas_raise_one_error(
    model_bytes: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    def forge(schema: dict[str, Any]) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            node, key = data.draw(st.sampled_from(places(schema)))
            node[key] = data.draw(JUNK)

    path = tmp_path / "m.skops"
    path.write_bytes(edit_schema(model_bytes, forge))
    with contextlib.suppress(ModelFileError):
        load_model(path)


def test_the_list_of_trusted_types_names_real_types() -> None:
    names = {name for types in TRUSTED.values() for name in types}
    assert not any(name.startswith(("os.", "subprocess.", "builtins.eval")) for name in names)
    for name in TRUSTED["ObjectNode"]:
        module, _, attribute = name.rpartition(".")
        found = getattr(pytest.importorskip(module), attribute)
        assert f"{found.__module__}.{found.__name__}" == name


def test_an_error_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with contextlib.suppress(RuntimeError), write_atomically(path) as part:
        part.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(os.name == "nt", reason="modes of files are a matter of POSIX")
def test_new_files_have_the_usual_mode(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "new")
    (tmp_path / "b.txt").write_text("plain")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.txt", "b.txt")]
    assert modes[0] == modes[1]
