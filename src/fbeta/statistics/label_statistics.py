"""Label statistics ``q_0 = P(y = 0 | x)`` and ``q_jk = P(|y| = k, y_j = 1 | x)``, for any beta."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._array import (
    Array,
    as_array,
    astype,
    host_integers,
    namespace_and_device,
    to_numpy,
    widest_float,
)
from fbeta.labels.forms import check_binary, read_labels
from fbeta.statistics import composite, encoding
from fbeta.statistics.storage import Dense, check_dense


class LabelStatistics:
    """The statistics q(x) of n instances: everything the decoder needs, for every beta.

    Parameters
    ----------
    empty : array of shape (n,)
        ``P(no labels | x_i)``.
    joint : array of shape (n, K, s)
        ``joint[i, k, j] = P(|y| = cardinalities[k], y_j = 1 | x_i)``.
    cardinalities : array-like of shape (K,)
        Increasing sizes in 1..s; the joint probabilities of all other sizes are zero.

    Attributes
    ----------
    form : object
        How the numbers are kept: those of marginals and of mixtures in parts, from which ``empty``
        and ``joint`` are computed when they are asked for.

    Notes
    -----
    Any finite non-negative numbers are accepted: estimates need not be those of a distribution.
    Arrays may be of any library that follows the array API standard, on any device, and so are the
    results; ``cardinalities``, which belong to the shape, are NumPy's always.

    Examples
    --------
    >>> q = LabelStatistics.from_marginals([[0.9, 0.5]])
    >>> q.joint.round(3).tolist(), q.empty.round(3).tolist()
    ([[[0.45, 0.05], [0.45, 0.45]]], [0.05])
    >>> q.marginals().round(3).tolist()
    [[0.9, 0.5]]
    """

    form: composite.Form

    def __init__(self, empty: Any, joint: Any, cardinalities: Any) -> None:
        xp, device = namespace_and_device(empty=empty, joint=joint)
        empty, joint = (as_array(xp, device, array) for array in (empty, joint))
        cardinalities = to_numpy(cardinalities)
        check_dense(empty, joint, cardinalities)
        self.form = Dense(empty, joint, cardinalities)

    @classmethod
    def _of(cls, form: composite.Form) -> LabelStatistics:
        out = object.__new__(cls)
        out.form = form
        return out

    def __len__(self) -> int:
        return self.form.shape[0]

    def __getitem__(self, rows: Any) -> LabelStatistics:
        """Return the statistics of some rows, given by a slice, mask or integer array."""
        return self._of(self.form.take(encoding.row_numbers(rows, len(self), self.form.place)))

    def __repr__(self) -> str:
        n, s = self.form.shape
        kind, K = type(self.form).__name__.lower(), len(self.cardinalities)
        return f"<LabelStatistics of {n} instances, {s} labels, {K} cardinalities, {kind}>"

    @cached_property
    def _dense(self) -> Dense:
        return self.form.unfold()

    @property
    def empty(self) -> NDArray[Any]:
        """``P(no labels | x_i)``, of shape (n,)."""
        empty: NDArray[Any] = self.form.empty_probability()
        return empty

    @property
    def joint(self) -> NDArray[Any]:
        """``P(|y| = cardinalities[k], y_j = 1 | x_i)``, of shape (n, K, s)."""
        joint: NDArray[Any] = self._dense.joint
        return joint

    @property
    def cardinalities(self) -> NDArray[np.intp]:
        """Increasing sizes in 1..s."""
        return self.form.cardinalities

    @property
    def n_labels(self) -> int:
        """Number of labels s."""
        return self.form.shape[1]

    def marginals(self) -> NDArray[Any]:
        """Return ``P(y_j = 1 | x_i)``, of shape (n, s): a csr_array where labels are listed."""
        marginals: NDArray[Any] = self.form.marginals()
        return marginals

    def cardinality_distribution(self) -> NDArray[Any]:
        """Return ``P(|y| = k | x_i)`` for k in 0..s, of shape (n, s + 1).

        Rows of estimated statistics need not sum to 1. Where labels are listed, k ends at the
        largest of the cardinalities.
        """
        xp, device = self.form.place
        sizes = self.form.size_probabilities()
        listed = isinstance(self.form, composite.Sparse)
        width = 1 + (len(self.cardinalities) if listed else self.n_labels)
        out: NDArray[Any] = xp.zeros((len(self), width), dtype=sizes.dtype, device=device)
        out[:, 0] = astype(xp, self.empty, sizes.dtype)
        for i, k in enumerate(self.cardinalities):
            out[:, int(k)] = sizes[:, i]
        return out

    def astype(self, dtype: Any) -> LabelStatistics:
        """Return the statistics in numbers of another type, in the same form.

        Examples
        --------
        >>> LabelStatistics.from_marginals([[0.9, 0.5]]).astype(np.float32).form.P.dtype
        dtype('float32')
        """
        return self._of(self.form.astype(dtype))

    def unfolded(self) -> LabelStatistics:
        """Return the statistics with every number in place: more memory, and no work later."""
        return self._of(self._dense)

    def to_code(self) -> NDArray[Any]:
        """Return the components in the order of :func:`encode`, of shape (n, 1 + K s)."""
        xp, joint = self.form.place[0], self.joint
        rows = xp.reshape(joint, (len(self), joint.shape[1] * joint.shape[2]))
        empty = astype(xp, self.empty, joint.dtype)
        code: NDArray[Any] = xp.concat([empty[:, None], rows], axis=1)
        return code

    @classmethod
    def from_code(cls, code: Array, cardinalities: Any, n_labels: int) -> LabelStatistics:
        """Build statistics from the components in the order of :func:`encode`.

        Parameters
        ----------
        code : array of shape (n, 1 + K s)
            Component 0 is ``q_0``, component ``1 + k s + j`` is ``q_jk``.
        cardinalities : array-like of shape (K,)
            Increasing sizes in 1..s.
        n_labels : int
            Number of labels s.
        """
        xp, _ = namespace_and_device(code=code)
        joint = xp.reshape(code[:, 1:], (code.shape[0], len(cardinalities), n_labels))
        return cls(code[:, 0], joint, cardinalities)

    @classmethod
    def from_labels(cls, Y: Any) -> LabelStatistics:
        """Build the statistics of label sets that are known: all mass on the given set.

        Parameters
        ----------
        Y : labels of n instances
            0/1 array or sparse matrix of shape (n, s), DataFrame, or sequence of label sets.
        """
        return cls.from_code(*encoding.encode_labels(Y))

    @classmethod
    def from_marginals(cls, P: Any, sizes: Any = None, unlisted: Any = None) -> LabelStatistics:
        """Build the statistics of labels that are independent, perhaps given their number.

        Without ``sizes``, ``q_jk = p_j P(k - 1 of the other labels)``. With ``sizes``, ``q_jk =
        P(|y| = k) P(y_j = 1 | |y| = k)``: the number of labels has the given distribution, and
        given it the labels follow the conditional Bernoulli law.

        Parameters
        ----------
        P : array-like of shape (n, s), or list of s arrays of shape (n, 2)
            ``P(y_j = 1 | x_i)``; or what ``predict_proba`` of scikit-learn's multi-output
            classifiers returns. A sparse matrix holds those of the labels that are listed for each
            row; see :meth:`from_listed`.
        sizes : array-like of shape (n, m + 1), optional
            ``P(|y| = k | x_i)`` for k in 0..m, with m <= s.
        unlisted : float or array-like of shape (n,), optional
            For sparse ``P`` alone: as for :meth:`from_listed`.

        Returns
        -------
        LabelStatistics
            With the cardinalities 1..s, or 1..m. Sizes that labels with p = 0 and p = 1 rule out
            get the limit: labels with p = 1 come first, and those with p = 0 last.

        Examples
        --------
        >>> q = LabelStatistics.from_marginals([[0.9, 0.5]], sizes=[[0.0, 1.0]])
        >>> q.joint.round(3).tolist()
        [[[0.9, 0.1]]]
        """
        return cls._of(composite.read_factors(P, sizes, unlisted))

    @classmethod
    def from_listed(
        cls, indices: Any, values: Any, n_labels: int, *, sizes: Any = None, unlisted: Any = None
    ) -> LabelStatistics:
        """Build the statistics of rows that list few labels, out of any number of labels.

        Memory and time depend on the length of the lists alone.

        Parameters
        ----------
        indices : integer array-like of shape (n, L)
            The labels that are listed for each row, in 0..s - 1; negative for none.
        values : array-like of shape (n, L)
            Their marginals ``P(y_j = 1 | x_i)``.
        n_labels : int
            Number of labels s.
        sizes : array-like of shape (n, m + 1), optional
            ``P(|y| = k | x_i)`` for k in 0..m, of all labels together; with ``unlisted``, of the
            listed labels alone.
        unlisted : float or array-like of shape (n,), optional
            The expected number of labels that are not listed; they share it equally. It lowers the
            expected measure, and moves the best number of labels. 0 by default.

        Examples
        --------
        >>> q = LabelStatistics.from_listed([[7, 2]], [[0.9, 0.2]], n_labels=1_000_000)
        >>> q.marginals().indices.tolist(), q.n_labels
        ([2, 7], 1000000)
        """
        P = composite.lists_to_csr(indices, values, n_labels)
        return cls._of(composite.read_factors(P, sizes, unlisted))

    @classmethod
    def from_logits(cls, Z: Any, sizes: Any = None, unlisted: Any = None) -> LabelStatistics:
        """Build statistics as :meth:`from_marginals`, of probabilities that are not rounded.

        Parameters
        ----------
        Z : array-like of shape (n, s)
            Log-odds of the labels, of any size; -inf and inf for labels that are never or always
            there. A sparse matrix holds those of the labels that are listed for each row.
        sizes, unlisted
            As for :meth:`from_marginals`.

        Examples
        --------
        >>> q = LabelStatistics.from_logits([[80.0, 40.0, 0.0]], sizes=[[0.0, 1.0]])
        >>> q.marginals().round(3).tolist()
        [[1.0, 0.0, 0.0]]
        """
        return cls._of(composite.read_factors(Z, sizes, unlisted, log_odds=True))

    @classmethod
    def from_samples(cls, S: Any) -> LabelStatistics:
        """Build the empirical statistics of sampled label sets, with the cardinalities in these.

        Parameters
        ----------
        S : array-like of shape (n, m, s)
            ``m`` sampled label sets for each of ``n`` instances, 0/1.
        """
        xp, device = namespace_and_device(S=S)
        S = as_array(xp, device, S)
        if S.ndim != 3 or 0 in S.shape[1:]:
            raise ValueError(f"S must have shape (n, m, s) with m, s >= 1, got {tuple(S.shape)}")
        check_binary(S, "S")
        S = astype(xp, S, widest_float(xp, device))
        sizes = xp.sum(S, axis=2)
        cardinalities = [k for k in host_integers(xp.unique_values(sizes)) if k > 0]
        is_size = xp.stack([astype(xp, sizes == k, S.dtype) for k in (0, *cardinalities)], axis=1)
        joint = xp.matmul(is_size[:, 1:, :], S) / S.shape[1]
        empty = xp.sum(is_size[:, 0, :], axis=1) / S.shape[1]
        return cls(empty, joint, np.asarray(cardinalities, dtype=np.intp))

    @classmethod
    def from_distribution(cls, probabilities: Any, labelsets: Any) -> LabelStatistics:
        """Build the statistics of a distribution over label sets, with the cardinalities of these.

        Parameters
        ----------
        probabilities : array-like of shape (n, m)
            ``P(y = labelsets[l] | x_i)``.
        labelsets : labels of m sets
            0/1 array or sparse matrix of shape (m, s), DataFrame, or sequence of label sets.
        """
        xp, device = namespace_and_device(probabilities=probabilities)
        p = astype(xp, as_array(xp, device, probabilities), widest_float(xp, device))
        if xp is np:
            indicator = read_labels(labelsets, "labelsets")[1]
            cardinalities, s = encoding.observed_cardinalities(indicator), indicator.shape[1]
            code = encoding.encode(indicator, cardinalities).astype(np.float64)
        else:
            code, cardinalities, s = encoding.encode_labels(labelsets, like=p, name="labelsets")
        m = code.shape[0]
        if p.ndim != 2 or p.shape[1] != m:
            raise ValueError(
                f"probabilities must have shape (n, {m}), one column for each label set, "
                f"got {tuple(p.shape)}"
            )
        # sparse @ dense, because the product of an ndarray with a sparse array is a loop
        return cls.from_code((code.T @ p.T).T, cardinalities, s)

    @classmethod
    def mixture(
        cls, parts: Sequence[LabelStatistics], weights: ArrayLike | None = None
    ) -> LabelStatistics:
        """Average several statistics of the same instances, which are then decoded at once.

        Parameters
        ----------
        parts : sequence of LabelStatistics
            Of the same n instances and s labels, each with cardinalities of its own.
        weights : array-like of shape (len(parts),), optional
            Non-negative, divided by their sum; equal by default.

        Examples
        --------
        >>> a = LabelStatistics.from_labels([[1, 0]])
        >>> b = LabelStatistics.from_labels([[1, 1]])
        >>> LabelStatistics.mixture([a, b], [3, 1]).joint.tolist()
        [[[0.75, 0.0], [0.25, 0.25]]]
        """
        return cls._of(composite.average([part.form for part in parts], weights))

    @classmethod
    def concatenate(cls, parts: Sequence[LabelStatistics]) -> LabelStatistics:
        """Join the statistics of several groups of instances, which may differ in cardinalities.

        Parameters
        ----------
        parts : sequence of LabelStatistics
            With the same labels.

        Examples
        --------
        >>> a = LabelStatistics.from_labels([[1, 0]])
        >>> b = LabelStatistics.from_labels([[1, 1]])
        >>> LabelStatistics.concatenate([a, b]).marginals().tolist()
        [[1.0, 0.0], [1.0, 1.0]]
        """
        return cls._of(composite.concatenate([part.form for part in parts]))
