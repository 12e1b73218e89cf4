from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import stat
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.api.extensions import ExtensionDtype
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.fixes import parse_version

from fbeta import AlphaSearchCV, FBetaAuto, FBetaClassifier, FBetaReduction
from fbeta._files import write_atomically, write_text
from fbeta.losses import get_loss
from fbeta.methods import METHODS, PARTS, load_part, make_method
from fbeta.metrics import fbeta_per_instance
from fbeta.rivals import LowRankClassifier
from fbeta.rivals.held_out import CostedLogistic
from fbeta.rivals.low_rank import fbeta_factors
from fbeta.storage.model_files import TRUSTED, ModelFileError, load_model, save_model

from .. import make_models

sio = pytest.importorskip("skops.io", reason="skops is not installed")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = (X[:, :3] + 0.5 * RNG.normal(size=(40, 3)) > 0).astype(int)
SETS = [[name for name, on in zip("abc", row, strict=True) if on] for row in Y]


def fitted(**parameters: Any) -> FBetaClassifier:
    return FBetaClassifier(**parameters).fit(X, Y)


# besides those of tests/make_models.py, whose files are kept
ESTIMATORS = {
    "loss object": lambda: fitted(loss=get_loss("exponential")),
    "costs": lambda: fitted(loss=CostedLogistic(3.0, 1.0)),
    "auto": lambda: FBetaAuto(time_limit=0.3, cv=2).fit(X, Y),
    "splitter": lambda: AlphaSearchCV(FBetaClassifier(), alphas=[1.0], cv=KFold(2)).fit(X, Y),
    "calibrated": lambda: FBetaReduction(LinearSVC()).fit(X, Y),
    "bayes": lambda: FBetaReduction(make_pipeline(StandardScaler(), GaussianNB())).fit(X, Y),
    "python sets": lambda: FBetaClassifier().fit(X, [set(row) for row in SETS]),
    "tuples": lambda: FBetaClassifier().fit(X, [tuple(row) for row in SETS]),
    "csc": lambda: FBetaClassifier().fit(sp.csr_array(X), sp.csc_matrix(Y)),
    "names": lambda: FBetaClassifier().fit(X, np.where(Y[:, 0], "yes", "no")),
    "float32": lambda: FBetaClassifier().fit(X.astype(np.float32), Y.astype(bool)),
    "series": lambda: FBetaClassifier().fit(X, pd.Series(SETS)),
    "nullable": lambda: FBetaClassifier().fit(X, pd.DataFrame(Y, columns=[*"abc"]).astype("Int8")),
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


@pytest.mark.parametrize("name", make_models.KINDS)
def test_kept_files_predict_what_they_did(name: str) -> None:
    if name == "reduction" and parse_version(sklearn.__version__) < parse_version("1.8"):
        pytest.skip("scikit-learn does not read the classifiers that a later version wrote")
    kept = json.loads(make_models.EXPECTED.read_text())[name]
    for folder in make_models.FOLDERS:
        path, expected = folder / f"{name}.skops", dict(kept)
        if not path.exists():
            continue
        found = make_models.outcome(load_model(path).estimator)
        assert found.pop("expected", None) == pytest.approx(
            expected.pop("expected", None), abs=1e-5
        )
        assert found == expected
        with zipfile.ZipFile(path) as archive:
            for member in {"schema.json", "model.json"} & set(archive.namelist()):
                words = "a file must not name a module of ours"
                assert b"fbeta." not in archive.read(member), words


def same(first: Any, second: Any) -> None:
    """Check that objects have the same types and values throughout."""
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        first, second = list(first.values()), list(second.values())
    if sp.issparse(first):
        assert first.shape == second.shape
        first, second = ((a.data, a.indices, a.indptr) for a in (first, second))
    if isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for pair in zip(first, second, strict=True):
            same(*pair)
    elif hasattr(first, "__dict__") and not isinstance(first, type | ExtensionDtype):
        same(vars(first), vars(second))
    else:
        # NaN, which marks gaps for the imputer, is not equal to itself
        assert first == second or (first != first and second != second)


@pytest.mark.parametrize("name", dict.fromkeys([*METHODS, *ESTIMATORS]))
def test_nothing_is_lost_or_changed(name: str, tmp_path: Path) -> None:
    model = ESTIMATORS[name]() if name in ESTIMATORS else make_method(name).fit(X, Y)
    save_model(tmp_path / "m.skops", model)
    same(vars(load_model(tmp_path / "m.skops").estimator), vars(model))


@pytest.mark.parametrize("labels", [Y, SETS], ids=["array", "sets"])
def test_a_pipeline_that_ends_with_ours(labels: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=[*"vwxyz"])
    model = make_pipeline(StandardScaler(), FBetaClassifier(beta=2.0)).fit(frame, labels)
    save_model(tmp_path / "m.skops", model)
    assert isinstance(model[-1], FBetaClassifier), "what is stored is not changed"
    stored = load_model(tmp_path / "m.skops")
    assert stored.classifier.beta == 2.0
    assert stored.feature_names == tuple("vwxyz")
    assert str(stored.estimator.predict(frame)) == str(model.predict(frame))
    scaled = model[0].transform(frame)
    np.testing.assert_array_equal(
        stored.expected_fbeta(X, beta=0.5), model[-1].expected_fbeta(scaled, beta=0.5)
    )
    expected = FBetaClassifier(beta=2.0).fit(scaled, Y).predict(scaled, beta=0.5)
    np.testing.assert_array_equal(stored.predict(X, beta=0.5), expected)


def test_other_estimators_are_not_stored(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is not an estimator of fbeta"):
        save_model(tmp_path / "m.skops", LogisticRegression().fit(X, Y[:, 0]))


COSTS = [[0, 1, 0.2], [1, 0, 0.2]]  # the third prediction is to refuse
NAMES = np.where(Y[:, 0], "yes", "no")


@pytest.mark.parametrize(
    ("model", "y", "names"),
    [
        (LowRankClassifier.for_fbeta(Y.shape[1]), Y, [str(j) for j in range(Y.shape[1])]),
        (LowRankClassifier(), NAMES, ["no", "yes"]),
        (LowRankClassifier(COSTS), Y[:, 0], ["0", "1", "2"]),
        (LowRankClassifier(np.transpose(COSTS)), Y[:, 0], ["0", "1"]),
        (
            LowRankClassifier(factors=fbeta_factors(1), labelsets=[[], ["sea"]]),
            [["sea"] if y else [] for y in Y[:, 0]],
            ["sea"],
        ),
    ],
)
def test_classifiers_of_any_loss_are_stored(tmp_path: Path, model, y, names) -> None:
    save_model(tmp_path / "m.skops", model.fit(X, y))
    stored = load_model(tmp_path / "m.skops")
    assert list(stored.label_names) == names
    assert str(stored.estimator.predict(X)) == str(model.predict(X))
    assert stored.estimator.score(X, y) == model.score(X, y)
    np.testing.assert_array_equal(stored.estimator.predict_loss(X), model.predict_loss(X))
    # as 0/1: label sets, or a column for each class that can be predicted
    written = stored.predict(X, beta=2.0)
    if model.labelsets is None:
        assert [names[j] for j in written.argmax(axis=1)] == [str(v) for v in model.predict(X)]
        assert (written.sum(axis=1) == 1).all()
    else:
        np.testing.assert_array_equal(fbeta_per_instance(written, model.decide(X).labels[1.0]), 1)
        best = model.predict_loss(X).argmin(axis=1)
        sets = np.asarray(model.labelsets) if len(names) > 1 else np.array([[0], [1]])
        np.testing.assert_array_equal(written, sets[best])
    with pytest.raises(ValueError, match="does not estimate its own F_beta"):
        stored.expected_fbeta(X)


def test_a_model_that_does_not_expect_its_score_says_so(tmp_path: Path) -> None:
    save_model(tmp_path / "m.skops", make_method("limo").fit(X, Y))
    stored = load_model(tmp_path / "m.skops")
    with pytest.raises(ValueError, match="a model of Limo does not estimate its own F_beta"):
        stored.expected_fbeta(X)


def test_what_goes_with_the_model_comes_back(tmp_path: Path) -> None:
    reading = {"missing": "mean", "means": [0.5, 1.0], "label_column": None, "zero_based": True}
    save_model(
        tmp_path / "m.skops", fitted(), label_names=["x", "y", "z"],
        feature_names=list("abcde"), reading=reading, versions={"fbeta": "1"},
    )  # fmt: skip
    stored = load_model(tmp_path / "m.skops")
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
    save_model(path, fitted())
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


def test_plain_models_need_no_skops(
    model_bytes: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "skops.io", None)
    path = tmp_path / "m.skops"
    save_model(path, FBetaClassifier().fit(X, SETS))
    assert load_model(path).label_names == tuple("abc")
    with pytest.raises(ImportError, match="skops"):
        load_model(make_models.FOLDER / "method-fbeta.skops")
    with pytest.raises(ImportError, match="skops"):
        save_model(path, make_pipeline(StandardScaler(), FBetaClassifier()).fit(X, Y))
    assert load_model(path).label_names == tuple("abc"), "the old file is still there"


def test_an_array_that_is_shared_is_stored_once(tmp_path: Path) -> None:
    clf = fitted()
    clf.one_ = clf.other_ = np.arange(10_000.0)
    save_model(tmp_path / "m.skops", clf)
    assert (tmp_path / "m.skops").stat().st_size < 120_000
    loaded = load_model(tmp_path / "m.skops").estimator
    assert loaded.one_ is loaded.other_
    np.testing.assert_array_equal(loaded.one_, clf.one_)


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
