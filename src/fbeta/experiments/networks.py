"""One two-layer network under six losses and rules: what the head and the decode are worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from fbeta._array import optional_import
from fbeta.datasets import Dataset
from fbeta.experiments.cells import Cell, Record
from fbeta.metrics import fbeta_score

__all__ = ["DATASETS", "NETWORKS", "compute_network", "network_cells", "network_rows"]

DATASETS = ("scene", "yeast", "birds", "medical", "enron", "bibtex")
#: The methods by name, and their titles.
NETWORKS = {
    "bce-half": "BCE, cut at 1/2",
    "bce-best": "BCE, best threshold",
    "soft-f1": "soft F_1, cut at 1/2",
    "asymmetric": "asymmetric loss, cut at 1/2",
    "joint": "the paper's surrogate, decode",
    "cardinality": "cardinality head, decode",
}
# share of the training rows that are held out, for early stopping and for the threshold
HELD_OUT_SHARE = 0.15
WIDTH, DROPOUT = 256, 0.4


def network_cells(
    datasets: Iterable[str], methods: Iterable[str], seeds: Iterable[int], **parameters: Any
) -> list[Cell]:
    """Return the cells of the table."""
    chosen = list(methods)
    unknown = [name for name in chosen if name not in NETWORKS]
    if unknown:
        raise ValueError(f"unknown networks {unknown}: expected some of {', '.join(NETWORKS)}")
    return [
        Cell("networks", data, method, {"seed": seed, **parameters})
        for data in datasets
        for method in chosen
        for seed in seeds
    ]


def compute_network(cell: Cell, data: Dataset, device: str = "cpu") -> dict[str, Any]:
    """Train a network on a data set with a split; return its F_1 on the test rows and its epochs.

    The cell has the parameters ``seed``, ``batch``, ``epochs`` and ``patience``.
    """
    torch = optional_import("torch", "torch", "the experiment on networks")
    optional_import("skorch", "torch", "the experiment on networks")
    from fbeta.nn.training import Network, Training, two_layers

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
    training = Training(1.0, 1e-3, 1e-2, batch, epochs, patience, HELD_OUT_SHARE, device)
    sizes = [int(k) for k in np.unique(Y.sum(axis=1)) if k > 0]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = _make_head(cell.method, Y.shape[1], sizes)
        network = Network(two_layers(X.shape[1], WIDTH, DROPOUT), head)
        epochs, _ = training.run(network, X, Y, None, seed)
    network.eval()

    def logits(rows: NDArray[Any]) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(rows).to(device))

    if held is not None:
        head.tune(logits(held[0]), torch.from_numpy(held[1]).to(device))
    labels = head.decode(logits(X_test), 1.0).cpu().numpy()
    return {"score": fbeta_score(Y_test.astype(int), labels), "epochs": epochs}


def _make_head(method: str, s: int, sizes: list[int]) -> Any:
    from fbeta.experiments.network_heads import CutHead, asymmetric_loss, soft_f1_loss
    from fbeta.nn import CardinalityHead, JointHead

    if method in ("joint", "cardinality"):
        return (JointHead if method == "joint" else CardinalityHead)(WIDTH, s, sizes)
    losses = {"soft-f1": soft_f1_loss, "asymmetric": asymmetric_loss}
    return CutHead(WIDTH, s, *([losses[method]] if method in losses else []))


def _dense(part: Any) -> NDArray[Any]:
    dense = part.toarray() if sp.issparse(part) else part
    return np.ascontiguousarray(dense, dtype=np.float32)


def network_rows(records: Sequence[Record]) -> list[list[Any]]:
    """Return the table, a header first: mean and spread over the seeds."""
    scores: dict[tuple[str, str], list[float]] = {}
    for record in records:
        key = (record.cell.dataset, record.cell.method)
        scores.setdefault(key, []).append(float(record.result["score"]))
    rows = [
        [data, method, len(found), float(np.mean(found)), float(np.std(found))]
        for (data, method), found in scores.items()
    ]
    return [["data set", "network", "seeds", "mean F_1", "spread"], *rows]
