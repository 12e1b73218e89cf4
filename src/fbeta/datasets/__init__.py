"""Multi-label data: file formats, named benchmarks and synthetic laws.

Every reader returns a `Dataset` or a `TableData`, or raises `DatasetError` naming the file, the
line and what was expected there.
"""

from fbeta.datasets.benchmarks import (
    CalibratedLaw,
    CalibratedSample,
    list_datasets,
    load,
    make_calibrated,
)
from fbeta.datasets.dataset import Dataset, DatasetError, join_split
from fbeta.datasets.matrix_files import read_svmlight
from fbeta.datasets.mulan import read_meka, read_mulan
from fbeta.datasets.table_encoder import TableEncoder
from fbeta.datasets.tables import TableData, read_csv, read_parquet, read_table

__all__ = [
    "CalibratedLaw",
    "CalibratedSample",
    "Dataset",
    "DatasetError",
    "TableData",
    "TableEncoder",
    "join_split",
    "list_datasets",
    "load",
    "make_calibrated",
    "read_csv",
    "read_meka",
    "read_mulan",
    "read_parquet",
    "read_svmlight",
    "read_table",
]
