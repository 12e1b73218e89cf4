"""Plug-in methods: binary relevance, and multinomial regressions of the sizes, then a decode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import check_choice
from fbeta.decoding.exact import decode, exact_decode
from fbeta.decoding.expected import cut_at_half
from fbeta.estimators.base import views
from fbeta.estimators.statistics_base import LinearParameters, StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear import Design, LinearLearner, Multinomial
from fbeta.linear.learner import Alphas, Learner, Names, Path, Rows, Weight
from fbeta.losses import Loss, get_loss
from fbeta.statistics.codes import Code, MarginalCode
from fbeta.statistics.encoding import distinct_columns, observed_cardinalities
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["BinaryRelevance", "ExactFPlugIn", "decode_independent"]

RULES = {"half": cut_at_half, "independent": exact_decode}


@dataclass(eq=False, repr=False)
class BinaryRelevance(LinearParameters, StatisticsClassifier):
    """One regularised linear model of ``P(y_j = 1 | x)`` for each label.

    Parameters
    ----------
    beta : float > 0
        The measure that ``decode="independent"`` is optimal for.
    alpha, loss, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    decode : {"half", "independent"}
        Predict the labels with a probability above 1/2, whatever beta; or the label set with the
        highest expected F_beta if labels are independent given x (Ye et al. 2012).

    Attributes
    ----------
    classes_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_, intercept_ : ndarray of shape (s, d) and (s,)
        Of the labels; an intercept is infinite where a label is always or never present.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sky"]]
    >>> BinaryRelevance(alpha=0.1).fit(X, Y).predict([[0.0], [3.0]])
    [['sea'], ['sky']]
    """

    _: KW_ONLY
    decode: str = "half"
    loss: str | Loss = "logistic"

    _any_array = True
    _streams = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    _rule = property(lambda self: RULES[self.decode])

    def _make_code(self, Y: Indicator) -> MarginalCode:
        return MarginalCode.of(Y)

    def _make_learner(self) -> LinearLearner:
        check_choice("decode", self.decode, tuple(RULES))
        loss = get_loss(self.loss)
        return LinearLearner(self.fit_intercept, self.tol, self.max_iter, loss, unfold=True)


def decode_independent(P: Any, beta: float = 1.0) -> NDArray[np.int8]:
    """Find the label sets with the highest expected F_beta when labels are independent.

    Exact over all 2^s sets: ``decode(LabelStatistics.from_marginals(P), beta)``.

    Parameters
    ----------
    P : array-like of shape (n, s)
        ``P(y_j = 1 | x_i)``.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    int8 array of shape (n, s)

    Examples
    --------
    >>> decode_independent([[0.9, 0.5, 0.1], [0.1, 0.1, 0.1]]).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    return decode(LabelStatistics.from_marginals(P), beta)


# of PlugInCode: (n, 1), whether rows are empty; (n',) rows and (n', m) their classes
PlugInTargets: TypeAlias = tuple[sp.csc_array, NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True)
class PlugInCode(Code):
    """The emptiness of a set, and for each label the size of the set, 0 if the label is absent.

    Labels with equal columns are one of m multinomial problems, with M classes together.
    """

    labels: NDArray[np.intp]  # (m,), a label of each problem
    sizes: NDArray[np.intp]  # (M,), the size that each class stands for, 0 for an absent label
    problem: NDArray[np.intp]  # (M,), the problem that each class belongs to
    source: NDArray[np.intp]  # (C,), classes that stand for a size and
    component: NDArray[np.intp]  # (C,), the component of the statistics that each estimates
    conditional: bool  # whether the multinomial problems are those of rows that have labels

    @classmethod
    def of(cls, Y: Indicator, *, conditional: bool) -> PlugInCode:
        """Lay out the classes that occur in Y, of shape (n, s)."""
        cardinalities, s = observed_cardinalities(Y), Y.shape[1]
        count = np.diff(Y.indptr)
        used = np.flatnonzero(count) if conditional else np.arange(len(count))
        count, columns = count[used], Y[used].tocsc()
        which, first = distinct_columns(columns)
        first = first[np.diff(columns.indptr)[first] > 0]
        sizes = [np.unique(_sizes_with(columns, label, count)) for label in first]
        problem = np.repeat(np.arange(len(first)), [len(values) for values in sizes])
        flat = np.concatenate([*sizes, []]).astype(np.intp)
        source, component = [], []
        for label in range(s):
            own = np.flatnonzero((which[first][problem] == which[label]) & (flat > 0))
            source.append(own)
            component.append(np.searchsorted(cardinalities, flat[own]) * s + label)
        places = np.concatenate(source), np.concatenate(component)
        return cls(cardinalities, s, first, flat, problem, *places, conditional)

    def width(self) -> int:
        """Return the number of classes, and one for "no labels"."""
        return 1 + len(self.sizes)

    def targets(self, Y: Indicator) -> PlugInTargets:
        """Return whether each of n rows is empty, which n' rows have classes, and their classes."""
        count = np.diff(Y.indptr)
        empty = count == 0
        partly = self.conditional and not empty.all()
        rows = np.flatnonzero(~empty) if partly else np.arange(len(count))
        columns, classes = Y[rows].tocsc(), np.zeros((len(rows), len(self.labels)), dtype=np.intp)
        for m, label in enumerate(self.labels):
            sizes = self.sizes[self.problem == m]
            classes[:, m] = np.searchsorted(sizes, _sizes_with(columns, label, count[rows]))
        return sp.csc_array(empty[:, None].astype(np.int8)), rows, classes

    def statistics(self, P: NDArray[Any]) -> LabelStatistics:
        """Put the probabilities of no labels and of the classes, (n, 1 + M), into their places."""
        K, s = len(self.cardinalities), self.n_labels
        code = np.zeros((len(P), 1 + K * s), dtype=P.dtype)
        code[:, 0] = P[:, 0]
        code[:, 1 + self.component] = P[:, 1 + self.source]
        if self.conditional:
            code[:, 1:] *= 1 - code[:, :1]
        return LabelStatistics.from_code(code, self.cardinalities, s)


