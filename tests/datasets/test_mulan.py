from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse

from fbeta.datasets import DatasetError, join_split, read_meka, read_mulan

XML = '<?xml version="1.0"?>\n<labels>\n<label name="A"/>\n<label name="B"/>\n</labels>\n'
HEADER = """% a comment
@RELATION toy

@ATTRIBUTE size NUMERIC
@attribute colour {red, 'dark green', blue}
@attribute A {0,1}
@attribute\tB {1,0}
@attribute age real
@Data
"""
DENSE = HEADER + "1.5,'dark green',1,0,3\n% between\n\n-2e1, red ,0, 1,.5\n0,blue,1,1,7\n"
SPARSE = HEADER + "{0 1.5,1 'dark green', 2 1,3 0, 4 3}\n{4 .5,0 -2e1}\n{ }\n"


def message(error: pytest.ExceptionInfo[DatasetError]) -> str:
    return str(error.value)


def test_dense(write) -> None:
    data = read_mulan(write("toy.arff", DENSE), write("toy.xml", XML))
    assert isinstance(data.X, np.ndarray)
    np.testing.assert_array_equal(data.X, [[1.5, 1, 3], [-20, 0, 0.5], [0, 2, 7]])
    assert data.Y.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert data.feature_names == ("size", "colour", "age")
    assert data.label_names == ("A", "B")
    assert data.name == "toy"
    assert data.train is None


def test_sparse_leaves_out_zero_or_the_first_declared_value(write) -> None:
    data = read_mulan(write("toy.arff", SPARSE), write("toy.xml", XML), name="other")
    assert isinstance(data.X, sparse.csr_array)
    np.testing.assert_array_equal(data.X.toarray(), [[1.5, 1, 3], [-20, 0, 0.5], [0, 0, 0]])
    # B is declared {1,0}: a row that does not list it has label B.
    assert data.Y.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert data.name == "other"


@pytest.mark.parametrize("text", [DENSE, SPARSE])
def test_onehot(write, text: str) -> None:
    paths = write("toy.arff", text), write("toy.xml", XML)
    codes = read_mulan(*paths)
    data = read_mulan(*paths, nominal="onehot")
    assert data.feature_names == ("size", "colour=red", "colour=dark green", "colour=blue", "age")
    dense, plain = (x.toarray() if sparse.issparse(x) else x for x in (data.X, codes.X))
    np.testing.assert_array_equal(dense[:, [0, 4]], plain[:, [0, 2]])
    np.testing.assert_array_equal(dense[:, 1:4].argmax(axis=1), plain[:, 1])
    np.testing.assert_array_equal(dense[:, 1:4].sum(axis=1), 1)


def test_a_question_mark_in_quotes_is_a_value(write) -> None:
    text = "@attribute q {no,'?'}\n@attribute A {0,1}\n@data\n'?',1\n no , 0\n?,1\n"
    xml = write("toy.xml", '<labels><label name="A"/></labels>')
    data = read_mulan(write("toy.arff", text), xml, missing="nan")
    np.testing.assert_array_equal(data.X, [[1], [0], [np.nan]])


def test_onehot_keeps_one_column_for_two_values(write) -> None:
    text = "@attribute flag {no,yes}\n@attribute A {0,1}\n@data\nyes,0\nno,1\n"
    xml = write("toy.xml", '<labels><label name="A"/></labels>')
    data = read_mulan(write("toy.arff", text), xml, nominal="onehot")
    assert data.feature_names == ("flag",)
    assert data.X.tolist() == [[1], [0]]


def test_label_order_is_that_of_the_arff_file(write) -> None:
    swapped = '<labels><label name="B"/><label name="A"/></labels>'
    data = read_mulan(write("toy.arff", DENSE), write("toy.xml", swapped))
    assert data.label_names == ("A", "B")


