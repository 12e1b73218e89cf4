"""Losses and heads as modules: what to put at the end of a network in place of BCE."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from fbeta._validation import check_count
from fbeta.nn import functional as F
from fbeta.nn._law import logits_and_sizes
from fbeta.nn._sizes import Sizes, read_logits, read_sizes
from fbeta.nn._targets import check_rows, forbid, forbid_components, hard_moments, place_sizes
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
    **options
        Of every call, such as ``overflow=True``: see :mod:`fbeta.nn.functional`.

    Examples
    --------
    >>> import torch
    >>> round(JointLoss(2)(torch.zeros(1, 5), torch.tensor([[1, 0]])).item(), 4)
    3.4657
    """

    _function = staticmethod(F.joint_loss)

    def __init__(self, cardinalities: Sizes, reduction: str = "mean", **options: Any) -> None:
        super().__init__()
        self.cardinalities, self.reduction, self.options = cardinalities, reduction, options

    def forward(self, logits: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Return the loss of logits for labels of shape (..., s); options are of this call."""
        options = {"reduction": self.reduction, **self.options, **options}
        return self._function(logits, target, self.cardinalities, **options)

    def extra_repr(self) -> str:
        """Say which sizes the logits are for."""
        return f"cardinalities={self.cardinalities}, reduction={self.reduction!r}"


class CardinalityLoss(JointLoss):
    """The likelihood :func:`fbeta.nn.functional.cardinality_loss` as a module.

    Parameters
    ----------
    cardinalities, reduction, **options
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

    sizes: Tensor
    beta = 1.0  # of a decode that is not told another

    def __init__(
        self, in_features: int, n_labels: int, cardinalities: Sizes, **options: Any
    ) -> None:
        super().__init__()
        self.n_labels = check_count("n_labels", n_labels)
        self.cardinalities = read_sizes(cardinalities, n_labels)
        self.options = options
        self.linear = nn.Linear(in_features, self.n_logits)
        self.register_buffer("sizes", torch.tensor(self.cardinalities, dtype=torch.int64))

    @classmethod
    def from_targets(
        cls, in_features: int, Y: Any, *, coverage: float = 0.999, **options: Any
    ) -> Self:
        """Make a head whose sizes and biases are those of training labels.

        Parameters
        ----------
        in_features : int
            Width of what comes in.
        Y : 0/1 tensor, array or sparse matrix of shape (n, s)
            Labels of the training rows.
        coverage : float in (0, 1]
            Share of the rows whose number of labels gets logits: the sizes are 1..K. Larger rows
            are taken as random subsets of their labels (``overflow=True``).
        **options
            Of the loss: see :mod:`fbeta.nn.functional`.

        Returns
        -------
        head
            At features of 0 it has the frequencies of labels and sizes in Y.
        """
        dense = Y.toarray() if sp.issparse(Y) else Y
        target = torch.as_tensor(dense)
        if target.ndim != 2 or not len(target):
            raise ValueError(f"Y must have shape (n, s) with n > 0, got {tuple(target.shape)}")
        check_rows(target, (), overflow=True, soft=False)
        count = target.to(torch.int64).sum(1).cpu().numpy()
        largest = int(np.quantile(count, coverage, method="higher"))
        head = cls(in_features, target.shape[1], max(1, largest), **{"overflow": True, **options})
        return head.start_at(target)

    def start_at(self, Y: Tensor) -> Self:
        """Set the biases to the frequencies in labels Y, of shape (n, s), and return the head."""
        with torch.no_grad():
            self.linear.bias.copy_(self._initial_bias(Y.detach().cpu().double()))
        return self

    @property
    @abstractmethod
    def n_logits(self) -> int:
        """How many logits an instance has."""

    @abstractmethod
    def _initial_bias(self, Y: Tensor) -> Tensor:
        """Return logits of the frequencies of labels and sizes in Y, of shape (n_logits,)."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of features of shape (..., in_features)."""
        logits: Tensor = self.linear(features)
        return logits

    @abstractmethod
    def loss(
        self, logits: Tensor, target: Tensor, reduction: str = "mean", **options: Any
    ) -> Tensor:
        """Return the loss of logits for labels of shape (..., s)."""

    @abstractmethod
    def statistics(self, logits: Tensor, label_mask: Tensor | None = None) -> Statistics:
        """Return the label statistics of logits."""

    def decode(
        self,
        logits: Tensor | Statistics,
        beta: float | Tensor | None = None,
        *,
        min_labels: Limit = 0,
        max_labels: Limit = None,
        label_mask: Tensor | None = None,
        return_expected: bool = False,
    ) -> Any:
        """Find the label set with the highest expected F_beta for each instance.

        Parameters
        ----------
        logits : tensor of shape (..., n_logits), or Statistics
        beta, min_labels, max_labels, return_expected
            As for :func:`fbeta.nn.functional.decode`; beta is 1 by default, and that of the decoder
            for :class:`DecoderHead`.
        label_mask : bool tensor that broadcasts to (..., s), optional
            Labels that may be predicted; only with logits.

        Returns
        -------
        labels : int8 tensor of shape (..., s)
        expected : tensor of shape (...,)
            Only with ``return_expected=True``. The statistics of :class:`JointHead` are separate
            estimates, and their sum may exceed 1: it is cut there.
        """
        given: Any = (self.beta if beta is None else beta, min_labels, max_labels)
        # of shape (...,) where each instance has its own
        beta, low, high = (p.reshape(-1) if isinstance(p, Tensor) and p.ndim else p for p in given)
        limits: dict[str, Any] = {"min_labels": low, "max_labels": high}
        if isinstance(logits, Tensor):
            leading = logits.shape[:-1]
            if label_mask is not None:
                label_mask = label_mask.expand(*leading, self.n_labels).flatten(0, -2)
            rows = logits.reshape(-1, logits.shape[-1])
            labels, expected = self._decode(rows, beta, label_mask, limits)
            labels, expected = labels.reshape(*leading, self.n_labels), expected.reshape(leading)
        else:
            labels, expected = F.decode(logits, beta, return_expected=True, **limits)
        return (labels, expected.clamp(max=1.0)) if return_expected else labels

    def _decode(
        self, logits: Tensor, beta: float | Tensor, label_mask: Tensor | None, limits: Any
    ) -> Any:
        q = self.statistics(logits, label_mask)
        return F.decode(q, beta, return_expected=True, **limits)

    def _load_from_state_dict(self, state: Any, prefix: str, *others: Any) -> None:
        """Refuse the weights of a head for other sizes; older states have no sizes."""
        errors, found = others[-1], state.get(f"{prefix}sizes", self.sizes)
        if found.tolist() != list(self.cardinalities):
            errors.append(
                f"{prefix}sizes: the state is of a head with cardinalities="
                f"{tuple(found.tolist())}, this one has {self.cardinalities}"
            )
        state[f"{prefix}sizes"] = self.sizes
        super()._load_from_state_dict(state, prefix, *others)

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
    **options
        Of the loss, such as ``overflow=True``: see :mod:`fbeta.nn.functional`.

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

    def _initial_bias(self, Y: Tensor) -> Tensor:
        labels, law = hard_moments(Y, self.cardinalities, Y.dtype)
        counts = [law[:, 0].sum()[None], (law[:, 1:].T @ labels).flatten()]
        return torch.logit((torch.cat(counts) + 0.5) / (len(Y) + 1))

    def loss(
        self, logits: Tensor, target: Tensor, reduction: str = "mean", **options: Any
    ) -> Tensor:
        """Return :func:`fbeta.nn.functional.joint_loss` for labels of shape (..., s)."""
        options = {"reduction": reduction, **self.options, **options}
        return F.joint_loss(logits, target, self.cardinalities, **options)

    def statistics(self, logits: Tensor, label_mask: Tensor | None = None) -> Statistics:
        """Return the statistics that the logits, of shape (n, 1 + K s), estimate."""
        if label_mask is not None:
            logits = read_logits(logits, self.n_logits, "one for each component")
            shape = (*logits.shape[:-1], len(self.cardinalities), self.n_labels)
            joint = forbid_components(
                logits[..., 1:].reshape(shape), label_mask, self.cardinalities
            )
            logits = torch.cat([logits[..., :1], joint.flatten(-2)], dim=-1)
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
    **options
        Of the loss, such as ``overflow=True``: see :mod:`fbeta.nn.functional`.

    Examples
    --------
    >>> import torch
    >>> head = CardinalityHead(8, n_labels=5, cardinalities=3)
    >>> logits = head(torch.zeros(2, 8))
    >>> logits.shape, head.statistics(logits).joint.shape
    (torch.Size([2, 9]), torch.Size([2, 3, 5]))

    With the sizes and frequencies of the training labels:

    >>> CardinalityHead.from_targets(8, torch.tensor([[1, 1, 0], [0, 1, 0]])).cardinalities
    (1, 2)
    """

    @property
    def n_logits(self) -> int:
        """How many logits an instance has, ``s + 1 + K``."""
        return self.n_labels + 1 + len(self.cardinalities)

    def _initial_bias(self, Y: Tensor) -> Tensor:
        scores = torch.logit((Y.sum(0) + 0.5) / (len(Y) + 1))
        zeros = torch.zeros(1, 1 + len(self.cardinalities), dtype=Y.dtype)
        law = logits_and_sizes(scores[None], zeros, self.cardinalities)[1]
        independent = torch.from_numpy(law).to(Y.dtype)
        place = place_sizes(Y, self.cardinalities).place
        seen = torch.bincount(place, minlength=zeros.shape[1]) + 0.5
        # the law of the size is that of independent labels times the exponential of these
        known = independent[0, [0, *self.cardinalities]]
        return torch.cat([scores, torch.log(seen / seen.sum()) - torch.log(known)])

    def loss(
        self, logits: Tensor, target: Tensor, reduction: str = "mean", **options: Any
    ) -> Tensor:
        """Return :func:`fbeta.nn.functional.cardinality_loss` for labels of shape (..., s)."""
        options = {"reduction": reduction, **self.options, **options}
        return F.cardinality_loss(logits, target, self.cardinalities, **options)

    def statistics(self, logits: Tensor, label_mask: Tensor | None = None) -> Statistics:
        """Return the statistics of the model for logits of shape (n, s + 1 + K)."""
        return F.cardinality_statistics(
            self._masked(logits, label_mask), self.n_labels, self.cardinalities
        )

    def _masked(self, logits: Tensor, label_mask: Tensor | None) -> Tensor:
        if label_mask is None:
            return logits
        logits = read_logits(logits, self.n_logits, "labels and sizes")
        return forbid(logits, label_mask, self.cardinalities)

    def _decode(
        self, logits: Tensor, beta: float | Tensor, label_mask: Tensor | None, limits: Any
    ) -> Any:
        logits = self._masked(logits, label_mask)
        return F.decode_cardinality(
            logits, self.n_labels, self.cardinalities, beta, return_expected=True, **limits
        )
