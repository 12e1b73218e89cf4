"""Predictions of blocks: lazy collections of Dask, and blocks that are written one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._array import optional_import
from fbeta._files import make_folder, write_atomically
from fbeta.blocks.distributed import chunks_of, is_dask
from fbeta.blocks.reading import check_features
from fbeta.blocks.rows import RowBlocks
from fbeta.labels.forms import LabelForm
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["BlockResults", "DaskStatistics", "answer", "is_blocks"]


def is_blocks(X: Any) -> bool:
    """Tell whether X is asked about block by block."""
    return isinstance(X, RowBlocks) or is_dask(X)


def answer(work: Callable[[Any], Any], X: Any, kind: str, form: LabelForm) -> Any:
    """Return what a fitted estimator says of each block of X, computed when it is asked for.

    ``work`` goes from rows of X to the answer; ``kind`` is "labels", "matrix", "vector" or
    "statistics": label sets, (n, s) or (n,) numbers, or label statistics.
    """
    if isinstance(X, RowBlocks):
        return BlockResults(work, X)
    dask = optional_import("dask", "dask", "predictions for collections of Dask")
    ask = dask.delayed(partial(_ask, work), pure=False, traverse=False)
    parts = [ask(part) for part in chunks_of(X)]
    if kind == "statistics":
        return DaskStatistics(parts)
    if kind == "labels" and form.kind in ("sets", "frame"):
        return _labels(parts, X, form)
    return _array(parts, X, kind, form)


def _ask(work: Callable[[Any], Any], X: Any) -> Any:
    """Ask about a chunk, which may have no rows: then about one that is left out again."""
    if X.shape[0]:
        return work(X)
    if hasattr(X, "iloc"):
        return work(X.reindex([0], fill_value=0)).iloc[:0]
    found = work(np.zeros((1, X.shape[1])))
    return None if isinstance(found, LabelStatistics) else found[:0]


def _labels(parts: list[Any], X: Any, form: LabelForm) -> Any:
    if form.kind == "sets":
        return optional_import("dask.bag", "dask", "label sets in Dask").from_delayed(parts)
    frames = optional_import("dask.dataframe", "dask", "frames of Dask")
    meta = form.write(np.zeros((0, form.n_labels), np.bool_))
    return frames.from_delayed(parts, meta=meta, verify_meta=False)


def _array(parts: list[Any], X: Any, kind: str, form: LabelForm) -> Any:
    arrays = optional_import("dask.array", "dask", "arrays of Dask")
    lengths = X.chunks[0] if hasattr(X, "chunks") else (np.nan,) * len(parts)
    width: tuple[int, ...] = (form.n_labels,)
    meta: Any = np.zeros((0, form.n_labels))
    if kind == "matrix" and form.kind == "single":
        width = (len(form.classes),)
        meta = np.zeros((0, *width))
    elif kind == "labels":
        meta = form.write(np.zeros((0, form.n_labels), np.bool_))
        width = width if meta.ndim == 2 else ()
    elif kind == "vector":
        width, meta = (), np.zeros(0)
    pieces = [
        arrays.from_delayed(part, shape=(length, *width), meta=meta)
        for part, length in zip(parts, lengths, strict=True)
    ]
    return arrays.concatenate(pieces, axis=0, allow_unknown_chunksizes=True)


class DaskStatistics:
    """Label statistics of the rows of a Dask collection, which are computed when asked for.

    Parameters
    ----------
    parts : list of Delayed
        :class:`fbeta.LabelStatistics` of each chunk of rows.
    """

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **options: Any) -> Any:
        return graph  # there is nothing to be saved in it

    def __len__(self) -> int:
        return len(self.parts)

    def __dask_graph__(self) -> Any:
        merge = optional_import("dask.highlevelgraph", "dask", "statistics in Dask")
        return merge.HighLevelGraph.merge(*[part.__dask_graph__() for part in self.parts])

    def __dask_keys__(self) -> list[Any]:
        return [key for part in self.parts for key in part.__dask_keys__()]

    def __dask_postcompute__(self) -> tuple[Any, tuple[()]]:
        return _concatenate, ()

    def __dask_postpersist__(self) -> tuple[Any, tuple[Any, ...]]:
        return _rebuild_statistics, (self.__dask_keys__(),)

    @property
    def __dask_scheduler__(self) -> Any:
        return type(self.parts[0]).__dask_scheduler__

    def compute(self, **options: Any) -> LabelStatistics:
        """Return the statistics of all rows."""
        dask = optional_import("dask", "dask", "statistics in Dask")
        return dask.compute(self, **options)[0]  # type: ignore[no-any-return]

    def persist(self, **options: Any) -> DaskStatistics:
        """Compute the statistics where the rows are, and keep them there."""
        dask = optional_import("dask", "dask", "statistics in Dask")
        return DaskStatistics(list(dask.persist(*self.parts, **options)))


def _concatenate(parts: Any) -> LabelStatistics:
    return LabelStatistics.concatenate([part for part in parts if part is not None])


def _rebuild_statistics(graph: Any, keys: list[Any], **_: Any) -> DaskStatistics:
    delayed = optional_import("dask.delayed", "dask", "statistics in Dask")
    return DaskStatistics([delayed.Delayed(key, graph) for key in keys])


class BlockResults:
    """Answers of a fitted estimator for :class:`RowBlocks`: made block by block, when iterated.

    Parameters
    ----------
    work : callable
        From rows of X to the answer.
    blocks : RowBlocks
        With or without labels.
    """

    def __init__(self, work: Callable[[Any], Any], blocks: RowBlocks) -> None:
        self.work, self.blocks = work, blocks

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks.blocks():
            X = block.X if hasattr(block.X, "iloc") else check_features(block, None)
            yield self.work(X)

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write each block to a file of its own, and return the paths.

        Arrays become ``part-000000.npy``, sparse matrices ``.npz``, frames ``.parquet`` and label
        sets ``.jsonl``. The folder is made; each file is written whole or not at all.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        make_folder(folder)
        paths = []
        for number, values in enumerate(self):
            paths.append(_save(values, Path(folder) / f"part-{number:06d}"))
        return paths

    def to_parquet(self, path: str | PathLike[str]) -> Path:
        """Write all blocks to one Parquet file, whole or not at all, and return its path.

        Columns of arrays are called by their numbers, lists of names are the column ``labels``.
        """
        arrow = optional_import("pyarrow", "data", "writing Parquet files")
        parquet = optional_import("pyarrow.parquet", "data", "writing Parquet files")
        with write_atomically(path) as part:
            writer = None
            for values in self:
                table = _arrow_table(arrow, values)
                if writer is None:
                    writer = parquet.ParquetWriter(part, table.schema)
                writer.write_table(table.cast(writer.schema))
            if writer is not None:
                writer.close()
        return Path(path)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the answers for all rows as one array."""
        blocks = [v.toarray() if sp.issparse(v) else np.asarray(v) for v in self]
        return np.concatenate(blocks).astype(dtype) if dtype else np.concatenate(blocks)


def _arrow_table(arrow: Any, values: Any) -> Any:
    if hasattr(values, "iloc"):
        return arrow.Table.from_pandas(values, preserve_index=False)
    if isinstance(values, list):
        return arrow.table({"labels": arrow.array([sorted(row) for row in values])})
    columns = np.atleast_2d((values.toarray() if sp.issparse(values) else values).T)
    return arrow.table({str(j): column for j, column in enumerate(columns)})


def _save(values: Any, stem: Path) -> Path:
    if hasattr(values, "to_parquet"):
        path = stem.with_suffix(".parquet")
        with write_atomically(path) as part:
            values.to_parquet(part)
    elif sp.issparse(values):
        path = stem.with_suffix(".npz")
        with write_atomically(path) as part:
            sp.save_npz(part, values)
    elif isinstance(values, np.ndarray):
        path = stem.with_suffix(".npy")
        with write_atomically(path) as part:
            np.save(part, values, allow_pickle=False)
    elif isinstance(values, list):
        import json

        path = stem.with_suffix(".jsonl")
        with write_atomically(path) as part:
            part.write_text("".join(json.dumps(sorted(row)) + "\n" for row in values), "utf-8")
    else:
        raise TypeError(f"there is no format for blocks of {type(values).__name__}")
    return path
