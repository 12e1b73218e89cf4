"""Estimators over blocks of rows: a code and a model, as from arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._validation import check_number
from fbeta.blocks.checkpoint import Checkpoint
from fbeta.blocks.distributed import Distributed, is_dask
from fbeta.blocks.rows import RowBlocks
from fbeta.blocks.scan import Rows, Summary
from fbeta.blocks.solving import BlockProblems, Settings
from fbeta.blocks.source import Source, Streamed
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Learner, SolverLearner
from fbeta.statistics.codes import Code, JointCode

__all__ = ["Scanned", "fit_blocks", "open_source", "scan"]


def open_source(X: Any, y: Any = None, sample_weight: Any = None) -> Source | None:
    """Return where rows come from if they are not arrays in memory; None if they are.

    Parameters
    ----------
    X : RowBlocks, np.memmap, collection of Dask, Source, or anything else
    y, sample_weight
        For X that does not hold them itself.

    Returns
    -------
    Source or None
    """
    if isinstance(X, RowBlocks):
        if y is not None or sample_weight is not None:
            raise TypeError("the blocks hold labels and weights themselves: pass X alone")
        return Streamed(X)
    if is_dask(X):
        return Distributed(X, y, sample_weight)
    if isinstance(X, Source):
        return X
    if isinstance(X, np.memmap) and X.ndim == 2 and y is not None:
        return Streamed(RowBlocks(X, y, sample_weight))
    return None


@dataclass(frozen=True)
class Scanned:
    """A source after its first pass."""

    source: Source
    summary: Summary

    @property
    def witnesses(self) -> Indicator:
        """Label sets of every size that occurs, one of each."""
        sizes, s = self.summary.tally.sizes, self.summary.tally.n_labels
        starts = np.concatenate([[0], np.cumsum(sizes)])
        labels = np.concatenate([np.arange(size) for size in sizes])
        ones = np.ones(len(labels), np.int8)
        return sp.csr_array((ones, labels, starts), shape=(len(sizes), s))

    def rows(self) -> Rows | None:
        """Return all rows, if they fit into memory."""
        return self.source.all_rows() if self.summary.complete and self.source.local else None


def scan(source: Source, make_code: Callable[[Indicator], Code]) -> Scanned:
    """Make the first pass.

    Parameters
    ----------
    source : Source
    make_code : callable
        From an indicator to the code of an estimator.
    """
    trial = sp.csr_array(np.ones((1, source.form().n_labels), np.int8))
    return Scanned(source, source.scan(by_size=isinstance(make_code(trial), JointCode)))


def fit_blocks(
    scanned: Scanned,
    learner: Learner,
    code: Code,
    alpha: Any,
    describe: Callable[[int], str] = str,
) -> Any:
    """Fit to rows that are not in memory.

    Parameters
    ----------
    scanned : Scanned
    learner : SolverLearner
        That needs no more than sums over rows.
    code : Code
        That has sums over blocks of rows.
    alpha : float >= 0
        Strength of the penalty.
    describe : callable
        What to call a target in a warning.

    Returns
    -------
    LinearProbabilities, or CardinalityModel
    """
    settings, alpha = settings_of(learner), check_number("alpha", alpha)
    problems = BlockProblems(scanned.source, scanned.summary, code, settings)
    checkpoint = Checkpoint(
        scanned.source.checkpoint, fingerprint(scanned.summary, code, settings, [alpha])
    )
    states = problems.solve([(-1, alpha)], checkpoint)
    model = problems.model(states, -1, alpha, describe)
    checkpoint.remove()
    return wrap(learner, model)


def wrap(learner: Learner, model: Any) -> Any:
    """Return a model as the learner gives it."""
    return model.unfold() if getattr(learner, "unfold", False) else model


def settings_of(learner: Learner) -> Settings:
    """Return how a learner solves, if it can do so over blocks."""
    if not isinstance(learner, SolverLearner):
        raise TypeError(f"{type(learner).__name__} cannot be fitted to blocks of rows")
    loss = getattr(learner, "loss", None)
    return Settings(loss, learner.fit_intercept, learner.tol, learner.max_iter)


def fingerprint(summary: Summary, code: Code, settings: Settings, alphas: Any, *more: Any) -> str:
    """Return a digest of data and settings."""
    parts = (type(code).__name__, code.cardinalities.tolist(), settings, alphas, *more)
    text = f"{summary.fingerprint()} {summary.capacity} {parts}"
    return hashlib.sha256(text.encode()).hexdigest()