def test_nested_labels_with_a_namespace(write) -> None:
    nested = (
        '<labels xmlns="http://mulan.sourceforge.net/labels">\n'
        '<label name="A"><label name="B"></label></label></labels>'
    )
    data = read_mulan(write("toy.arff", DENSE), write("toy.xml", nested))
    assert data.label_names == ("A", "B")


def test_escaped_names(write) -> None:
    text = (
        "@attribute 'it\\'s \\\"x\\\" 100\\%' numeric\n"
        '@attribute "two words" numeric\n'
        "@attribute bare\\~name numeric\n"
        "@attribute 'Swainson\\'s Thrush' {0,1}\n"
        "@data\n1,2,3,1\n"
    )
    xml = write("toy.xml", '<labels><label name="Swainson\'s Thrush"/></labels>')
    data = read_mulan(write("toy.arff", text), xml)
    assert data.feature_names == ('it\'s "x" 100%', "two words", "bare\\~name")
    assert data.label_names == ("Swainson's Thrush",)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_and_byte_order_mark(write, end: str) -> None:
    path = write("toy.arff", "\ufeff" + DENSE.replace("\n", end))
    data = read_mulan(path, write("toy.xml", XML))
    np.testing.assert_array_equal(data.X[:, 0], [1.5, -20, 0])


def test_numeric_labels(write) -> None:
    text = "@attribute x numeric\n@attribute A numeric\n@data\n4,1\n5,0.0\n"
    xml = write("toy.xml", '<labels><label name="A"/></labels>')
    assert read_mulan(write("toy.arff", text), xml).Y.tolist() == [[1], [0]]


def test_encoding(write, tmp_path) -> None:
    path = tmp_path / "toy.arff"
    path.write_bytes("@attribute é numeric\n@attribute A {0,1}\n@data\n1,1\n".encode("latin-1"))
    xml = write("toy.xml", '<labels><label name="A"/></labels>')
    assert read_mulan(path, xml, encoding="latin-1").feature_names == ("é",)
    with pytest.raises(DatasetError) as error:
        read_mulan(path, xml)
    assert message(error).startswith(f"{path}, line 1: expected utf-8 text, found b'\\xe9")


GAPS = HEADER + "1,red,0,0,?\n3,?,1,0,4\n5,blue,1,1,6\n,blue,0,0,?\n"
SPARSE_GAPS = HEADER + "{0 ?,3 0}\n{0 3,1 ?,3 0}\n{1 blue}\n{1 blue}\n"


@pytest.mark.parametrize(("text", "line", "name"), [(GAPS, 10, "age"), (SPARSE_GAPS, 10, "size")])
def test_missing_is_an_error(write, text: str, line: int, name: str) -> None:
    path = write("toy.arff", text)
    with pytest.raises(DatasetError) as error:
        read_mulan(path, write("toy.xml", XML))
    expected = f"{path}, line {line}: expected a value for attribute {name!r}"
    assert message(error).startswith(expected)


def test_missing_nan(write) -> None:
    nan = np.nan
    xml = write("toy.xml", XML)
    data = read_mulan(write("toy.arff", GAPS), xml, missing="nan")
    np.testing.assert_array_equal(data.X, [[1, 0, nan], [3, nan, 4], [5, 2, 6], [nan, 2, nan]])
    data = read_mulan(write("toy.arff", GAPS), xml, missing="nan", nominal="onehot")
    np.testing.assert_array_equal(data.X[1], [3, nan, nan, nan, 4])
    data = read_mulan(write("toy.arff", SPARSE_GAPS), xml, missing="nan")
    np.testing.assert_array_equal(data.X.toarray()[:2], [[nan, 0, 0], [3, nan, 0]])


def test_missing_mean_is_that_of_the_training_part(write) -> None:
    xml = write("toy.xml", XML)
    data = read_mulan(write("toy.arff", GAPS), xml, missing="mean")
    np.testing.assert_array_equal(data.X, [[1, 0, 5], [3, 2, 4], [5, 2, 6], [3, 2, 5]])
    test = write("test.arff", HEADER + "100,red,0,0,100\n?,?,0,0,?\n")
    data = read_mulan(write("toy.arff", GAPS), xml, test=test, missing="mean")
    np.testing.assert_array_equal(data.X_test[1], [3, 2, 5])
    sparse_data = read_mulan(write("toy.arff", SPARSE_GAPS), xml, missing="mean")
    np.testing.assert_array_equal(sparse_data.X.toarray()[:2], [[1, 0, 0], [3, 2, 0]])


