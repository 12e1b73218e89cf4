"""Label statistics of logits, on the device of the logits and with gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fbeta.nn._law import leave_one_out
from fbeta.nn._polynomials import product_tree, without_each
from fbeta.nn._sizes import Sizes, read_rows, read_sizes, widest
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = [
    "Statistics",
    "cardinality_statistics",
    "independent_statistics",
    "joint_statistics",
]


class Statistics(NamedTuple):
    """What the decoder needs, of n instances, as tensors on one device.

    Attributes
    ----------
    empty : tensor of shape (n,)
        ``P(no labels)``.
    joint : tensor of shape (n, K, s)
        ``P(|y| = cardinalities[k], y_j = 1)``.
    cardinalities : tuple of K int
        Increasing sizes in 1..s.
    """

    empty: Tensor
    joint: Tensor
    cardinalities: tuple[int, ...]

    def marginals(self) -> Tensor:
        """Return ``P(y_j = 1)``, of shape (n, s)."""
        return self.joint.sum(1)

    def label_statistics(self) -> LabelStatistics:
        """Return them as :class:`fbeta.LabelStatistics`, over the same tensors."""
        return LabelStatistics(self.empty, self.joint, self.cardinalities)


def joint_statistics(logits: Tensor, n_labels: int, cardinalities: Sizes) -> Statistics:
    """Return the statistics that the logits of the paper's surrogate estimate.

    Parameters
    ----------
    logits : tensor of shape (n, 1 + K s)
        As for :func:`fbeta.nn.functional.joint_loss`.
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        Sizes; a number K stands for 1..K.

    Returns
    -------
    Statistics

    Examples
    --------
    >>> joint_statistics(torch.zeros(1, 3), 2, [1]).joint.tolist()
    [[[0.5, 0.5]]]
    """
    sizes = read_sizes(cardinalities, n_labels)
    K = len(sizes)
    logits = read_rows(logits, 1 + K * n_labels, f"1 + {K} sizes times {n_labels} labels")
    p = torch.sigmoid(logits.to(torch.promote_types(logits.dtype, torch.float32)))
    return Statistics(p[:, 0], p[:, 1:].reshape(p.shape[0], K, n_labels), sizes)


def cardinality_statistics(logits: Tensor, n_labels: int, cardinalities: Sizes) -> Statistics:
    """Return the statistics of the cardinality model.

    Parameters
    ----------
    logits : tensor of shape (n, s + 1 + K)
        As for :func:`fbeta.nn.functional.cardinality_loss`.
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        Sizes; a number K stands for 1..K.

    Returns
    -------
    Statistics
        In double precision.

    Examples
    --------
    >>> cardinality_statistics(torch.zeros(1, 5), 2, 2).joint.tolist()
    [[[0.25, 0.25], [0.25, 0.25]]]
    """
    sizes = read_sizes(cardinalities, n_labels)
    width = n_labels + 1 + len(sizes)
    logits = read_rows(logits, width, f"{n_labels} labels and 1 + {len(sizes)} sizes")
    probabilities, joint = leave_one_out(logits[:, :n_labels], logits[:, n_labels:], sizes)
    return Statistics(probabilities[0], joint.permute(2, 0, 1), sizes)


def independent_statistics(logits: Tensor) -> Statistics:
    """Return the statistics of independent labels, as those of a network fitted with BCE.

    Parameters
    ----------
    logits : tensor of shape (n, s)
        Of the labels.

    Returns
    -------
    Statistics
        In double precision, with all sizes 1..s: s^2 numbers for each instance.

    Examples
    --------
    >>> independent_statistics(torch.zeros(1, 2)).joint.tolist()
    [[[0.25, 0.25], [0.25, 0.25]]]
    """
    z = logits.to(widest(logits.device)).T
    s = z.shape[0]
    levels = product_tree(torch.sigmoid(-z), torch.sigmoid(z), s)
    joint = without_each(levels, s - 1)[:, :s] * levels[0][1, :s]
    return Statistics(levels[-1][0, 0], joint.permute(2, 0, 1), tuple(range(1, s + 1)))
