"""Models come back from their files as they were, with what goes with them."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
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
from fbeta.methods import METHODS, make_method
from fbeta.metrics import fbeta_per_instance
from fbeta.rivals import LowRankClassifier
from fbeta.rivals.held_out import CostedLogistic
from fbeta.rivals.low_rank import fbeta_factors
from fbeta.storage.model_files import TRUSTED, ModelFileError, load_model, save_model

from .. import make_models

pytest.importorskip("skops.io", reason="skops is not installed")

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
        # what is computed when it is asked for is no part of the state
        cached = {
            k for k in vars(second) if isinstance(getattr(type(second), k, 0), cached_property)
        }
        same(*({k: v for k, v in vars(a).items() if k not in cached} for a in (first, second)))
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


def test_plain_models_need_no_skops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
