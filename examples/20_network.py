"""A network: BCE and a threshold, or a head of this library and the exact decode."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fbeta.datasets import CalibratedLaw
from fbeta.nn import CardinalityHead, JointHead
from fbeta.nn.metric import fbeta_of_rows

EPOCHS, BATCH, LABELS, FEATURES = 12, 100, 5, 40


def fit(head: nn.Module, loss, X, Y) -> nn.Module:
    """Train two layers, as everybody does."""
    network = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), head).double()
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.1)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(X)).split(BATCH):
            optimiser.zero_grad()
            loss(network(X[rows]), Y[rows]).backward()
            optimiser.step()
    return network


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    law = CalibratedLaw(n_labels=LABELS, n_features=FEATURES, random_state=0)
    train, test = law.sample(3000, random_state=1), law.sample(5000, random_state=2)
    X, Y, X_test = (torch.tensor(a, dtype=torch.float64) for a in (train.X, train.Y, test.X))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bce = fit(nn.Linear(64, LABELS), binary_cross_entropy_with_logits, X, Y)
        heads = {}
        for head in (JointHead(64, LABELS, LABELS), CardinalityHead(64, LABELS, LABELS)):
            heads[head] = fit(head, head.loss, X, Y)
    with torch.no_grad():
        p, cut = torch.sigmoid(bce(X_test)), best_cut(torch.sigmoid(bce(X)), Y)
        labels = {"BCE, cut at 1/2": p > 0.5, "BCE, best cut": p > cut}
        for head, network in heads.items():
            labels[f"{type(head).__name__}, decode"] = head.decode(network(X_test))
    numbers = {f"F_1, {name}": test.expected_fbeta(y.numpy()) for name, y in labels.items()}
    numbers["F_1, best possible"] = test.bayes_fbeta()
    numbers["the best cut"] = cut
    if output is not None:
        draw(Path(output), numbers)
    return numbers


def best_cut(p, Y) -> float:
    """Return the one threshold with the highest F_1 on the training rows."""
    cuts = torch.linspace(0.05, 0.95, 37)
    scores = torch.stack([fbeta_of_rows(p > cut, Y, 1.0).mean() for cut in cuts])
    return float(cuts[scores.argmax()])


def draw(folder: Path, numbers) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, axes = plt.subplots()
        names = [name for name in numbers if name.startswith("F_1")]
        values = [numbers[name] for name in names]
        axes.barh([name.removeprefix("F_1, ") for name in names], values)
        axes.set(xlim=(min(values) - 0.05, max(values) + 0.01), xlabel="F_1 on new rows")
        axes.invert_yaxis()
        figure.savefig(folder / "20_network.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<44} {value:.3f}")
