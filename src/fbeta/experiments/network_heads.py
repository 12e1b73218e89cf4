"""Last layers of other losses, with the face of the heads of :mod:`fbeta.nn`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from fbeta.nn.decoding import fbeta_of_rows

__all__ = ["AsymmetricHead", "CutHead", "SoftF1Head"]


class CutHead(nn.Module):
    """One logit for each label under BCE, cut at a threshold.

    Examples
    --------
    >>> head = CutHead(4, 2)
    >>> head.decode(torch.tensor([[1.0, -1.0]])).tolist()
    [[1, 0]]
    """

    def __init__(self, in_features: int, n_labels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, n_labels)
        self.threshold = 0.5

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.linear(features)
        return logits

    def loss(self, logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        """Return the loss of each row, or the mean of all."""
        found = self.of_rows(logits, target)
        return found if reduction == "none" else found.mean()

    def of_rows(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the sum of the binary losses of each row, of shape (n,)."""
        return binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)

    def decode(self, logits: Tensor, beta: float = 1.0) -> Tensor:
        """Return the labels above the threshold, whatever beta."""
        return (torch.sigmoid(logits) > self.threshold).to(torch.int8)

    def tune(self, logits: Tensor, target: Tensor, beta: float = 1.0) -> None:
        """Choose the threshold with the highest F_beta on some rows."""
        p, cuts = torch.sigmoid(logits), torch.linspace(0.01, 0.99, 99).tolist()
        scores = [float(fbeta_of_rows(p > cut, target, beta).mean()) for cut in cuts]
        self.threshold = cuts[max(range(len(cuts)), key=scores.__getitem__)]


class SoftF1Head(CutHead):
    """F_1 with probabilities in place of labels, of each row."""

    def of_rows(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return one less the soft F_1 of each row."""
        p = torch.sigmoid(logits)
        below = p.sum(1) + target.sum(1)
        return 1 - 2 * (p * target).sum(1) / (below + 1e-8)


class AsymmetricHead(CutHead):
    """The asymmetric loss: easy negatives count less (Ridnik et al. 2021), gammas 0 and 4."""

    gamma, margin = 4.0, 0.05

    def of_rows(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the sum over the labels of each row."""
        p = (torch.sigmoid(logits) - self.margin).clamp(min=0.0)
        negative = -(p**self.gamma) * torch.log1p(-p)
        return (target * -logsigmoid(logits) + (1 - target) * negative).sum(1)
