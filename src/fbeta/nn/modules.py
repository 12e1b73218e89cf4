"""Losses and heads as modules: what to put at the end of a network in place of BCE."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from fbeta._validation import check_count
from fbeta.nn import functional as F
from fbeta.nn._sizes import Sizes, read_sizes
from fbeta.nn.decoding import Limit
from fbeta.nn.statistics import Statistics

__all__ = ["CardinalityHead", "CardinalityLoss", "JointHead", "JointLoss"]


class JointLoss(nn.Module):
    """The paper's surrogate, :func:`fbeta.nn.functional.joint_loss`, as a module.

    Parameters
    ----------
    cardinalities : int or sequence of int
        The sizes that the logits are for; a number K stands for 1..K.
    reduction : {"mean", "sum", "none"}
        Over the instances.

    Examples
    --------
    >>> import torch
    >>> round(JointLoss(2)(torch.zeros(1, 5), torch.tensor([[1, 0]])).item(), 4)
    3.4657
    """

    _function = staticmethod(F.joint_loss)

    def __init__(self, cardinalities: Sizes, reduction: str = "mean") -> None:
        super().__init__()
        self.cardinalities, self.reduction = cardinalities, reduction

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits for labels of shape (n, s)."""
        return self._function(logits, target, self.cardinalities, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Say which sizes the logits are for."""
        return f"cardinalities={self.cardinalities}, reduction={self.reduction!r}"


class CardinalityLoss(JointLoss):
    """The likelihood :func:`fbeta.nn.functional.cardinality_loss` as a module.

    Parameters
    ----------
    cardinalities, reduction
        As for :class:`JointLoss`.

    Examples
    --------
    >>> import torch
    >>> round(CardinalityLoss(2)(torch.zeros(1, 5), torch.tensor([[1, 0]])).item(), 4)
    1.3863
    """

    _function = staticmethod(F.cardinality_loss)


class _Head(nn.Module, ABC):
    """A linear layer to logits, the loss of these, their statistics and the decode."""

    def __init__(self, in_features: int, n_labels: int, cardinalities: Sizes) -> None:
        super().__init__()
        self.n_labels = check_count("n_labels", n_labels)
        self.cardinalities = read_sizes(cardinalities, n_labels)
        self.linear = nn.Linear(in_features, self.n_logits)

    @property
    @abstractmethod
    def n_logits(self) -> int:
        """How many logits an instance has."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of features of shape (n, in_features)."""
        logits: Tensor = self.linear(features)
        return logits

    @abstractmethod
    def loss(self, logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        """Return the loss of logits for labels of shape (n, s)."""

    @abstractmethod
    def statistics(self, logits: Tensor) -> Statistics:
        """Return the label statistics of logits."""

    def decode(
        self,
        logits: Tensor | Statistics,
        beta: float | Tensor = 1.0,
        *,
        min_labels: Limit = 0,
        max_labels: Limit = None,
        return_expected: bool = False,
    ) -> Any:
        """Find the label set with the highest expected F_beta for each instance.

        Parameters
        ----------
        logits : tensor or Statistics
            Of n instances.
        beta, min_labels, max_labels, return_expected
            As for :func:`fbeta.nn.functional.decode`.

        Returns
        -------
        labels : int8 tensor of shape (n, s)
        expected : tensor of shape (n,)
            Only with ``return_expected=True``.
        """
        options: dict[str, Any] = {
            "min_labels": min_labels, "max_labels": max_labels, "return_expected": return_expected,
        }  # fmt: skip
        if isinstance(logits, Tensor):
            return self._decode(logits, beta, options)
        return F.decode(logits, beta, **options)

    def _decode(self, logits: Tensor, beta: float | Tensor, options: dict[str, Any]) -> Any:
        return F.decode(self.statistics(logits), beta, **options)

    def extra_repr(self) -> str:
        """Say how many labels there are, and which sizes."""
        return f"n_labels={self.n_labels}, cardinalities={self.cardinalities}"


class JointHead(_Head):
    """The last layer of a network for the paper's surrogate: ``1 + K s`` logits.

    Parameters
    ----------
    in_features : int
        Width of what comes in.
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        Sizes of label sets that get logits; a number K stands for 1..K.

    Examples
    --------
    >>> import torch
    >>> head = JointHead(8, n_labels=5, cardinalities=3)
    >>> logits = head(torch.zeros(2, 8))
    >>> logits.shape, head.loss(logits, torch.zeros(2, 5)).shape
    (torch.Size([2, 16]), torch.Size([]))
    >>> head.decode(logits, beta=2.0).shape
    torch.Size([2, 5])
    """

    @property
    def n_logits(self) -> int:
        """How many logits an instance has, ``1 + K s``."""
        return 1 + len(self.cardinalities) * self.n_labels

    def loss(self, logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        """Return :func:`fbeta.nn.functional.joint_loss` for labels of shape (n, s)."""
        return F.joint_loss(logits, target, self.cardinalities, reduction=reduction)

    def statistics(self, logits: Tensor) -> Statistics:
        """Return the statistics that the logits estimate."""
        return F.joint_statistics(logits, self.n_labels, self.cardinalities)


class CardinalityHead(_Head):
    """The last layer of a network for the cardinality model: ``s + 1 + K`` logits.

    It has hardly more weights than a layer for BCE, and gives the law of whole label sets.

    Parameters
    ----------
    in_features : int
        Width of what comes in.
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        Sizes that label sets may have beside 0; a number K stands for 1..K.

    Examples
    --------
    >>> import torch
    >>> head = CardinalityHead(8, n_labels=5, cardinalities=3)
    >>> logits = head(torch.zeros(2, 8))
    >>> logits.shape, head.statistics(logits).joint.shape
    (torch.Size([2, 9]), torch.Size([2, 3, 5]))
    """

    @property
    def n_logits(self) -> int:
        """How many logits an instance has, ``s + 1 + K``."""
        return self.n_labels + 1 + len(self.cardinalities)

    def loss(self, logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        """Return :func:`fbeta.nn.functional.cardinality_loss` for labels of shape (n, s)."""
        return F.cardinality_loss(logits, target, self.cardinalities, reduction=reduction)

    def statistics(self, logits: Tensor) -> Statistics:
        """Return the statistics of the model."""
        return F.cardinality_statistics(logits, self.n_labels, self.cardinalities)

    def _decode(self, logits: Tensor, beta: float | Tensor, options: dict[str, Any]) -> Any:
        return F.decode_cardinality(logits, self.n_labels, self.cardinalities, beta, **options)