def test_mean_of_nothing(write) -> None:
    path = write("toy.arff", HEADER + "?,red,0,0,1\n")
    with pytest.raises(DatasetError) as error:
        read_mulan(path, write("toy.xml", XML), missing="mean")
    assert message(error).startswith(f"{path}, line 4: expected at least one value of attribute")


def test_train_and_test(write) -> None:
    train, test = write("a.arff", DENSE), write("b.arff", HEADER + "9,red,1,1,9\n")
    data = read_mulan(train, write("toy.xml", XML), test=test)
    assert repr(data) == "Dataset('a', 4 samples, 3 features, 2 labels, 3 train + 1 test)"
    assert data.X_test.tolist() == [[9, 0, 9]]


@pytest.mark.parametrize(
    ("old", "new", "place", "expected"),
    [
        ("size", "weight", "line 4", "attribute 'size' declared as in line 4 of"),
        ("{red, 'dark green', blue}", "{blue,red}", "line 5", "attribute 'colour' declared as"),
        ("@attribute age real\n", "", "line 8", "5 attributes as in"),
        ("@Data", "@attribute more real\n@Data", "line 10", "5 attributes as in"),
    ],
)
def test_train_and_test_must_agree(write, old: str, new: str, place: str, expected: str) -> None:
    row = "{0 1}\n"
    train = write("a.arff", HEADER + row)
    test = write("b.arff", HEADER.replace(old, new) + row)
    with pytest.raises(DatasetError) as error:
        read_mulan(train, write("toy.xml", XML), test=test)
    assert message(error).startswith(f"{test}, {place}: expected {expected}")


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, "@data before the end"),
        ("@relation a\n@attribute x real\n", 3, "@data before the end"),
        ("@relation a\n@data\n1\n", 2, "an @attribute before @data"),
        ("hello\n", 1, "@relation, @attribute or @data, found 'hello'"),
        ("@attribute 'x real\n@data\n1\n", 1, "an attribute name, in quotes"),
        ("@attribute\n@data\n1\n", 1, "an attribute name"),
        ("@attribute x string\n@data\n1\n", 1, "type numeric, real, integer or {value,...}"),
        ("@attribute x\n@data\n1\n", 1, "type numeric, real, integer or {value,...}"),
        ("@attribute x {a,b\n@data\na\n", 1, "nominal values as {value,value,...}"),
        ("@attribute x {}\n@data\na\n", 1, "nominal values as {value,value,...}"),
        ("@attribute x {a b}\n@data\na\n", 1, "nominal values as {value,value,...}"),
        ("@attribute x {a,b} c\n@data\na\n", 1, "nothing after the nominal values"),
        ("@attribute x {a,a}\n@data\na\n", 1, "each nominal value once"),
        ("@attribute x real\n@attribute x real\n@data\n", 2, "a name other than that of line 1"),
        (HEADER, 10, "at least one row after @data"),
        (HEADER + "1,red,0,0\n", 10, "5 values separated by commas, found '1,red,0,0'"),
        (HEADER + "1,red,0,0,1\n\n1,red,0,0,1,2\n", 12, "5 values separated by commas"),
        (HEADER + "1,'red,0,0,1\n", 10, "5 values separated by commas"),
        (HEADER + "1,'r\\qed',0,0,1\n", 10, "5 values separated by commas"),
        (HEADER + "1,red,0,0,1\nx,red,0,0,1\n", 11, "a finite number for attribute 'size'"),
        (HEADER + "1_0,red,0,0,1\n", 10, "a finite number for attribute 'size', found '1_0'"),
        (HEADER + "inf,red,0,0,1\n", 10, "a finite number for attribute 'size', found 'inf'"),
        (HEADER + "nan,red,0,0,1\n", 10, "a finite number for attribute 'size', found 'nan'"),
        (HEADER + "1e999,red,0,0,1\n", 10, "a finite number for attribute 'size'"),
        (HEADER + "1,pink,0,0,1\n", 10, "one of ['red', 'dark green', 'blue'] for attribute"),
        (HEADER + "1,red,2,0,1\n", 10, "one of ['0', '1'] for attribute 'A', found '2'"),
        (HEADER + "1,red,?,0,1\n", 10, "0 or 1 for label 'A', found '?'"),
        (HEADER + "1,red,0,0,1\n{0 1}\n", 11, "a dense row like the first"),
        (HEADER + "{0 1}\n1,red,0,0,1\n", 11, "a sparse row {column value, ...} like the first"),
        (HEADER + "{0 1}\n{5 1}\n", 11, "{column value, ...} with columns from 0 to 4"),
        (HEADER + "{0 1}\n{9 ?}\n", 11, "{column value, ...} with columns from 0 to 4"),
        (HEADER + "{0 1\n", 10, "{column value, ...} with columns from 0 to 4"),
        (HEADER + "{0 1,}\n", 10, "{column value, ...} with columns from 0 to 4"),
        (HEADER + "{0}\n", 10, "{column value, ...} with columns from 0 to 4"),
        (HEADER + "{-1 3}\n", 10, "{column value, ...} with columns from 0 to 4"),
        (HEADER + "{0 1,1 blue,0 2}\n", 10, "each column once in a row"),
        (HEADER + "{0 1}\n{0 y}\n", 11, "a finite number for attribute 'size', found 'y'"),
        (HEADER + "{0 1}\n{2 ?}\n", 11, "0 or 1 for label 'A', found '?'"),
        (HEADER.replace("A {0,1}", "A {n,y}") + "{}\n", 6, "label 'A' declared as {0,1}"),
        (HEADER.replace("A {0,1}", "A real") + "1,red,3,0,1\n", 10, "0 or 1 for label 'A'"),
    ],
)
def test_broken_arff(write, text: str, line: int, expected: str) -> None:
    path = write("toy.arff", text)
    with pytest.raises(DatasetError) as error:
        read_mulan(path, write("toy.xml", XML))
    assert message(error).startswith(f"{path}, line {line}: expected {expected}")


