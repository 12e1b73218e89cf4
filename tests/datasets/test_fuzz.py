"""Whatever a file holds, a reader returns a valid data set or raises DatasetError."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from fbeta.datasets import (
    Dataset,
    DatasetError,
    read_csv,
    read_meka,
    read_mulan,
    read_svmlight,
)

DENSE = """@relation 'toy: -C 2'
@attribute A {0,1}
@attribute B {1,0}
@attribute size numeric
@attribute 'the \\'colour\\'' {red,'dark green',blue}
@data
1,0,1.5,'dark green'
0,1,?,red
% comment
1,1,-2e3,blue
"""
SPARSE = DENSE[: DENSE.index("@data") + 6] + "{0 1,1 0,2 1.5,3 blue}\n{}\n{2 ?, 3 'dark green'}\n"
XML = (
    '<?xml version="1.0" encoding="utf-8"?>\n<labels><label name="A"/>\n<label name="B"/></labels>'
)
CSV = 'size,y_a,"col,our",y_b,tags\n1.5,1,2,0,u;v\n-2e3,0,,1,\n"3",1,"4",1,v\n'
SVM = "1,2 1:0.5 3:2 # comment\n 2:1e-3\n7 1:4 2:-5\n"

few = settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PIECES = st.one_of(
    st.text(max_size=6),
    st.sampled_from(list("'\"\\{},%?:;#@-0129 \n\r\t_<>/\0\ufeff")),
    st.sampled_from(["@data", "@attribute", "nan", "inf", "1e999", "99999999999", "{0 1}", "\\'"]),
)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """Cut, insert and repeat at a few random places of a valid file."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.sampled_from([0, 0, 1, 2, 10])))
        kept = text[start:stop] * draw(st.sampled_from([0, 1, 2]))
        text = text[:start] + draw(PIECES) + kept + text[stop:]
    return text


def check(read: Callable[[], Dataset]) -> None:
    try:
        data = read()
    except DatasetError:
        return
    assert data.Y.dtype == np.int8
    assert data.Y.shape == (data.n_samples, len(data.label_names))
    assert set(np.unique(data.Y)) <= {0, 1}
    assert data.n_samples > 0
    assert data.n_labels > 0
    assert data.n_features > 0
    values = data.X.data if sparse.issparse(data.X) else data.X
    assert np.isfinite(values).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize("missing", ["error", "mean"])
@few
@given(
    text=st.one_of(st.text(), mutated(DENSE), mutated(SPARSE), mutated(DENSE.replace("?", "0"))),
    nominal=st.booleans(),
)
def test_arff(folder: Path, missing: str, text: str, nominal: bool) -> None:
    path, xml = put(folder, "a.arff", text), put(folder, "a.xml", XML)
    kind = "onehot" if nominal else "codes"
    check(lambda: read_mulan(path, xml, missing=missing, nominal=kind))
    check(lambda: read_meka(path, missing=missing, nominal=kind))


@few
@given(rows=st.lists(st.lists(PIECES, max_size=6).map("".join), min_size=1, max_size=4))
def test_arff_rows(folder: Path, rows: list[str]) -> None:
    text = DENSE[: DENSE.index("@data") + 6] + "\n".join(rows)
    path, xml = put(folder, "a.arff", text), put(folder, "a.xml", XML)
    check(lambda: read_mulan(path, xml, missing="mean"))


@few
@given(text=st.one_of(st.text(), mutated(XML)))
def test_xml(folder: Path, text: str) -> None:
    path, xml = put(folder, "a.arff", SPARSE), put(folder, "a.xml", text)
    check(lambda: read_mulan(path, xml, missing="mean"))


@few
@given(text=st.one_of(st.text(), mutated(CSV)))
def test_csv(folder: Path, text: str) -> None:
    path = put(folder, "a.csv", text)
    check(lambda: read_csv(path, label_prefix="y_", missing="mean", drop=["tags"]))
    check(lambda: read_csv(path, labels=["y_b", "y_a"], drop=["tags"]))
    check(lambda: read_csv(path, label_column="tags", missing="mean"))


@few
@given(text=st.one_of(st.text(), mutated(SVM)), zero_based=st.sampled_from(["auto", True, False]))
def test_svmlight(folder: Path, text: str, zero_based: bool) -> None:
    path = put(folder, "a.svm", text)
    check(lambda: read_svmlight(path, zero_based=zero_based))
    check(lambda: read_svmlight(path, zero_based=zero_based, n_features=3))


@few
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes(folder: Path, content: bytes) -> None:
    path, xml = folder / "a.bin", put(folder, "a.xml", XML)
    path.write_bytes(content)
    check(lambda: read_mulan(path, xml))
    check(lambda: read_mulan(put(folder, "a.arff", DENSE), path))
    check(lambda: read_csv(path, label_column="tags"))
    check(lambda: read_svmlight(path))
