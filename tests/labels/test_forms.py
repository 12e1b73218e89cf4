from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from fbeta.labels.forms import common_indicators, form_of

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
    "series of sets": pd.Series([set(s) for s in SETS]),
    "object array of lists": np.array([*SETS, None], dtype=object)[:3],
    "tuple of lists": tuple(SETS),
    "numpy strings": [np.array(s, dtype=str) for s in SETS],
    "arrow table": pa.table(dict(zip(NAMES, TRUTH.T.astype(bool), strict=True))),
    "arrow lists": pa.array(SETS),
    "chunked arrow lists": pa.chunked_array([SETS[:2], SETS[2:]]),
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
    elif isinstance(Y, np.ndarray) and Y.dtype != object:
        assert out.dtype == Y.dtype
        assert np.array_equal(out, Y)
    elif isinstance(Y, (pa.Table, pa.Array)):
        assert out.equals(Y)
    elif isinstance(Y, pa.ChunkedArray):
        assert pa.chunked_array([out]).equals(Y)
    else:
        rows = out.tolist() if isinstance(out, np.ndarray) else out
        assert rows == [row.tolist() if isinstance(row, np.ndarray) else row for row in Y]


POLARS = {
    "table": lambda pl: pl.DataFrame(TRUTH, schema=NAMES),
    "table of bools": lambda pl: pl.DataFrame(TRUTH.astype(bool), schema=NAMES),
    "lists": lambda pl: pl.Series(SETS),
    "lists of numbers": lambda pl: pl.Series([[0, 2], [], [1]]),
}


@pytest.mark.parametrize("make", POLARS.values(), ids=POLARS)
def test_polars_comes_back_as_polars(make):
    Y = make(pytest.importorskip("polars"))
    form = form_of(Y)
    assert np.array_equal(form.read(Y).toarray(), TRUTH)
    out = form.write(TRUTH.astype(bool))
    assert type(out) is type(Y)
    assert out.equals(Y)
    # empty sets do not show what they could hold
    empty = form.write(np.zeros((2, 3), bool))
    assert getattr(empty, "dtype", None) == getattr(Y, "dtype", None)


def test_columns_of_classes_come_back():
    pl = pytest.importorskip("polars")
    for y in (pl.Series(["no", "yes"]), pl.Series([0, 1]), pa.array(["no", "yes"])):
        form = form_of(y)
        assert form.kind == "single"
        assert form.read(y).toarray().ravel().tolist() == [0, 1]
        assert form.write(np.array([[False], [True]])).equals(y)


def test_columns_are_found_by_name_in_every_library():
    pl = pytest.importorskip("polars")
    form = form_of(pl.DataFrame(TRUTH, schema=NAMES))
    shuffled = [2, 0, 1]
    names = [NAMES[j] for j in shuffled]
    columns = dict(zip(names, TRUTH[:, shuffled].T, strict=True))
    for table in (pl.DataFrame(columns), pa.table(columns), pd.DataFrame(columns)):
        assert np.array_equal(form.read(table).toarray(), TRUTH)
        true, pred = common_indicators(pd.DataFrame(TRUTH, columns=NAMES), table)
        assert np.array_equal(true.toarray(), pred.toarray())


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_lists_of_numbers_of_different_lengths_are_label_sets(kind):
    Y = [kind([7, 3]), kind([]), kind([7])]
    form = form_of(Y)
    assert form.classes.tolist() == [3, 7]
    assert [type(c) for c in form.classes] == [int, int]
    assert form.read(Y).toarray().tolist() == [[1, 1], [0, 0], [0, 1]]
    # later rows may well be of one length
    assert form.read([kind([3])]).toarray().tolist() == [[1, 0]]
    assert form.write(np.array([[True, True]])) == [(3, 7) if kind is tuple else [3, 7]]


def test_labels_that_were_not_seen_have_columns_of_their_own():
    form = form_of(SETS)
    read = form.read([["moon", "sea"], ["star"]], unseen=True).toarray()
    assert read[:, :3].tolist() == [[1, 0, 0], [0, 0, 0]]
    assert sorted(map(tuple, read[:, 3:].T.tolist())) == [(0, 1), (1, 0)]
    one = form_of(np.array(["no", "no"]))
    assert one.read(["no", "yes"], unseen=True).toarray().tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="not seen in fit"):
        form_of(np.array([0, 1])).read([2], unseen=True)


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
        ([["a"], None], "row 1 of Y is None: an empty label set is \\[\\]"),
        (pd.Series([["a"], np.nan]), "row 1 of Y is nan"),
        (pd.Series([["a"], pd.NA]), "row 1 of Y is <NA>"),
        (pa.array([["a"], None]), "row 1 of Y is None"),
        ([["a"], ["b", None]], "row 1 of Y has a label that is missing"),
        ([["a"], "b"], "row 1 of Y is a string among lists: write \\['b'\\]"),
        ([["a"], 3], "row 1 of Y is not a set of labels: 3"),
        ([[["a"]], [["b"]]], "must hold 0 and 1|not a sequence of label sets|two dimensions"),
        ([[3], [7]], r"label sets of numbers are Python sets: \[set\(row\) for row in Y\]"),
        ([[0], [0, 1]], "different lengths: pass a 0/1 matrix, or Python sets"),
        (pd.DataFrame(TRUTH, columns=["a", "b", "a"]), "several columns named 'a'"),
        (pa.table([TRUTH[0], TRUTH[1]], names=["a", "a"]), "several columns named 'a'"),
        (pd.DataFrame({"tags": SETS}), r"pass the column alone, Y\['tags'\]"),
        (pd.Series(["a;b", "", "b"]), r"';' between names: .*Y.str.split\(';'\)"),
        (["a|b", "c"], r"'\|' between names"),
        (["a, b", "b"], "',' between names"),
        (["a, b", "c", "d"], "',' between names"),
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
    assert form.write(np.array([[True, False, False]])).tolist() == [["1", "0", "0"]]
    with pytest.raises(ValueError, match="must hold 0 and 1"):
        form_of(np.array([["a", "b"], ["b", "c"]]))
    assert form_of([["0"], ["1"], []]).kind == "sets"


def test_a_comma_may_belong_to_the_name_of_a_class():
    assert form_of(["yes, please", "no"]).classes.tolist() == ["no", "yes, please"]


def test_a_lazy_frame_has_to_be_collected():
    pl = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"pass Y.collect\(\)"):
        form_of(pl.LazyFrame(TRUTH, schema=NAMES))
    Y = pl.DataFrame({"a": [1, None]})
    with pytest.raises(ValueError, match="contains NaN"):
        form_of(Y).read(Y)
