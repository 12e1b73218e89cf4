"""CSV text as columns, against the csv module of Python."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbeta.datasets import csv_text

pytest.importorskip("pyarrow")

CELLS = st.text(st.sampled_from('ab,"\n\r '), max_size=6).map(lambda text: f"a{text}")


@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=40),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.sampled_from([16, 64, 2**22]),
)
def test_columns_are_those_of_the_csv_module(rows, quoting, size) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=quoting, lineterminator="\r\n").writerows(rows)
    with pytest.MonkeyPatch.context() as patch:
        # cells with line ends lie across the blocks that Arrow reads
        patch.setattr(csv_text, "_ARROW_BLOCK_BYTES", size)
        patch.setattr(csv_text, "_SCAN_BYTES", 7)
        columns, place = csv_text.csv_columns(Path("a.csv"), out.getvalue().encode(), ",", 2, 1)
    assert list(zip(*(c.to_pylist() for c in columns), strict=True)) == rows
    lines = csv.reader(io.StringIO(out.getvalue(), newline=""))
    starts = [1, *(lines.line_num + 1 for _ in lines)]
    assert [place(row) for row in range(len(rows))] == starts[:-1]
