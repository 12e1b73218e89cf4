"""Codes: which targets a label set has, and what probabilities of targets say of the labels.

A method is a code, a model of its targets and a rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import array_namespace
from fbeta.labels.forms import Indicator
from fbeta.statistics.encoding import Targets, distinct_columns, encode, observed_cardinalities
from fbeta.statistics.label_statistics import LabelStatistics


@dataclass(frozen=True)
class Code(ABC):
    """What a code has to offer; P is what the model of its targets gives for n rows.

    Attributes
    ----------
    cardinalities : ndarray of shape (K,)
        Sizes of label sets that have statistics.
    n_labels : int
        Number of labels s.
    """

    by_size: ClassVar[bool] = False  # whether targets are pairs of a size and a label

    cardinalities: NDArray[np.intp]
    n_labels: int

    @abstractmethod
    def width(self) -> int:
        """Return how many numbers P has for each row."""

    @abstractmethod
    def targets(self, Y: Indicator) -> Any:
        """Return the targets of label sets, as a learner takes them."""

    @abstractmethod
    def statistics(self, P: Any) -> LabelStatistics:
        """Return the label statistics of n rows."""

    def marginals(self, P: Any) -> Any:
        """Return the probability of each label, (n, s), below 1 where estimates add up to more."""
        return Estimates(None, self.statistics(P)).marginals()

    def name(self, column: int, labels: Sequence[Any] | NDArray[Any] | None = None) -> str:
        """Return what a target is called in a warning, given the names of the labels."""
        return str(column)


@dataclass(frozen=True)
class Estimates:
    """Output of a model for n rows; statistics and marginals are computed when asked for."""

    code: Code | None
    P: Any  # what the model of the targets of the code gave; without a code, label statistics

    @cached_property
    def _statistics(self) -> LabelStatistics:
        found: LabelStatistics = self.P if self.code is None else self.code.statistics(self.P)
        return found

    def statistics(self) -> LabelStatistics:
        """Return the label statistics, which are computed once."""
        return self._statistics

    def marginals(self) -> Any:
        """Return the probability of each label, (n, s), below 1 where estimates add up to more."""
        if self.code is not None:
            return self.code.marginals(self.P)
        marginals: Any = self.P.marginals()
        if sp.issparse(marginals):
            return marginals
        xp = array_namespace(marginals)
        return xp.clip(marginals, None, 1.0 - float(xp.finfo(marginals.dtype).eps) / 2)


@dataclass(frozen=True)
class JointCode(Code):
    """The paper's code: "no labels", and each pair of a size and a label.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1], [0, 1], [0, 0]], dtype=np.int8))
    >>> code = JointCode.of(Y)
    >>> code.cardinalities.tolist(), code.targets(Y).toarray().tolist()[1]
    ([1, 2], [0, 0, 1, 0, 0])
    >>> code.name(2, ["sea", "sky"])
    'size 1 with label sky'
    """

    by_size = True

    @classmethod
    def of(cls, Y: Indicator, which: str = "seen") -> JointCode:
        """Make the code of the sizes ``"seen"`` in Y, of shape (n, s), or of ``"all"`` sizes."""
        return cls(observed_cardinalities(Y, which), Y.shape[1])

    def width(self) -> int:
        """Return the number of targets, ``1 + K s``."""
        return 1 + len(self.cardinalities) * self.n_labels

    def targets(self, Y: Indicator) -> sp.csc_array:
        """Return ``a_y`` of each row, of shape (n, 1 + K s)."""
        return encode(Y, self.cardinalities)

    def column_sums(self, sizes: NDArray[np.intp], sums: NDArray[Any]) -> NDArray[Any]:
        """Return the sums for "no labels", and for each pair of a size and a label.

        ``sums``, (K, s), are over the rows of each size that have a label; for size 0 in column 0.
        """
        out = np.zeros(self.width(), sums.dtype)
        out[0] = sums[sizes == 0, 0].sum()
        place = np.searchsorted(sizes, self.cardinalities)
        place = np.minimum(place, max(len(sizes) - 1, 0))
        seen = sizes[place] == self.cardinalities
        out[1:] = np.where(seen[:, None], sums[place], np.zeros((), sums.dtype)).reshape(-1)
        return out

    def statistics(self, P: NDArray[Any]) -> LabelStatistics:
        """Return the statistics of which P, of shape (n, 1 + K s), are the components."""
        return LabelStatistics.from_code(P, self.cardinalities, self.n_labels)

    def name(self, column: int, labels: Sequence[Any] | NDArray[Any] | None = None) -> str:
        """Return the size and the label that a target stands for."""
        if column == 0:
            return "no labels"
        k, j = divmod(column - 1, self.n_labels)
        return f"size {self.cardinalities[k]} with label {j if labels is None else labels[j]!s}"


@dataclass(frozen=True)
class MarginalCode(Code):
    """Each label by itself; the statistics are those of independent labels.

    Examples
    --------
    >>> code = MarginalCode.of(sp.csr_array(np.eye(2, dtype=np.int8)))
    >>> code.statistics(np.array([[0.9, 0.5]])).empty.round(3).tolist()
    [0.05]
    """

    @classmethod
    def of(cls, Y: Indicator) -> MarginalCode:
        """Make the code of the labels of Y, of shape (n, s), with all sizes 1..s."""
        return cls(observed_cardinalities(Y, "all"), Y.shape[1])

    def width(self) -> int:
        """Return the number of targets s."""
        return self.n_labels

    def targets(self, Y: Indicator) -> sp.csc_array:
        """Return the labels of each row, of shape (n, s)."""
        return Y.tocsc()

    def column_sums(self, sizes: NDArray[np.intp], sums: NDArray[Any]) -> NDArray[Any]:
        """Return the sums for each label, over all sizes."""
        out: NDArray[Any] = sums[sizes > 0].sum(axis=0, dtype=sums.dtype)
        return out

    def statistics(self, P: NDArray[Any]) -> LabelStatistics:
        """Return the statistics of independent labels with the marginals P, of shape (n, s)."""
        return LabelStatistics.from_marginals(P)

    def marginals(self, P: NDArray[Any]) -> NDArray[Any]:
        """Return P."""
        return P

    def name(self, column: int, labels: Sequence[Any] | NDArray[Any] | None = None) -> str:
        """Return the name of the label."""
        return f"label {column if labels is None else labels[column]!s}"


@dataclass(frozen=True)
class SizedCode(Code):
    """Each label by itself, and each size of label sets that was seen.

    Given their number, labels are independent: the statistics stay factored.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1], [0, 1], [1, 1]], dtype=np.int8))
    >>> code = SizedCode.of(Y)
    >>> code.sizes.tolist(), code.targets(Y).toarray().tolist()[1]
    ([1, 2], [0, 1, 1, 0])
    >>> code.statistics(np.array([[0.9, 0.5, 0.2, 0.2]])).cardinality_distribution().tolist()
    [[0.0, 0.5, 0.5]]
    """

    sizes: NDArray[np.intp]  # (C,), those seen, 0 among them where a row had no labels
    independent: bool = False  # whether the sizes are not used: labels are independent

    @classmethod
    def of(cls, Y: Indicator, independent: bool = False) -> Self:
        """Make the code of the labels and of the sizes of Y, of shape (n, s)."""
        cardinalities = observed_cardinalities(Y, "all" if independent else "seen")
        return cls(cardinalities, Y.shape[1], np.unique(np.diff(Y.indptr)), independent)

    def width(self) -> int:
        """Return the number of targets, ``s + C``."""
        return self.n_labels + len(self.sizes)

    def targets(self, Y: Indicator) -> sp.csc_array:
        """Return the labels of each row, and which size it has, of shape (n, s + C)."""
        count = np.diff(Y.indptr)
        place = np.searchsorted(self.sizes, count)
        rows = np.flatnonzero(self.sizes[np.minimum(place, len(self.sizes) - 1)] == count)
        ones = np.ones(len(rows), dtype=Y.dtype)
        shape = (len(count), len(self.sizes))
        of_size = sp.csc_array((ones, (rows, place[rows])), shape=shape)
        return sp.csc_array(sp.hstack([Y.tocsc(), of_size]))

    def column_sums(self, sizes: NDArray[np.intp], sums: NDArray[Any]) -> NDArray[Any]:
        """Return the sums for each label over all sizes, and for each size."""
        of_size = sums.sum(axis=1, dtype=sums.dtype)
        if sums.dtype.kind != "u":
            # a row of size k is in k sums; bits that stand for rows wrap around, and stay so
            of_size = (of_size / np.maximum(sizes, 1)).astype(sums.dtype)
        out = np.zeros(self.width(), sums.dtype)
        out[: self.n_labels] = sums[sizes > 0].sum(axis=0, dtype=sums.dtype)
        seen = np.isin(self.sizes, sizes)
        out[self.n_labels :][seen] = of_size[np.searchsorted(sizes, self.sizes[seen])]
        return out

    def statistics(self, P: Any) -> LabelStatistics:
        """Return the statistics of labels, and of sizes with probabilities up to a factor, as P."""
        if P.shape[1] != self.width():
            raise ValueError(f"the model has {P.shape[1]} targets, and the code {self.width()}")
        return self.of_labels(P, None if self.independent else self.law_of_sizes(P))

    def of_labels(self, P: Any, sizes: Any = None) -> LabelStatistics:
        """Return the statistics of the labels of P, independent or given a law of their number."""
        return LabelStatistics.from_marginals(P[:, : self.n_labels], sizes)

    def estimates(self, Z: Any) -> Estimates:
        """Return the estimates of a model by its log-odds of labels and sizes, (n, s + C)."""
        xp, labels, sizes = array_namespace(Z), Z[:, : self.n_labels], Z[:, self.n_labels :]
        # probabilities of all sizes may underflow: they are divided by about the largest one
        below = xp.clip(sizes, None, 0.0)
        top = xp.clip(xp.max(below, axis=1, keepdims=True), float(xp.finfo(Z.dtype).min), None)
        share = xp.exp(below - top) / (1 + xp.exp(-xp.abs(sizes)))
        code = CardinalityCode(self.cardinalities, self.n_labels, self.sizes)
        return Estimates(code, xp.concat([labels, share], axis=1))

    def law_of_sizes(self, P: Any) -> Any:
        """Return ``P(|y| = k)`` for k in 0..m, of shape (n, m + 1)."""
        xp, sizes = array_namespace(P), P[:, self.n_labels :]
        total = xp.sum(sizes, axis=1, keepdims=True)
        tie = xp.astype(total <= 0, total.dtype)  # sizes that are all impossible are a tie
        share = (sizes + tie) / (total + len(self.sizes) * tie)
        places = np.full(int(self.sizes[-1]) + 1, len(self.sizes))
        places[self.sizes] = np.arange(len(self.sizes))
        padded = xp.concat([share, xp.zeros_like(share[:, :1])], axis=1)
        return xp.take(padded, xp.asarray(places, device=P.device), axis=1)

    def name(self, column: int, labels: Sequence[Any] | NDArray[Any] | None = None) -> str:
        """Return the label or the size that a target stands for."""
        if column >= self.n_labels:
            return f"size {self.sizes[column - self.n_labels]}"
        return f"label {column if labels is None else labels[column]!s}"


@dataclass(frozen=True)
class CardinalityCode(SizedCode):
    """Code whose last C targets are the set sizes; its models give log-odds of the labels.

    Probabilities of labels round to 1 where the law of the labels given their number does not.
    """

    def targets(self, Y: Indicator) -> Targets:
        """Return the labels and the sizes of each row, (n, s + C), and what the sizes are."""
        return Targets(super().targets(Y), self.sizes)

    def of_labels(self, P: Any, sizes: Any = None) -> LabelStatistics:
        """Return the statistics of the labels of P, independent or given a law of their number."""
        return LabelStatistics.from_logits(P[:, : self.n_labels], sizes)


@dataclass(frozen=True)
class LabelSetCode(Code):
    """The label sets that were seen, each as a whole.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1], [0, 1], [1, 1]], dtype=np.int8))
    >>> code = LabelSetCode.of(Y)
    >>> code.sets.toarray().tolist(), code.targets(Y).values.ravel().tolist()
    ([[1, 1], [0, 1]], [0, 1, 0])
    """

    sets: sp.csr_array  # (L, s), 0/1, in the order in which they were seen

    @classmethod
    def of(cls, Y: Indicator) -> Self:
        """Make the code of the label sets of Y, of shape (n, s)."""
        first = distinct_columns(Y.T)[1]
        return cls(observed_cardinalities(Y), Y.shape[1], sp.csr_array(Y[first]))

    def width(self) -> int:
        """Return the numbers of a row: L probabilities, and ``1 + K s`` statistics of them."""
        return int(self.sets.shape[0]) + 1 + len(self.cardinalities) * self.n_labels

    def targets(self, Y: Indicator) -> Targets:
        """Return which of the sets each row has, (n, 1), and the sets; all have to be known."""
        which = distinct_columns(sp.csr_array(sp.vstack([self.sets, Y])).T)[0]
        return Targets(which[self.sets.shape[0] :, None], self.sets)

    def statistics(self, P: Any) -> LabelStatistics:
        """Return the statistics of the distribution P over the sets, of shape (n, L)."""
        return LabelStatistics.from_distribution(P, self.sets)

    def marginals(self, P: Any) -> Any:
        """Return the probability of each label, of shape (n, s), none of them exactly 0 or 1."""
        marginals = super().marginals(P)
        xp = array_namespace(marginals)
        return xp.clip(marginals, float(xp.finfo(marginals.dtype).smallest_normal), None)
