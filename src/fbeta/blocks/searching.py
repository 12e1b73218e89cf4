"""Cross-validation over blocks of rows: all folds and strengths share each pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from fbeta._validation import check_count
from fbeta.blocks.checkpoint import Checkpoint
from fbeta.blocks.fitting import Scanned, fingerprint, settings_of, wrap
from fbeta.blocks.scan import Rows
from fbeta.blocks.solving import BlockProblems
from fbeta.blocks.tally import random_bits
from fbeta.linear.learner import Model
from fbeta.statistics.codes import Code

__all__ = ["BlockSearch", "deal_folds"]

SHUFFLED = 1 << 26  # rows up to which folds are those of arrays

Score = Callable[[Code, Model, Rows], tuple[float, float]]


def deal_folds(n: int, cv: Any) -> NDArray[np.int16]:
    """Return the fold that holds each of n rows out.

    The folds of a number are those that :class:`fbeta.AlphaSearchCV` makes of arrays, as long as a
    permutation of the rows is a small matter.

    Examples
    --------
    >>> np.bincount(deal_folds(10, 3)).tolist()
    [4, 3, 3]
    """
    if not isinstance(cv, Integral):
        raise ValueError(f"for blocks of rows cv must be a number of folds, got {cv!r}")
    folds = check_count("cv", cv, low=2)
    if n > SHUFFLED:
        return (random_bits(np.arange(n, dtype=np.uint64), 7) % np.uint64(folds)).astype(np.int16)
    out = np.zeros(n, np.int16)
    for fold, (_, test) in enumerate(KFold(folds, shuffle=True, random_state=0).split(out)):
        out[test] = fold
    return out


class BlockSearch:
    """The problems of all folds and strengths over the rows of a source.

    Parameters
    ----------
    scanned : Scanned
    learner : SolverLearner
    code : Code
        Of all rows.
    alphas : sequence of float
    cv : int
        Number of folds.
    """

    def __init__(
        self, scanned: Scanned, learner: Any, code: Code, alphas: Sequence[float], cv: Any
    ) -> None:
        self.source, self.code, self.alphas = scanned.source, code, list(alphas)
        settings = settings_of(learner)
        self.learner = learner
        self.folds = deal_folds(self.source.n_rows(), cv)
        self.count = int(self.folds.max()) + 1
        tallies = self.source.tallies(self.folds)
        self.problems = BlockProblems(
            self.source, scanned.summary, code, settings, self.folds, tallies
        )
        path = self.source.checkpoint
        mark = partial(fingerprint, scanned.summary, code, settings)
        search = None if path is None else f"{path}.search"
        self.search = Checkpoint(search, mark(self.alphas, self.count))
        self.final = partial(Checkpoint, path)
        self.mark = mark

    def scores(self, score: Score) -> NDArray[np.float64]:
        """Fit every strength on every fold, and return its mean score on the rows held out.

        Parameters
        ----------
        score : callable
            From a code, a model and rows to the sum of their scores, and of their weights.

        Returns
        -------
        ndarray of shape (number of strengths, number of folds)
        """
        wanted = [(fold, alpha) for fold in range(self.count) for alpha in self.alphas]
        states = self.problems.solve(wanted, self.search)
        models = {(fold, alpha): self._model(states, fold, alpha, str) for fold, alpha in wanted}
        work = partial(score_rows, code=self.code, models=models, score=score)
        total = sum(self.source.over(work, self.folds))
        sums = np.asarray(total)
        return (
            np.asarray(sums[..., 0] / np.maximum(sums[..., 1], 1e-300))
            .reshape(self.count, len(self.alphas))
            .T
        )

    def _model(self, states: Any, fold: int, alpha: float, describe: Callable[[int], str]) -> Model:
        found = self.problems.model(states, fold, alpha, describe)
        return cast(Model, wrap(self.learner, found))

    def fit(self, alpha: float, describe: Callable[[int], str]) -> Model:
        """Fit to all rows."""
        checkpoint = self.final(self.mark([alpha]))
        states = self.problems.solve([(-1, alpha)], checkpoint)
        model = self._model(states, -1, alpha, describe)
        checkpoint.remove()
        self.search.remove()
        return model


def score_rows(
    rows: Rows,
    folds: NDArray[Any],
    code: Code,
    models: dict[tuple[int, float], Model],
    score: Score,
) -> NDArray[np.float64]:
    """Return sums of scores and weights of a block, for each fold and strength."""
    out = np.zeros((len(models), 2))
    for at, ((fold, _), model) in enumerate(models.items()):
        own = np.flatnonzero(folds == fold)
        if len(own):
            out[at] = score(code, model, rows.take(own))
    return out
