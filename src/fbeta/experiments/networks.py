"""One two-layer network under six losses and rules: what the head and the decode are worth."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from fbeta._array import optional_import
from fbeta.datasets import Dataset
from fbeta.experiments.cells import Cell
from fbeta.metrics import fbeta_score

for _package in ("torch", "skorch"):
    optional_import(_package, "torch", "the experiment on networks")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid  # noqa: E402

from fbeta.nn import CardinalityHead, FBetaNet, JointHead  # noqa: E402
from fbeta.nn.training import fbeta_of_rows, train, two_layers  # noqa: E402

DATASETS = ("scene", "yeast", "birds", "medical", "enron", "bibtex")
# share of the training rows that are held out, for early stopping and for the threshold
HELD_OUT_SHARE = 0.15
WIDTH, DROPOUT = 256, 0.4
# Ridnik et al. 2021: the exponent for negatives (0 for positives), and the shift of probabilities
_GAMMA, _MARGIN = 4.0, 0.05


def compute_network(cell: Cell, data: Dataset, device: str = "cpu") -> dict[str, Any]:
    """Train a network on a data set with a split; return F_1 on the test rows, and the epochs."""
    X, Y, X_test, Y_test = (_dense(part) for part in data.split)
    if not sp.issparse(data.X):
        scaler = StandardScaler().fit(X)
        X, X_test = (scaler.transform(part).astype(np.float32) for part in (X, X_test))
    seed, held = int(cell.parameters["seed"]), None
    if cell.method == "bce-best":
        order = np.random.default_rng(seed).permutation(len(X))
        n_held = int(HELD_OUT_SHARE * len(X))
        first, rest = order[:n_held], order[n_held:]
        held, (X, Y) = (X[first], Y[first]), (X[rest], Y[rest])
    batch, epochs, patience = (int(cell.parameters[k]) for k in ("batch", "epochs", "patience"))
    settings = FBetaNet(
        batch_size=batch,
        max_epochs=epochs,
        patience=patience,
        validation_fraction=HELD_OUT_SHARE,
        device=device,
    )
    sizes = [int(k) for k in np.unique(Y.sum(axis=1)) if k > 0]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if cell.method in ("joint", "cardinality"):
            kind = JointHead if cell.method == "joint" else CardinalityHead
            head: Any = kind(WIDTH, Y.shape[1], sizes)
        else:
            losses = {"soft-f1": soft_f1_loss, "asymmetric": asymmetric_loss}
            head = CutHead(WIDTH, Y.shape[1], losses.get(cell.method, binary_loss))
        body = two_layers(X.shape[1], WIDTH, DROPOUT)
        network = nn.Sequential(OrderedDict(body=body, head=head))
        epochs, _ = train(settings, network, X, Y, None, seed, None)
    network.eval()

    def logits(rows: NDArray[Any]) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(rows).to(device))

    if held is not None:
        head.tune(logits(held[0]), torch.from_numpy(held[1]).to(device))
    labels = head.decode(logits(X_test), 1.0).cpu().numpy()
    return {"score": fbeta_score(Y_test.astype(int), labels), "epochs": epochs}


def _dense(part: Any) -> NDArray[Any]:
    dense = part.toarray() if sp.issparse(part) else part
    return np.ascontiguousarray(dense, dtype=np.float32)


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
    """One logit for each label under a loss of rows, cut at a threshold; a head of `fbeta.nn`."""

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