def test_bad_row_beyond_the_first_block(write) -> None:
    good = "1,red,0,0,1\n" * 5000
    path = write("toy.arff", HEADER + good + "1,red,0,0,z\n")
    with pytest.raises(DatasetError, match=r"line 5010: expected a finite number .*'age'.*'z'"):
        read_mulan(path, write("toy.xml", XML))


@pytest.mark.parametrize(
    ("xml", "line", "expected"),
    [
        ("", 1, "well-formed XML, found 'no element found'"),
        ('<labels>\n<label name="A">\n</labels>', 3, "well-formed XML, found 'mismatched tag'"),
        ('<labels><label name="A"/></labels>\nmore', 2, "well-formed XML"),
        ("<names>\n</names>", 1, "<labels>, found '<names>'"),
        ('<labels>\n<tag name="A"/></labels>', 2, "<label>, found '<tag>'"),
        ("<labels>\n\n<label/></labels>", 3, '<label name="...">'),
        ('<labels>\n<label name=""/></labels>', 2, '<label name="...">'),
        ('<labels><label name="A"/>\n<label name="A"/></labels>', 2, "a name other than that"),
        ('<labels><label name="A"/>\n<label name="C"/></labels>', 2, "the name of an attribute"),
        ('<?xml version="1.0" encoding="none"?><labels/>', 1, ""),
    ],
)
def test_broken_xml(write, xml: str, line: int, expected: str) -> None:
    path = write("toy.xml", xml)
    with pytest.raises(DatasetError) as error:
        read_mulan(write("toy.arff", DENSE), path)
    assert message(error).startswith(f"{path}, line {line}: expected {expected}")


