from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fbeta.labels import form_of

TRUTH = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
NAMES = ["sea", "sky", "sun"]
SETS = [["sea", "sun"], [], ["sky"]]

FORMS = {
    "int array": TRUTH,
    "bool array": TRUTH.astype(bool),
    "float array": TRUTH.astype(float),
    "nested list": TRUTH.tolist(),
    "csr array": sp.csr_array(TRUTH),
    "csc matrix": sp.csc_matrix(TRUTH.astype(np.float32)),
    "frame": pd.DataFrame(TRUTH, columns=NAMES),
    "bool frame": pd.DataFrame(TRUTH.astype(bool), columns=NAMES),
    "lists": SETS,
    "tuples": [tuple(s) for s in SETS],
    "sets": [set(s) for s in SETS],
    "frozensets": [frozenset(s) for s in SETS],
    "series of lists": pd.Series(SETS),
}


@pytest.mark.parametrize("name", FORMS)
def test_reads_every_form(name):
    Y = FORMS[name]
    assert np.array_equal(form_of(Y).read(Y).toarray(), TRUTH)


@pytest.mark.parametrize("name", FORMS)
def test_writes_what_it_read(name):
    Y = FORMS[name]
    out = form_of(Y).write(TRUTH.astype(bool), index=None)
    if sp.issparse(Y):
        assert type(out) is type(Y)
        assert out.dtype == Y.dtype
        assert np.array_equal(out.toarray(), TRUTH)
    elif isinstance(Y, pd.DataFrame):
        pd.testing.assert_frame_equal(out, Y)
    elif isinstance(Y, pd.Series):
        pd.testing.assert_series_equal(out, Y)
    elif isinstance(Y, np.ndarray):
        assert out.dtype == Y.dtype
        assert np.array_equal(out, Y)
    else:
        assert (out.tolist() if isinstance(out, np.ndarray) else out) == Y


def test_index_goes_with_the_predictions():
    index = pd.Index(["a", "b", "c"])
    form = form_of(FORMS["frame"])
    assert form.write(TRUTH.astype(bool), index).index.equals(index)


def test_sets_of_numbers_are_label_sets():
    form = form_of([{3, 7}, set(), {7}])
    assert form.classes.tolist() == [3, 7]
    assert form.write(np.array([[True, True]])) == [{3, 7}]


def test_lists_of_numbers_are_an_indicator():
    assert form_of([[0, 1], [1, 1]]).kind == "array"


def test_one_dimensional_binary_target():
    form = form_of(np.array(["no", "yes", "no"]))
    assert form.read(["yes", "no"]).toarray().ravel().tolist() == [1, 0]
    assert form.write(np.array([[True], [False]])).tolist() == ["yes", "no"]


def test_one_class_is_always_predicted():
    form = form_of(np.array([3, 3]))
    assert form.write(np.array([[True], [True]])).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        ([[0, 3]], "found 3 at row 0, column 1"),
        (sp.csr_array([[0, 0], [0, -1]]), "found -1 at row 1, column 1"),
        (np.array([[0.5, 1.0]]), "found 0.5 at row 0, column 0"),
        (np.array([[np.inf, 1.0]]), "infinity"),
        (np.zeros((0, 3)), "no rows"),
        (np.zeros((3, 0)), "no labels"),
        ([[], []], "names no label"),
        ([["a"], [1]], "several types: int, str"),
        (np.zeros((2, 2, 2)), "two dimensions"),
        ([0, 1, 2], "Only binary classification is supported"),
        (None, "None"),
        (np.array([["a", "b"]]), "must hold 0 and 1"),
        ([], "no rows"),
    ],
)
def test_bad_labels_are_named(Y, message):
    with pytest.raises(ValueError, match=message):
        form_of(Y, "Y").read(Y, "Y")


def test_unknown_names_are_named():
    with pytest.raises(ValueError, match=r"not seen in fit: \['moon'\]"):
        form_of(SETS).read([["moon"]])
    with pytest.raises(ValueError, match=r"missing \['sun'\], unknown \['moon'\]"):
        form_of(FORMS["frame"]).read(pd.DataFrame(TRUTH, columns=["sea", "sky", "moon"]))
    with pytest.raises(ValueError, match="has 2 labels, but 3"):
        form_of(TRUTH).read(TRUTH[:, :2])
    with pytest.raises(ValueError, match="classes that were not seen"):
        form_of([0, 1]).read([0, 2])


def test_a_matrix_of_strings_is_refused_or_read_as_numbers():
    Y = np.array([["0", "1", "0"], ["1", "1", "0"]])
    with pytest.raises(ValueError, match="0/1 matrix of strings"):
        form_of(Y.tolist())
    form = form_of(Y)
    assert form.read(Y).toarray().tolist() == [[0, 1, 0], [1, 1, 0]]
    assert form.write(np.array([[True, False, False]])).tolist() == [[1.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match="must hold 0 and 1"):
        form_of(np.array([["a", "b"], ["b", "c"]]))
    assert form_of([["0"], ["1"], []]).kind == "sets"
