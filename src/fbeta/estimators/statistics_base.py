"""The paper's classifier, and the base of all estimators of label statistics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from sklearn.base import clone

from fbeta._array import check_beta, concat
from fbeta.decoding.exact import exact_decode
from fbeta.estimators.base import FittedPath, MultiLabelClassifier, answers, views
from fbeta.labels.forms import Indicator
from fbeta.linear import LinearLearner
from fbeta.linear.learner import Alphas, Learner, Model, Names, Rows, Weight
from fbeta.losses import Loss, get_loss
from fbeta.statistics.codes import Code, Estimates, JointCode
from fbeta.statistics.label_statistics import LabelStatistics

if TYPE_CHECKING:
    from fbeta.blocks.passes import RowSource

Plan: TypeAlias = tuple[Code, Learner, Names]


@dataclass(frozen=True)
class FunctionLearner(Learner):
    """Learner of a model that the solver does not fit: a function of X, targets, weight, alpha."""

    function: Callable[..., Model]

    def fit(self, X: Any, targets: Any, weight: Weight, alpha: Any, name: Names = str) -> Model:
        """Call the function."""
        return self.function(X, targets, weight, alpha)


class StatisticsClassifier(MultiLabelClassifier):
    """Base of the estimators of label statistics: a code, a model of its targets and a rule.

    A subclass implements ``_make_code`` and ``_make_learner``, and may have another rule.
    """

    _code: Code
    _model: Model
    _rule: Any = staticmethod(exact_decode)

    code = property(attrgetter("_code"))  # which targets a label set has
    (cardinalities_,) = views("_code", "cardinalities")

    @abstractmethod
    def _make_code(self, Y: Indicator) -> Code:
        """Return the code for label sets of the training rows."""

    @abstractmethod
    def _make_learner(self) -> Learner:
        """Return what fits the model, or raise where a parameter is wrong."""

    def plan(self, Y: Indicator) -> Plan:
        """Return code, learner and names of targets in warnings, for label sets Y (n, s)."""
        learner, code = self._make_learner(), self._make_code(Y)
        # a 1-D binary target has two classes and one label, the second of them
        names = self.classes_[-self.n_labels_ :] if hasattr(self, "classes_") else None
        return code, learner, partial(code.name, labels=names)

    def adopt(self, code: Code, model: Any) -> Self:
        """Set the code and a model that was fitted elsewhere, and return the estimator."""
        self._code, self._model, self.n_labels_ = code, model, code.n_labels
        return self

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        code, learner, name = self.plan(Y)
        model = learner.fit(X, code.targets(Y), weight, getattr(self, "alpha", None), name)
        self._code, self._model = code, model

    def _fit_blocks(self, source: RowSource) -> None:
        self.scan(source)
        self.fit_scanned(source)

    def scan(self, source: RowSource) -> None:
        """Read blocks of rows for the first time, and set the attributes that describe them."""
        from fbeta.blocks.problems import scan

        check_beta(self.beta)
        scan(source, self._make_learner(), self._make_code)
        self._set_scanned(source)

    def fit_scanned(self, source: RowSource) -> Self:
        """Fit to blocks of rows after :meth:`scan`, and return the estimator."""
        from fbeta.blocks.problems import BlockProblems

        rows = source.rows()
        if rows is not None:
            self._fit(rows.X, rows.Y, rows.weight)
            return self
        code, learner, name = self.plan(source.witnesses)
        problems = BlockProblems(source, code, learner)
        return self.adopt(code, problems.fit(getattr(self, "alpha", None), name))

    def alpha_shared(self, X: Any, weight: Weight) -> Any:
        """Return X in coordinates that all folds and alphas of a search share."""
        return self._make_learner().share(X, weight)

    def alpha_path(
        self, shared: Any, Y: Indicator, weight: Weight, rows: Rows, alphas: Alphas
    ) -> FittedPath:
        """Follow the path of the learner on some rows."""
        code, learner, _ = self.plan(Y[rows])
        path = learner.path(shared, code.targets(Y[rows]), weight, rows, alphas)
        return self._along(code, path)

    def alpha_paths(
        self, shared: Any, Y: Indicator, rows: Sequence[Rows], alphas: Alphas
    ) -> list[FittedPath] | None:
        """Return the path of the learner on the rows of each fold; None where slower together."""
        codes, learners, _ = zip(*(self.plan(Y[own]) for own in rows), strict=True)
        targets = [code.targets(Y[own]) for code, own in zip(codes, rows, strict=True)]
        paths = learners[0].paths(shared, targets, rows, alphas)
        return None if paths is None else list(map(self._along, codes, paths))

    def _along(self, code: Code, path: Any) -> FittedPath:
        """Yield each alpha of a path of models with the estimator that has the model."""
        with closing(path):
            for alpha, model in path:
                yield alpha, clone(self).adopt(code, model)

    def _output(self, X: Any) -> Any:
        found = self._model.probabilities(X)
        return Estimates(None if isinstance(found, LabelStatistics) else self._code, found)

    def _row_bytes(self) -> int:
        return 8 * int(getattr(self._model, "list_length", None) or self._code.width())

    @answers("statistics")
    def predict_statistics(self, X: Any) -> LabelStatistics:
        """Estimate everything the decoder needs; X is as for :meth:`predict`.

        Returns
        -------
        LabelStatistics
            ``P(no labels | x)`` and ``P(|y| = k, y_j = 1 | x)`` for n instances.
        """
        return LabelStatistics.concatenate([part.statistics() for part in self.estimates(X)])

    @answers("matrix")
    def predict_proba(self, X: Any) -> Any:
        """Estimate the marginal probability of each label; X is as for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n, s)
            ``P(y_j = 1 | x)``. Where it is a sum of separate estimates over the sizes, it is kept
            below 1. For a 1-D binary target, the probability of each class, as elsewhere in
            scikit-learn.
        """
        marginals = concat([part.marginals() for part in self.estimates(X)])
        if self._label_form.kind == "single":
            both = concat([1 - marginals, marginals], axis=1)
            marginals = both if len(self.classes_) > 1 else 0 * marginals + 1
        return self._framed(marginals, X)

    @answers("vector")
    def expected_fbeta(
        self,
        X: Any,
        *,
        beta: float | None = None,
        calibrated: bool = True,
        min_labels: int = 0,
        max_labels: int | None = None,
    ) -> Any:
        """Estimate the F_beta of each prediction, by the model's own statistics.

        Parameters
        ----------
        X, beta, min_labels, max_labels
            As for :meth:`predict`.
        calibrated : bool
            Whether to calibrate what the statistics say by what was achieved on held-out rows,
            where the estimator has ``calibration_``; not for another beta, nor with limits.

        Returns
        -------
        ndarray of shape (n,)
            Estimates from independent fits need not agree with each other, and the sum that the
            decoder maximises may then exceed 1: it is cut there.
        """
        beta = check_beta(self.beta if beta is None else beta)
        goal = self._goal(min_labels=min_labels, max_labels=max_labels)
        return self.decide(X, [beta], calibrated=calibrated, **goal).expected[beta]


@dataclass(eq=False, repr=False)
class LinearParameters:
    """Parameters of the classifiers with linear models, as for :class:`fbeta.FBetaClassifier`."""

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100


@dataclass(eq=False, repr=False)
class FBetaClassifier(LinearParameters, StatisticsClassifier):
    """Multi-label classifier that is optimal for the F_beta-measure.

    Fits a regularised linear model of each of the probabilities ``P(no labels | x)`` and ``P(|y| =
    k, y_j = 1 | x)`` by minimising a convex calibrated surrogate, and predicts the label set with
    the highest expected F_beta under them. The models do not depend on beta.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for: above 1 recall counts more, below 1 precision.
    alpha : float >= 0
        Each binary problem minimises the SUM of its losses plus ``alpha / 2 |w|^2``; the intercept
        is not penalised.
    loss : {"logistic", "exponential", "squared"} or Loss
        A strictly proper composite loss.
    cardinalities : {"seen", "all"}
        Estimate the probabilities for the sizes of label sets that the training data has, or for
        all of 1..s. With an intercept both give the same predictions.
    fit_intercept : bool
        Whether the models have an intercept.
    tol : float > 0
        A problem has converged once what there is left to gain is certified to be at most ``tol``
        times the objective; from 1e-3 on it is estimated.
    max_iter : int
        Largest number of Newton iterations.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    cardinalities_ : ndarray of shape (K,)
        Sizes of label sets that have statistics.
    coef_, intercept_ : ndarrays of shape (m, d) and (m,)
        Of the distinct binary problems; intercepts are infinite where the target is constant.
    n_iter_ : int
        Most Newton iterations of a problem.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = FBetaClassifier(beta=1.0, alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    >>> clf.predict([[1.4]], beta=0.2), clf.predict([[1.4]], beta=5.0)
    ([['sea']], [['sea', 'sky']])
    """

    _: KW_ONLY
    loss: str | Loss = "logistic"
    cardinalities: str = "seen"

    _any_array = True
    _streams = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    def _make_code(self, Y: Indicator) -> JointCode:
        return JointCode.of(Y, self.cardinalities)

    def _make_learner(self) -> LinearLearner:
        return LinearLearner(self.fit_intercept, self.tol, self.max_iter, get_loss(self.loss))
