"""What is said when an optional dependency is not installed."""

from __future__ import annotations

import sys

import pytest

from fbeta.datasets import load, read_csv, read_parquet

EXTRA = r" needs the package '{}', which is not installed: pip install \"fbeta\[data\]\"$"


@pytest.mark.parametrize("module", ["pandas", "pyarrow"])
def test_parquet(write, monkeypatch, module: str) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="^reading Parquet files" + EXTRA.format(module)):
        read_parquet(write("toy.parquet", ""), labels=["y"])


def test_pooch(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    expected = "^loading yeast without a data folder" + EXTRA.format("pooch")
    with pytest.raises(ImportError, match=expected):
        load("yeast", data_home=tmp_path)


def test_csv_needs_arrow(write, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="^reading CSV files" + EXTRA.format("pyarrow")):
        read_csv(write("toy.csv", "x,y\n1,1\n"), labels=["y"])
