"""A decoder for models that people already have: probabilities in, optimal label sets out."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._array import array_namespace, check_choice, check_count, check_number, concat, to_numpy
from fbeta.estimators.base import MultiLabelClassifier, views
from fbeta.estimators.folds import make_folds
from fbeta.estimators.members import fit_member
from fbeta.estimators.recalibration import fit_recalibration
from fbeta.estimators.reduction import SizedClassifier
from fbeta.estimators.statistics_base import FunctionLearner, StatisticsClassifier
from fbeta.labels.containers import as_table, column_order, is_table
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight, take_rows
from fbeta.statistics.codes import CardinalityCode
from fbeta.statistics.composite import read_lists
from fbeta.statistics.encoding import Targets, read_matrix

LARGEST_LOGIT = 30.0  # larger ones are taken for it


@dataclass(eq=False, repr=False)
class FBetaDecoder(StatisticsClassifier):
    """From the probabilities of any model to the label sets that are best for F_beta.

    For models that are there already and will not be trained again: a forest, boosted trees, a
    network. Learns from rows which that model has not seen how far its probabilities can be
    trusted - a monotone curve for the logits of all labels, then a slope and an offset for each -
    and how many labels there are: potentials of the number of labels, which also depend on how many
    are expected. Both together are a :class:`fbeta.CardinalityClassifier` on logits. Of more than
    1,000 labels, the lines are fitted first, as if labels were independent, then the potentials.

    A sparse matrix holds the scores of labels that are listed for each row, out of any number of
    labels. The lines are then fitted first, too; the potentials are of the number of listed labels,
    and labels that are not listed have one mean number for all rows. Time and memory grow with the
    listed scores; predictions and probabilities are sparse.

    Parameters
    ----------
    alpha : float > 0
        Penalty on the distance from logits as they are and independent labels, in units of a row:
        the SUM of the losses plus ``alpha / 2`` times the sum of the squares is minimised.
    inputs : {"auto", "probabilities", "logits"}
        What the model gives. By default numbers that are all in [0, 1] in ``fit`` are
        probabilities.
    beta, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    inputs_, listed_ : str and bool
        What the numbers in ``fit`` were taken for, and whether they were a sparse matrix.
    curve_ : tuple of two ndarrays of shape (B,)
        Logits, and what they are worth on average over all labels.
    slope_, offset_ : ndarray of shape (s,)
        Of that for each label.
    potential_ : ndarray of shape (2, C)
        Of the sizes that were seen: constants, and factors of the standardised number of labels
        that are expected.

    Notes
    -----
    ``fit`` needs predictions for rows that the model was not fitted to: a validation set, or
    ``cross_val_predict(model, X, Y, method="predict_proba")``. Probabilities closer to 0 or 1 than
    half a row of that data are taken for half a row.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.model_selection import cross_val_predict
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> forest = RandomForestClassifier(20, random_state=0)
    >>> held_out = cross_val_predict(forest, X, Y, cv=5, method="predict_proba")
    >>> decoder = FBetaDecoder().fit(held_out, Y)
    >>> decoder.predict(forest.fit(X, Y).predict_proba(X[:2]), max_labels=2).shape
    (2, 3)
    """

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    inputs: str = "auto"
    tol: float = 1e-4
    max_iter: int = 100

    slope_, offset_, potential_ = views("_model", "slope", "offset", "potential")
    curve_ = property(attrgetter("_model.knots", "_model.values"))
    (n_iter_,) = views("_model", "most_iter")

    _passes_on = True

    #: Probabilities closer to 0 or 1 are taken for this, or for 1 less this.
    probability_floor = property(attrgetter("_least"))

    def _validate_X(self, X: Any, *, reset: bool, weight: Weight = None) -> Any:
        """Return logits of the labels, of shape (n, s), sparse where P is."""
        lists = read_lists(X) if sp.issparse(X) else None
        P = read_matrix(self._in_order(X, reset)) if lists is None else lists.data[None]
        n, columns = P.shape if lists is None else lists.shape
        xp = array_namespace(P)
        if not bool(xp.all(xp.isfinite(P))):
            raise ValueError("P contains NaN or infinity")
        used = P
        if weight is not None and len(weight) == n:
            n = len(rows := np.flatnonzero(weight))
            used = take_rows(P, rows) if lists is None else lists[rows].data
        inside = bool(xp.all((used >= 0) & (used <= 1)))
        if reset:
            check_choice("inputs", self.inputs, ("auto", "probabilities", "logits"))
            found = "probabilities" if inside else "logits"
            self.inputs_ = found if self.inputs == "auto" else self.inputs
            self.n_features_in_ = int(columns)
            self._least, self.listed_ = 0.5 / max(1, int(n)), lists is not None
        self._check_form(columns, lists is not None, inside)
        if self.inputs_ == "logits":
            logits = xp.clip(P, -LARGEST_LOGIT, LARGEST_LOGIT)
        else:
            P = xp.clip(xp.astype(P, xp.float64, copy=False), self._least, 1 - self._least)
            logits = xp.log(P / (1 - P))
        if lists is None:
            return logits
        return sp.csr_array((logits[0], lists.indices, lists.indptr), shape=lists.shape)

    def _check_form(self, columns: int, sparse: bool, inside: bool) -> None:
        """Raise where P has another form than in fit."""
        if columns != self.n_features_in_:
            raise ValueError(
                f"P has {columns} columns, but the decoder was fitted with "
                f"{self.n_features_in_}: one for each label"
            )
        listed = getattr(self, "listed_", False)  # older model files do not have it
        if sparse != listed:
            kinds = ("a dense array", "a sparse matrix of listed labels")
            raise ValueError(f"P must be {kinds[listed]}, as in fit, not {kinds[sparse]}")
        if self.inputs_ != "logits" and not inside:
            raise ValueError(
                "P must hold probabilities in [0, 1], as in fit; for logits say inputs='logits'"
            )

    def _in_order(self, X: Any, reset: bool) -> Any:
        """Match the columns of a data frame by name: in fit with those of y, later with those."""
        if not is_table(X):
            return X
        names, values, *_ = as_table(X, "P")
        labels, found = (list(map(str, part)) for part in (self.classes_, names))
        named = self._label_form.kind in ("frame", "sets") and isinstance(names[0], str)
        known = named and bool(set(labels) & set(found))  # names that all differ say nothing
        if reset:
            if known:
                column_order(found, labels, "P", "y")
            self.feature_names_in_ = np.array(labels if known else found, dtype=object)
        expected = getattr(self, "feature_names_in_", labels if known else None)
        order = None if expected is None else column_order(names, expected, "P")
        return values if order is None else values[:, order]

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        if X.shape[1] == 2 and self._label_form.kind == "single":
            raise ValueError("P must have one column for a 1-D target: that of the second class")
        if X.shape[1] != Y.shape[1]:
            raise ValueError(f"P has {X.shape[1]} columns, but y has {Y.shape[1]} labels")
        super()._fit(to_numpy(X), Y, weight)

    def alpha_shared(self, X: Any, weight: Weight) -> Any:
        """Return the logits, which are the same for all folds and strengths of a search."""
        return to_numpy(copy(self)._validate_X(X, reset=True, weight=weight))

    def _make_code(self, Y: Indicator) -> CardinalityCode:
        return CardinalityCode.of(Y)

    def _make_learner(self) -> FunctionLearner:
        check_number("tol", self.tol, strict=True)
        check_count("max_iter", self.max_iter)
        return FunctionLearner(self._recalibrate)

    def _recalibrate(self, X: Any, targets: Targets, weight: Weight, alpha: Any) -> Any:
        alpha, own = check_number("alpha", alpha, strict=True), (targets.values, targets.structure)
        settings: Any = {"weight": weight, "tol": self.tol, "max_iter": self.max_iter}
        return fit_recalibration(X, *own, alpha, **settings)


@dataclass(eq=False, repr=False)
class FBetaDecoderCV(StatisticsClassifier):
    """Any classifier with probabilities, and an :class:`FBetaDecoder` of them, in one estimator.

    The decoder is fitted to probabilities of held-out rows of every fold, the classifier then to
    all rows.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba``: an estimator of this library, or any classifier or pipeline. One
        copy is fitted to each label, unless it takes all of them at once.
    beta, alpha : float > 0
        Of the decoder.
    cv : int, splitter or iterable of (train, test)
        As for :class:`fbeta.AlphaSearchCV`. Held-out rows of all folds are used.
    n_jobs : int, optional
        Copies of the classifier that are fitted at the same time, as in joblib.

    Attributes
    ----------
    estimator_, decoder_ : estimators
        The classifier of all labels, fitted to all rows, and the decoder.
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> clf = FBetaDecoderCV(RandomForestClassifier(20, random_state=0), cv=3).fit(X, Y)
    >>> clf.predict(X[:2], beta=2.0).shape
    (2, 3)
    """

    estimator: Any
    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    cv: Any = 5
    n_jobs: int | None = None

    _passes_on = True
    (cardinalities_,) = views("decoder_", "cardinalities_")
    # a search fits it as a whole for each alpha: there is no learner with a path
    alpha_shared, alpha_path = MultiLabelClassifier.alpha_shared, MultiLabelClassifier.alpha_path
    alpha_paths = MultiLabelClassifier.alpha_paths

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        classifier = self.estimator
        if not isinstance(classifier, MultiLabelClassifier):
            options: Any = {"sizes": "independent", "n_jobs": self.n_jobs}
            classifier = SizedClassifier(estimator=classifier, **options)
        parts, folds = [], make_folds(self.cv, X, Y, weight)
        for train, test in folds:
            part = None if weight is None else weight[train]
            fitted = fit_member(classifier, take_rows(X, train), Y[train], part)
            parts.append(_marginals(fitted, take_rows(X, test)))
        index = np.concatenate([test for _, test in folds])
        weights = {} if weight is None else {"sample_weight": weight[index]}
        decoder = FBetaDecoder(self.beta, self.alpha, inputs="probabilities")
        self.decoder_ = decoder.fit(concat(parts), Y[index], **weights)
        self.estimator_ = fit_member(classifier, X, Y, weight)

    def estimates(self, X: Any, *, checked: bool = False) -> Iterator[Any]:
        """Yield the estimates of the decoder, some rows at a time."""
        X = X if checked else self._read_features(X)
        yield from self.decoder_.estimates(_marginals(self.estimator_, X))


def _marginals(fitted: Any, X: Any) -> Any:
    """Return the marginals of a fitted classifier, (n, s), sparse where it lists labels."""
    return concat([part.marginals() for part in fitted.estimates(X)])
