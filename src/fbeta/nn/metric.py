"""The instance-averaged F_beta as a metric of torchmetrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fbeta._array import check_beta, check_number, optional_import
from fbeta.nn._inputs import check_rows, refuse_rows
from fbeta.nn.training import fbeta_of_rows

torchmetrics = optional_import("torchmetrics", "torch", "the metric FBetaScore")


class FBetaScore(torchmetrics.Metric):  # type: ignore[misc,name-defined]
    """F_beta of each instance, averaged over all of them; two empty sets count as 1.

    torchmetrics' own ``MultilabelFBetaScore`` averages over labels, and its ``samplewise`` form
    counts an empty row that was rightly left empty as 0.

    Parameters
    ----------
    beta : float > 0
        Weight of recall against precision.
    threshold : float in [0, 1]
        Where floats are cut, as elsewhere in torchmetrics: predictions that are floats are
        probabilities, or logits if any of a batch is outside [0, 1].
    validate_args : bool
        Whether to check that labels are 0/1, and that floats are not NaN: it waits for the device.
    **options
        As for :class:`torchmetrics.Metric`.

    Examples
    --------
    >>> score = FBetaScore(beta=1.0)
    >>> score.update(torch.tensor([[1, 0], [0, 0]]), torch.tensor([[1, 1], [0, 0]]))
    >>> round(score.compute().item(), 4)
    0.8333
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    def __init__(
        self,
        beta: float = 1.0,
        threshold: float = 0.5,
        validate_args: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.beta, self.validate_args = check_beta(beta), validate_args
        self.threshold = check_number("threshold", threshold)
        zero = torch.zeros((), dtype=torch.float64)
        self.add_state("total", zero, dist_reduce_fx="sum")
        self.add_state("instances", zero.clone(), dist_reduce_fx="sum")
        # a MetricCollection merges metrics whose states are equal after the first batch
        settings = torch.tensor([self.beta, self.threshold], dtype=torch.float64)
        self.add_state("settings", settings, dist_reduce_fx="mean")
        self.total: Tensor
        self.instances: Tensor

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add predictions and true labels of shape (..., s): 0/1, or probabilities or logits."""
        if preds.shape != target.shape or preds.ndim < 2:
            raise ValueError(
                "preds and target must be label sets of one shape (n, s), got "
                f"{tuple(preds.shape)} and {tuple(target.shape)}"
            )
        if self.validate_args:
            check_rows(target, (), overflow=True, soft=False)
        if preds.is_floating_point():
            if self.validate_args:
                refuse_rows(preds, "preds", {"values must not be NaN": preds.isnan().any(-1)})
            normalize = torchmetrics.utilities.compute.normalize_logits_if_needed
            preds = normalize(preds, "sigmoid") > self.threshold
        elif self.validate_args:
            check_rows(preds, (), overflow=True, what="preds")
        scores = fbeta_of_rows(preds, target, self.beta)
        self.total = self.total + scores.sum()
        self.instances = self.instances + scores.numel()

    def compute(self) -> Tensor:
        """Return the average, or nan where nothing was added."""
        return (self.total / self.instances).to(torch.get_default_dtype())