def _sizes_with(columns: sp.csc_array, label: int, count: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the size of each row that has a label, 0 for the others."""
    out = np.zeros(len(count), dtype=np.intp)
    rows = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
    out[rows] = count[rows]
    return out


@dataclass(frozen=True)
class PlugInModel:
    """The models of :class:`PlugInCode`."""

    empty: Any  # of "no labels"; None where no row was so
    sizes: Any  # of the classes of the labels

    def probabilities(self, X: Any) -> NDArray[Any]:
        """Return the probabilities of no labels and of the classes, of shape (n, 1 + M)."""
        P = self.sizes.probabilities(X)
        none = np.zeros((len(P), 1)) if self.empty is None else self.empty.probabilities(X)
        return np.concatenate([none.astype(P.dtype), P], axis=1)

    @property
    def n_iter(self) -> int:
        """Most Newton iterations of a problem."""
        most = int(self.sizes.n_iter.max(initial=0))
        return most if self.empty is None else max(most, self.empty.most_iter)


@dataclass(frozen=True)
class PlugInLearner(Learner):
    """A logistic regression of "no labels", and multinomial ones of the sizes."""

    empty: LinearLearner
    sizes: LinearLearner

    def fit(
        self, X: Any, targets: PlugInTargets, weight: Weight, alpha: float, name: Names = str
    ) -> PlugInModel:
        """Fit both, the second to rows of its own."""
        none, rows, classes = targets
        empty = self.empty.fit(X, none, weight, alpha, lambda _: "no labels") if none.nnz else None
        own = None if weight is None else weight[rows]
        return PlugInModel(empty, self.sizes.fit(X[rows], classes, own, alpha))

    def share(self, X: Any, weight: Weight) -> Design:
        """Return X in coordinates in which the problems are easy."""
        return self.sizes.share(X, weight)

    def path(self, shared: Any, targets: Any, weight: Weight, rows: Rows, alphas: Alphas) -> Path:
        """Follow both paths side by side."""
        none, own, classes = targets
        sizes = self.sizes.path(shared, classes, weight, rows[own], alphas)
        path = self.empty.path(shared, none, weight, rows, alphas)
        empty: Iterator[Any] = path if none.nnz else repeat((None, None))
        for (alpha, model), (_, other) in zip(sizes, empty, strict=False):
            yield alpha, PlugInModel(other, model)


@dataclass(eq=False, repr=False)
class ExactFPlugIn(LinearParameters, StatisticsClassifier):
    """Exact F-measure plug-in, EFP (Dembczynski et al. 2013).

    ``q_0 = P(no labels | x)`` by logistic regression and, for each label j, one multinomial
    regression whose class is ``|y|`` if ``y_j = 1`` and 0 otherwise; ``q_jk`` is the probability of
    class k. Then the decoder of :class:`fbeta.FBetaClassifier`.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    alpha : float >= 0
        Each problem minimises the SUM of its losses plus ``alpha / 2`` times the sum of the squares
        of its weights, those of all classes; intercepts are not penalised.
    rows : {"nonempty", "all"}
        Fit the multinomial regressions to the rows that have labels, and multiply their
        probabilities with ``1 - q_0``; or fit them to all rows. Without empty rows both are the
        same.
    fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_, intercept_ : ndarray of shape (M, d) and (M,)
        Of the classes of the distinct multinomial problems, one problem after the other.

    Notes
    -----
    Only classes that occur are fitted: a label has the sizes that were seen together with it, and
    a label that never occurs has no model. With two classes the penalty is ``alpha / 4 |w|^2`` on
    the difference w of their weights.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> ExactFPlugIn(alpha=0.1).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    _: KW_ONLY
    rows: str = "nonempty"

    coef_, intercept_ = views("_model.sizes", "coef", "intercept")
    (n_iter_,) = views("_model", "n_iter")

    def _make_code(self, Y: Indicator) -> PlugInCode:
        return PlugInCode.of(Y, conditional=self.rows == "nonempty")

    def _make_learner(self) -> PlugInLearner:
        check_choice("rows", self.rows, ("nonempty", "all"))
        solver = self.fit_intercept, self.tol, self.max_iter
        return PlugInLearner(LinearLearner(*solver), LinearLearner(*solver, objective=Multinomial))
