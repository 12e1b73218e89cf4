"""The training of one network on skorch: early stopping on F_beta after the decode."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fbeta._array import optional_import
from fbeta.linear.learner import Weight
from fbeta.metrics import fbeta_of_counts

# with batch_size="auto": limits of the rows of a step, and steps of a pass between these
MIN_BATCH, MAX_BATCH, PASS_STEPS = 32, 256, 60
DECAY = 0.3  # factor of the learning rate where F_beta of the held-out rows has not risen


def train(
    settings: Any, network: nn.Module, X: Any, Y: Any, weight: Any, seed: int, held_out: Any
) -> tuple[int, Any]:
    """Train a network of a body and a head in place; return its best epoch and the history.

    ``settings`` has the parameters; ``held_out`` are X and y of other rows for early stopping, or
    None for a share of these.
    """
    skorch = optional_import("skorch", "torch", "FBetaNet")
    from skorch.helper import predefined_split

    few = int(settings.validation_fraction * len(X))
    split = skorch.dataset.ValidSplit(few / len(X), random_state=seed) if few else None
    if held_out is not None:
        split = predefined_split(skorch.dataset.Dataset(*held_out))
    trainer = make_trainer(settings, network, len(X), split)
    trainer.fit(X, with_weights(Y, weight))
    stopper = dict(trainer.callbacks_).get("stop")
    if stopper is None:
        return len(trainer.history), trainer.history
    # where max_epochs ended the training, the best epoch may be an earlier one as well
    if stopper.best_model_weights_ is not None:
        trainer.module_.load_state_dict(stopper.best_model_weights_)
    return int(stopper.best_epoch_), trainer.history


def make_trainer(settings: Any, network: nn.Module, n: int, split: Any) -> Any:
    """Return skorch's trainer of a network for n rows, with early stopping if rows are split."""
    skorch = optional_import("skorch", "torch", "FBetaNet")
    callbacks: list[Any] = []
    if split is not None:
        better: dict[str, Any] = {"lower_is_better": False}
        score = skorch.callbacks.EpochScoring(_scoring(settings.beta), name="valid_fbeta", **better)
        stop = skorch.callbacks.EarlyStopping(
            "valid_fbeta",
            patience=settings.patience,
            threshold=0.0,
            load_best=True,
            sink=print if settings.verbose else skorch.utils.noop,
            **better,
        )
        callbacks = [("score", score), ("stop", stop)]
        given = [c[1] if isinstance(c, tuple) else c for c in settings.callbacks or []]
        if not any(isinstance(callback, skorch.callbacks.LRScheduler) for callback in given):
            decay = skorch.callbacks.LRScheduler(
                "ReduceLROnPlateau",
                monitor="valid_fbeta",
                mode="max",
                factor=DECAY,
                patience=settings.patience // 3,
            )
            callbacks.insert(1, ("decay", decay))
    batch = settings.batch_size
    if batch == "auto":
        batch = min(max(n // PASS_STEPS, MIN_BATCH), MAX_BATCH)
    return skorch.NeuralNet(
        network,
        partial(partial, _weighted_loss, network.head),
        optimizer=torch.optim.AdamW,
        lr=settings.lr,
        optimizer__weight_decay=settings.weight_decay,
        batch_size=batch,
        max_epochs=settings.max_epochs,
        iterator_train__shuffle=True,
        callbacks=[*callbacks, *deepcopy(list(settings.callbacks or []))],
        train_split=split,
        device=settings.device,
        verbose=settings.verbose,
    )


def _weighted_loss(head: Any, logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean loss under a head; the last column of the target has the weights."""
    target = target.to(logits.device)
    losses: Tensor = head.loss(logits, target[:, :-1], reduction="none")
    return (losses * target[:, -1]).mean()


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


def two_layers(d: int, hidden: int, dropout: float) -> nn.Sequential:
    """Return two layers with ReLU and dropout."""
    layers: list[nn.Module] = []
    for width in (d, hidden):
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def with_weights(Y: NDArray[Any], weight: Weight) -> NDArray[np.float32]:
    """Return labels of shape (n, s), and weights with the mean 1 in a further column."""
    share = np.ones(len(Y)) if weight is None else weight * (len(weight) / weight.sum())
    return np.column_stack([Y, share]).astype(np.float32)


def fbeta_of_rows(preds: Tensor, target: Tensor, beta: float) -> Tensor:
    """Return the F_beta of each row of label sets of shape (n, s), where two empty sets have 1."""
    predicted, true = preds > 0, target > 0
    hits, k, size = (part.sum(-1).double() for part in (predicted & true, true, predicted))
    scores: Any = fbeta_of_counts(hits, k, size, beta)
    return torch.as_tensor(scores)
