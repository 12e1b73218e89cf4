"""The training of one network on skorch: early stopping on F_beta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from skorch import NeuralNet
from skorch.callbacks import EarlyStopping, EpochScoring
from skorch.dataset import ValidSplit
from skorch.utils import to_device
from torch import Tensor, nn

from fbeta.nn.decoding import fbeta_of_rows

__all__ = ["Schedule", "train"]


@dataclass(frozen=True)
class Schedule:
    """How a network is trained; the parameters are those of :class:`fbeta.nn.FBetaNet`."""

    beta: float
    lr: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    validation_fraction: float
    device: str
    verbose: int


class _Trainer(NeuralNet):  # type: ignore[misc]
    """skorch's loop with the loss of the head; the last column of y has the weights."""

    def get_loss(self, y_pred: Tensor, y_true: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        y_true = to_device(y_true, y_pred.device)
        loss: Tensor = self.module_.head.loss(y_pred, y_true[:, :-1], reduction="none")
        return (loss * y_true[:, -1]).mean()


def train(
    network: nn.Module, X: NDArray[Any], Y: NDArray[Any], weight: Any, plan: Schedule, seed: int
) -> int:
    """Train a network in place, and return after how many epochs it was best.

    Parameters
    ----------
    network : Module
        With a ``head`` that has a ``loss`` and a ``decode``, as those of this library.
    X : ndarray of shape (n, d)
        Features, float32.
    Y : ndarray of shape (n, s)
        Labels, float32.
    weight : ndarray of shape (n,), or None
        Weights of the rows.
    plan : Schedule
        How to train.
    seed : int
        For the split; other random numbers are PyTorch's.

    Returns
    -------
    int
    """
    share = np.ones(len(Y)) if weight is None else weight * (len(weight) / weight.sum())
    y = np.column_stack([Y, share]).astype(np.float32)
    held_out = int(plan.validation_fraction * len(X))
    callbacks: list[Any] = []
    if held_out:
        monitor = EpochScoring(_scoring(plan.beta), lower_is_better=False, name="valid_fbeta")
        stop = EarlyStopping(
            "valid_fbeta", patience=plan.patience, lower_is_better=False, threshold=0.0,
            load_best=True, sink=print if plan.verbose else _silent,
        )  # fmt: skip
        callbacks = [("score", monitor), ("stop", stop)]
    trainer = _Trainer(
        network, nn.Identity, optimizer=torch.optim.AdamW, lr=plan.lr,
        optimizer__weight_decay=plan.weight_decay, batch_size=plan.batch_size,
        max_epochs=plan.max_epochs, iterator_train__shuffle=True, callbacks=callbacks,
        train_split=ValidSplit(held_out / len(X), random_state=seed) if held_out else None,
        device=plan.device, verbose=plan.verbose,
    )  # fmt: skip
    trainer.fit(X, y)
    if not held_out:
        return len(trainer.history)
    # when max_epochs ends the training, the best epoch may be behind as well
    stopper = dict(trainer.callbacks_)["stop"]
    if stopper.best_model_weights_ is not None:
        trainer.module_.load_state_dict(stopper.best_model_weights_)
    return int(stopper.best_epoch_)


def _silent(*_: Any) -> None:
    """Say nothing."""


def _scoring(beta: float) -> Any:
    """Return the score of validation rows: the weighted F_beta of their decoded logits."""

    def score(net: Any, X: Any, y: Any) -> float:
        logits = torch.cat(list(net.forward_iter(X)))
        target = torch.as_tensor(np.asarray(y), device=logits.device)
        with torch.no_grad():
            labels = net.module_.head.decode(logits, beta)
        weight = target[:, -1].double()
        scores = fbeta_of_rows(labels, target[:, :-1], beta)
        return float((scores * weight).sum() / weight.sum())

    return score