def test_xml_without_labels(write) -> None:
    path = write("toy.xml", "<labels/>")
    with pytest.raises(DatasetError, match=re.escape(f"{path}: expected at least one <label>")):
        read_mulan(write("toy.arff", DENSE), path)


def test_no_features(write) -> None:
    path = write("toy.arff", "@attribute A {0,1}\n@data\n1\n")
    xml = write("toy.xml", '<labels><label name="A"/></labels>')
    with pytest.raises(DatasetError, match="at least one attribute that is not a label"):
        read_mulan(path, xml)


def test_absent_file_and_unknown_options(write, tmp_path) -> None:
    xml = write("toy.xml", XML)
    with pytest.raises(FileNotFoundError):
        read_mulan(tmp_path / "absent.arff", xml)
    with pytest.raises(ValueError, match="nominal must be one of"):
        read_mulan(write("toy.arff", DENSE), xml, nominal="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="missing must be one of"):
        read_mulan(write("toy.arff", DENSE), xml, missing="zero")  # type: ignore[arg-type]


def meka(relation: str) -> str:
    names = "".join(f"@attribute {name} {{0,1}}\n" for name in "abcd")
    return f"@relation {relation}\n{names}@data\n1,0,0,1\n0,1,0,0\n"


@pytest.mark.parametrize(
    ("relation", "labels", "features"),
    [
        ("'toy: -C 1'", "a", "bcd"),
        ("'toy: -C -1'", "d", "abc"),
        ('"toy: -C 3 -split-number 10"', "abc", "d"),
        ("'toy: -c -2'", "cd", "ab"),
        ("'it\\'s: -C 2'", "ab", "cd"),
    ],
)
def test_meka(write, relation: str, labels: str, features: str) -> None:
    data = read_meka(write("toy.arff", meka(relation)))
    assert data.label_names == tuple(labels)
    assert data.feature_names == tuple(features)
    table = np.array([[1, 0, 0, 1], [0, 1, 0, 0]])
    np.testing.assert_array_equal(data.Y, table[:, ["abcd".index(name) for name in labels]])
    np.testing.assert_array_equal(data.X, table[:, ["abcd".index(name) for name in features]])


def test_meka_number_of_labels_by_argument(write) -> None:
    path = write("toy.arff", meka("toy"))
    assert read_meka(path, n_labels=-2).label_names == ("c", "d")
    data = read_meka(path, n_labels=2, test=write("b.arff", meka("other")))
    assert data.n_samples == 4


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        (
            "toy",
            "the number of labels as -C in @relation (or as an option; Mulan's files come with",
        ),
        ("'toy: -C'", "the number of labels as -C in @relation"),
        ("'toy: -C x'", "the number of labels as -C in @relation"),
        ("'toy: -C 0'", "a number of labels from 1 to 3 (negative if they come last), found 0"),
        ("'toy: -C 4'", "a number of labels from 1 to 3"),
        ("'toy: -C -5'", "a number of labels from 1 to 3"),
    ],
)
def test_broken_meka(write, relation: str, expected: str) -> None:
    path = write("toy.arff", "% first\n" + meka(relation))
    with pytest.raises(DatasetError) as error:
        read_meka(path)
    assert message(error).startswith(f"{path}, line 2: expected {expected}")


def test_parts_that_declare_nominal_values_in_another_order_are_not_joined(write) -> None:
    xml, turned = (
        write("toy.xml", XML),
        DENSE.replace("{red, 'dark green', blue}", "{blue,red,'dark green'}"),
    )
    train, test = read_mulan(write("a.arff", DENSE), xml), read_mulan(write("b.arff", turned), xml)
    assert train.declared == {"size": None, "colour": ("red", "dark green", "blue"), "age": None}
    assert join_split(train, train).declared == train.declared
    with pytest.raises(DatasetError, match="declare the values of nominal features differently"):
        join_split(train, test)
