"""Labels of another form than those in fit: matched by name, or refused; nothing is guessed."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fbeta import FBetaClassifier, FBetaReduction, LabelStatistics, fbeta_score
from fbeta.blocks import RowBlocks
from fbeta.decoding.expected import expected_fbeta, expected_measure
from fbeta.labels.forms import form_of
from fbeta.metrics import best_thresholds
from fbeta.rivals import BinaryRelevance
from fbeta.storage import load_model, save_model

X = np.random.default_rng(0).normal(size=(200, 4))
Y = (X[:, :3] > 0).astype(int)
NAMES = np.array(["sea", "sky", "tree"])
TAGS = [list(NAMES[row > 0]) for row in Y]
NUMBERS = [set(np.flatnonzero(row).tolist()) for row in Y]
MASK = np.arange(200) % 2 == 0


@pytest.fixture(scope="module")
def tagged():
    return FBetaClassifier().fit(X, TAGS)


def test_a_matrix_after_a_fit_to_tags_is_refused(tagged):
    assert tagged.score(X, TAGS) == pytest.approx(0.912)
    for labels in (Y, Y.tolist(), sp.csr_array(Y), pd.DataFrame(Y)):
        with pytest.raises(ValueError, match=r"seen in fit"):
            tagged.score(X, labels)
    with pytest.raises(ValueError, match=r"0/1 matrix with 3 columns.*'sea', 'sky', 'tree'"):
        tagged.score(X, Y)


def test_strings_are_no_label_sets(tagged):
    for strings in (["".join(t) for t in TAGS], [",".join(t) for t in TAGS], ["sea"] * 200):
        with pytest.raises(ValueError, match=r"1-D target with the classes .* label sets \('sea'"):
            tagged.score(X, strings)
        with pytest.raises(ValueError, match="Y_pred"):
            fbeta_score(TAGS, strings)


def test_data_frames_are_matched_by_name(tagged):
    frame = pd.DataFrame(Y, columns=NAMES)
    assert tagged.score(X[:3], frame[:3]) == tagged.score(X[:3], TAGS[:3])
    assert tagged.score(X, frame[NAMES[::-1]]) == tagged.score(X, TAGS)
    wider = frame.assign(unseen=1)
    assert tagged.score(X, wider) == tagged.score(X, [[*t, "unseen"] for t in TAGS])
    with pytest.raises(ValueError, match=r"missing \['tree'\]"):
        tagged.score(X, frame[["sea", "sky"]])
    framed = FBetaClassifier().fit(X, frame)
    assert framed.score(X, TAGS) == framed.score(X, frame)
    with pytest.raises(ValueError, match=r"not seen in fit: \['moon'\]"):
        framed.score(X, [["moon"], *TAGS[1:]])


def test_sets_of_numbers_are_matched_with_columns():
    clf = FBetaClassifier().fit(X, NUMBERS)
    assert clf.score(X, Y) == clf.score(X, NUMBERS) == pytest.approx(0.912)
    assert fbeta_score(NUMBERS, Y) == fbeta_score(Y, NUMBERS) == 1.0
    from_one = [{label + 1 for label in row} for row in NUMBERS]
    for labels in (Y, TAGS):
        with pytest.raises(ValueError, match=r"seen in fit|several types"):
            FBetaClassifier().fit(X, from_one).score(X, labels)
    with pytest.raises(ValueError, match="were not in Y_true"):
        fbeta_score(Y, from_one)


def test_lists_that_may_be_sets_or_rows_are_refused():
    form = form_of([{0}, {1}])
    with pytest.raises(ValueError, match="may be label sets or rows of a 0/1 matrix"):
        form.read([[0, 1], [1, 0]])
    assert form.read([[0, 0], [1, 1]]).toarray().tolist() == [[0, 0], [1, 1]]
    assert form.read(np.array([[0, 1]])).toarray().tolist() == [[0, 1]]


@pytest.mark.parametrize("kind", ["str", "bool", "int64"])
def test_frames_of_categories_come_back(kind):
    values = Y.astype(kind) if kind == "str" else Y.astype(bool if kind == "bool" else int)
    frame = pd.DataFrame(values, columns=NAMES).astype("category")
    found = FBetaClassifier().fit(X, frame).predict(X)
    assert found.dtypes.equals(frame.dtypes)
    assert not found.isna().to_numpy().any()
    assert fbeta_score(frame, found) == pytest.approx(0.912)


def test_a_category_that_was_never_seen_is_added():
    form = form_of(pd.DataFrame({"a": ["0", "0"]}, dtype="category"))
    assert form.write(np.array([[True], [False]]))["a"].tolist() == ["1", "0"]


def test_types_of_columns_come_back():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for column in (
        pl.Series(["no", "yes"], dtype=pl.Categorical),
        pl.Series([["a"], ["a", "b"]], dtype=pl.List(pl.Categorical)),
        pa.array(["no", "yes"]).dictionary_encode(),
        pa.array([["a"], ["b"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pl.Series([1, 0], dtype=pl.Int8),
        pl.Series([[1], [1, 3]], dtype=pl.List(pl.Int8)),
        pa.array([1, 0], pa.int8()),
        pa.array([["a"], ["a", "b"]], pa.large_list(pa.large_string())),
    ):
        form = form_of(column)
        found = form.write(form.read(column).toarray().astype(bool))
        assert getattr(found, "dtype", None) == getattr(column, "dtype", None)
        assert getattr(found, "type", None) == getattr(column, "type", None)
        assert found.to_pylist() == column.to_pylist() if hasattr(found, "to_pylist") else True


@pytest.mark.parametrize("wrong", ["2", 0.2, np.nan, -1, np.inf])
def test_labels_that_are_not_binary(wrong):
    labels = Y.astype(object if isinstance(wrong, str) else float)
    labels[7, 1] = wrong
    q = LabelStatistics.from_marginals(np.full((200, 3), 0.5))
    for call in (
        lambda: expected_fbeta(q, labels),
        lambda: expected_measure(q, labels, measure="hamming"),
        lambda: best_thresholds(X[:, :3], labels),
        lambda: fbeta_score(Y, labels),
        lambda: FBetaClassifier().fit(X, labels),
        lambda: LabelStatistics.from_samples(labels[:, None, :]),
    ):
        with pytest.raises(ValueError, match=r"0 and 1|row 7, column 1|\(7, 0\)"):
            call()


def test_expected_values_of_label_sets():
    q = LabelStatistics.from_marginals(np.full((200, 3), 0.4))
    right = expected_fbeta(q, Y)
    for labels in (NUMBERS, sp.csr_array(Y), Y.astype(str), pd.DataFrame(Y)):
        assert np.array_equal(expected_fbeta(q, labels), right)
    with pytest.raises(ValueError, match="label names that were not expected"):
        expected_fbeta(q, TAGS)


def masked(values, mask=MASK):
    mask = np.broadcast_to(mask.reshape(-1, *(1,) * (np.ndim(values) - 1)), np.shape(values))
    return np.ma.masked_array(values, mask=mask)


MASKED = {
    "X": lambda: FBetaClassifier().fit(masked(X), Y),
    "X of predict": lambda: FBetaClassifier().fit(X, Y).predict(masked(X)),
    "X of a reduction": lambda: FBetaReduction(BinaryRelevance()).fit(masked(X), Y),
    "y": lambda: FBetaClassifier().fit(X, masked(Y)),
    "y of score": lambda: FBetaClassifier().fit(X, Y).score(X, masked(Y)),
    "1-D y": lambda: FBetaClassifier().fit(X, masked(Y[:, 0])),
    "sample_weight": lambda: FBetaClassifier().fit(X, Y, sample_weight=masked(np.ones(200))),
    "Y_true": lambda: fbeta_score(masked(Y), Y),
    "weights of a metric": lambda: fbeta_score(Y, Y, sample_weight=masked(np.ones(200))),
    "marginals": lambda: LabelStatistics.from_marginals(masked(Y / 2)),
    "sizes": lambda: LabelStatistics.from_marginals(Y / 2, masked(np.full((200, 4), 0.25))),
    "samples": lambda: LabelStatistics.from_samples(masked(Y[:, None])),
    "probabilities": lambda: LabelStatistics.from_distribution(masked(np.full((200, 3), 0.3)), Y),
    "scores": lambda: best_thresholds(masked(X[:, :3]), Y),
    "blocks": lambda: FBetaClassifier().fit(RowBlocks([(masked(X), Y)])),
    "weights of blocks": lambda: FBetaClassifier().fit(RowBlocks([(X, Y, masked(np.ones(200)))])),
}


@pytest.mark.parametrize("argument", MASKED)
def test_masks_are_not_dropped(argument):
    with pytest.raises(ValueError, match=r"is a masked array with [0-9]+ masked entries"):
        MASKED[argument]()


def test_complex_numbers_are_refused():
    for call in (
        lambda: FBetaClassifier().fit(X, Y * 1j),
        lambda: FBetaClassifier().fit(X * 1j, Y),
        lambda: FBetaClassifier().fit(X, Y, sample_weight=np.full(200, 1 + 1j)),
        lambda: LabelStatistics.from_marginals(Y * 0.5j),
        lambda: fbeta_score(Y, Y.astype(complex)),
    ):
        with pytest.raises(ValueError, match="Complex data not supported"):
            call()


def test_generators_are_read_once():
    clf = FBetaClassifier().fit(X, (tags for tags in TAGS))
    assert clf.score(X, map(tuple, TAGS)) == pytest.approx(0.912)
    assert fbeta_score(iter(TAGS), iter(TAGS)) == 1.0
    with pytest.raises(ValueError, match="row 0 of y can be read only once"):
        FBetaClassifier().fit(X, [iter(tags) for tags in TAGS])


def test_a_label_called_nan_is_itself_after_pickling():
    frame = pd.DataFrame(Y, columns=["sea", np.nan, "tree"])
    clf = FBetaClassifier().fit(X, frame)
    assert pickle.loads(pickle.dumps(clf)).score(X, frame) == clf.score(X, frame)


def test_numbers_are_no_strings():
    with pytest.raises(ValueError, match="several types"):
        fbeta_score([0, 1], ["0", "1"])
    clf = FBetaClassifier().fit(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"not seen in fit: \['0', '1'\]"):
        clf.score(X, Y[:, 0].astype(str))
    assert clf.score(X, Y[:, :1]) == clf.score(X, Y[:, 0]) == clf.score(X, Y[:, :1].tolist())
    with pytest.raises(ValueError, match=r"0/1 matrix with 3 columns.*1-D target"):
        clf.score(X, Y)


@pytest.mark.parametrize("kind", ["category", "string", "object", "Int8"])
def test_model_files_have_plain_types_of_columns(kind, tmp_path):
    pytest.importorskip("skops")
    frame = pd.DataFrame(Y if kind == "Int8" else Y.astype(str), columns=NAMES).astype(kind)
    clf = FBetaClassifier().fit(X, frame)
    save_model(tmp_path / "m.skops", clf)
    found = load_model(tmp_path / "m.skops").estimator.predict(X)
    assert (found.dtypes == ("Int8" if kind == "Int8" else "int8")).all()
    assert fbeta_score(found, clf.predict(X)) == 1.0
