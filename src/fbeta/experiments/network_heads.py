"""A last layer for other losses, with the methods of the heads of :mod:`fbeta.nn`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from fbeta.nn.decoding import fbeta_of_rows

__all__ = ["CutHead", "asymmetric_loss", "binary_loss", "soft_f1_loss"]

# Ridnik et al. 2021: the exponent for negatives (0 for positives), and the shift of probabilities
_GAMMA, _MARGIN = 4.0, 0.05


def binary_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Return the sum of the binary cross-entropies of each row (n,)."""
    return binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)


def soft_f1_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Return one minus F_1 with probabilities in place of labels, for each row (n,)."""
    p = torch.sigmoid(logits)
    return 1 - 2 * (p * target).sum(1) / (p.sum(1) + target.sum(1) + 1e-8)


def asymmetric_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Return the asymmetric loss of each row (n,): easy negatives count less."""
    p = (torch.sigmoid(logits) - _MARGIN).clamp(min=0.0)
    negative = -(p**_GAMMA) * torch.log1p(-p)
    return (target * -logsigmoid(logits) + (1 - target) * negative).sum(1)


class CutHead(nn.Module):
    """One logit for each label under a loss of rows, cut at a threshold."""

    def __init__(
        self,
        in_features: int,
        n_labels: int,
        row_loss: Callable[[Tensor, Tensor], Tensor] = binary_loss,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, n_labels)
        self.row_loss, self.threshold = row_loss, 0.5

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits (n, s)."""
        logits: Tensor = self.linear(features)
        return logits

    def loss(self, logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        """Return the loss of each row (n,), or the mean of all."""
        found = self.row_loss(logits, target)
        return found if reduction == "none" else found.mean()

    def decode(self, logits: Tensor, beta: float = 1.0) -> Tensor:
        """Return the labels above the threshold, whatever beta."""
        return (torch.sigmoid(logits) > self.threshold).to(torch.int8)

    def tune(self, logits: Tensor, target: Tensor, beta: float = 1.0) -> None:
        """Choose the threshold with the highest F_beta on some rows."""
        p, cuts = torch.sigmoid(logits), torch.linspace(0.01, 0.99, 99).tolist()
        scores = [float(fbeta_of_rows(p > cut, target, beta).mean()) for cut in cuts]
        self.threshold = cuts[max(range(len(cuts)), key=scores.__getitem__)]
