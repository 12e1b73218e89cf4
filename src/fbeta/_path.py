"""Estimators of linear models that are fitted along a path of strengths of regularisation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._estimator import CHUNK
from fbeta.labels import Indicator
from fbeta.linear import Design, LinearProblems, solve_path
from fbeta.linear.design import rotation_pays
from fbeta.losses import Loss, get_loss

Decide: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


class LinearPath:
    """One pass along the path for each fold, in coordinates of X that all folds share.

    A subclass says what the binary problems are, and what follows from their probabilities.
    """

    loss: str | Loss
    fit_intercept: bool
    tol: float
    max_iter: int

    @abstractmethod
    def _problems(self, Y: Indicator) -> tuple[sp.csc_array, Decide]:
        """Return the targets (n, M) of labels, and the step from (n, M) probabilities to sets."""

    def alpha_shared(self, X: Any, weight: NDArray[np.float64] | None) -> Design:
        """Return X in coordinates that all folds and strengths share."""
        rotate = rotation_pays(X.shape)
        return Design.of(X, weight, intercept=self.fit_intercept, rotate=rotate)

    def alpha_path(
        self,
        shared: Design,
        Y: Indicator,
        weight: NDArray[np.float64] | None,
        train: NDArray[np.intp],
        test: NDArray[np.intp],
        alphas: Sequence[float],
    ) -> Iterator[tuple[float, NDArray[np.bool_]]]:
        """Solve along the path on some rows, and yield predictions for others."""
        targets, decide = self._problems(Y[train])
        problems = LinearProblems(shared.take(train), targets, get_loss(self.loss))
        rows = max(1, CHUNK // (8 * max(targets.shape[1], 1)))
        chunks = [shared.take(test[i : i + rows]) for i in range(0, len(test), rows)]
        for alpha, solution in solve_path(problems, alphas, tol=self.tol, max_iter=self.max_iter):
            problems.warn_if_not_converged(solution, alpha, self.max_iter)
            parts = [decide(problems.probabilities(solution, chunk)) for chunk in chunks]
            yield alpha, np.concatenate(parts).astype(np.bool_)
