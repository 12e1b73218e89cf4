"""Fits to blocks of rows: a code and a model, as from arrays, also for a path of alphas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from fbeta._validation import check_count, check_number
from fbeta.blocks.checkpoint import Checkpoint
from fbeta.blocks.distributed import Distributed, is_dask
from fbeta.blocks.problems import BlockProblems
from fbeta.blocks.rows import RowBlocks
from fbeta.blocks.source import RowSource, Streamed
from fbeta.blocks.summary import CheckedRows, Summary, random_bits
from fbeta.labels.forms import Indicator
from fbeta.linear.driver import check_requirements
from fbeta.linear.learner import Model
from fbeta.statistics.codes import Code

__all__ = ["BlockSearch", "Scanned", "deal_folds", "fit_blocks", "open_source", "scan"]

MAX_SHUFFLED_ROWS = 1 << 26  # rows up to which folds are those of arrays

Score = Callable[[Code, Model, CheckedRows], tuple[float, float]]


def open_source(X: Any, y: Any = None, sample_weight: Any = None) -> RowSource | None:
    """Return where rows come from if they are not arrays in memory; None if they are.

    X is a RowBlocks, a memory map, a collection of Dask, a RowSource, or anything else; y and
    sample_weight are for X that does not hold them itself.
    """
    if isinstance(X, RowBlocks):
        if y is not None or sample_weight is not None:
            raise TypeError("the blocks hold labels and weights themselves: pass X alone")
        return Streamed(X)
    if is_dask(X):
        return Distributed(X, y, sample_weight)
    if isinstance(X, RowSource):
        return X
    if isinstance(X, np.memmap) and X.ndim == 2 and y is not None:
        return Streamed(RowBlocks(X, y, sample_weight))
    return None


@dataclass(frozen=True)
class Scanned:
    """A source after its first pass."""

    source: RowSource
    summary: Summary

    @property
    def witnesses(self) -> Indicator:
        """Label sets of every size that occurs, one of each."""
        sizes, s = self.summary.tally.sizes, self.summary.tally.n_labels
        starts = np.concatenate([[0], np.cumsum(sizes)])
        labels = np.concatenate([np.arange(size) for size in sizes])
        ones = np.ones(len(labels), np.int8)
        return sp.csr_array((ones, labels, starts), shape=(len(sizes), s))

    def rows(self) -> CheckedRows | None:
        """Return all rows, if they fit into memory."""
        return self.source.all_rows() if self.summary.complete and self.source.local else None

    def fingerprint(self, code: Code, learner: Any, alphas: Sequence[float], cv: int) -> Any:
        """Return digests of data and parameters by what they are of."""
        own = {
            "the parameters": f"{learner!r} {list(alphas)} {cv}",
            "the code": f"{type(code).__name__} {code.cardinalities.tolist()}",
            "memory": str(self.summary.capacity),
        }
        return self.summary.fingerprint() | own


def scan(source: RowSource, learner: Any, make_code: Callable[[Indicator], Code]) -> Scanned:
    """Make the first pass, if the learner and the code of an estimator can do with blocks."""
    trial = make_code(sp.csr_array(np.ones((1, source.form().n_labels), np.int8)))
    check_requirements(BlockProblems, learner=learner, code=trial)
    return Scanned(source, source.scan(by_size=trial.by_size))


def fit_blocks(
    scanned: Scanned, learner: Any, code: Code, alpha: Any, describe: Callable[[int], str] = str
) -> Any:
    """Fit to rows that are not in memory; ``describe`` names targets in warnings."""
    alpha = check_number("alpha", alpha)
    problems = BlockProblems(scanned.source, scanned.summary, code, learner)
    mark = scanned.fingerprint(code, learner, [alpha], 0)
    checkpoint = Checkpoint(scanned.source.checkpoint, mark)
    model = problems.model(problems.solve([(-1, alpha)], checkpoint), -1, alpha, describe)
    checkpoint.remove()
    return model


def deal_folds(n: int, cv: Any) -> NDArray[np.int16]:
    """Return the fold that holds each of n rows out.

    The folds of a number are those that :class:`fbeta.AlphaSearchCV` makes of arrays, as long as a
    permutation of the rows is cheap.
    """
    if not isinstance(cv, Integral):
        raise ValueError(f"for blocks of rows cv must be a number of folds, got {cv!r}")
    folds = check_count("cv", cv, low=2)
    if n > MAX_SHUFFLED_ROWS:
        return (random_bits(np.arange(n, dtype=np.uint64), 7) % np.uint64(folds)).astype(np.int16)
    out = np.zeros(n, np.int16)
    for fold, (_, test) in enumerate(KFold(folds, shuffle=True, random_state=0).split(out)):
        out[test] = fold
    return out


class BlockSearch:
    """The problems of all folds (``cv`` of them) and alphas over the rows of a source."""

    def __init__(
        self, scanned: Scanned, learner: Any, code: Code, alphas: Sequence[float], cv: Any
    ) -> None:
        self.source, self.code, self.alphas = scanned.source, code, list(alphas)
        self.folds = deal_folds(self.source.n_rows(), cv)
        self.count = int(self.folds.max()) + 1
        tallies = self.source.tallies(self.folds)
        self.problems = BlockProblems(
            self.source, scanned.summary, code, learner, self.folds, tallies
        )
        path, mark = self.source.checkpoint, partial(scanned.fingerprint, code, learner)
        search = None if path is None else f"{path}.search"
        self.search_checkpoint = Checkpoint(search, mark(self.alphas, self.count))
        self.final_path, self.mark = path, mark

    def scores(self, score: Score) -> NDArray[np.float64]:
        """Fit every alpha on every fold, and return its mean score on the rows held out.

        ``score`` goes from a code, a model and rows to the sum of their scores, and of their
        weights. The scores have the shape (number of alphas, number of folds).
        """
        wanted = [(fold, alpha) for fold in range(self.count) for alpha in self.alphas]
        states = self.problems.solve(wanted, self.search_checkpoint)
        models = {job: self.problems.model(states, *job, str) for job in wanted}
        work = partial(score_rows, code=self.code, models=models, score=score)
        sums = np.asarray(sum(self.source.over(work, self.folds)))
        means = sums[..., 0] / np.maximum(sums[..., 1], 1e-300)
        return np.asarray(means).reshape(self.count, len(self.alphas)).T

    def fit(self, alpha: float, describe: Callable[[int], str]) -> Any:
        """Fit to all rows."""
        checkpoint = Checkpoint(self.final_path, self.mark([alpha], 0))
        states = self.problems.solve([(-1, alpha)], checkpoint)
        model = self.problems.model(states, -1, alpha, describe)
        checkpoint.remove()
        self.search_checkpoint.remove()
        return model


def score_rows(
    rows: CheckedRows,
    folds: NDArray[Any],
    code: Code,
    models: dict[tuple[int, float], Any],
    score: Score,
) -> NDArray[np.float64]:
    """Return sums of scores and weights of a block, for each fold and alpha."""
    out = np.zeros((len(models), 2))
    for at, ((fold, _), model) in enumerate(models.items()):
        own = np.flatnonzero(folds == fold)
        if len(own):
            out[at] = score(code, model, rows.take(own))
    return out
