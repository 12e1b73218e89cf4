"""The logits of a network that is there already: decode them for any beta."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fbeta.datasets import CalibratedLaw
from fbeta.nn import decode

LABELS, FEATURES, BETAS = 5, 40, (0.5, 1.0, 2.0, 4.0)


def pretrained(sample) -> nn.Module:
    """Return a network that somebody has trained with BCE."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, LABELS)).double()
    X, Y = torch.tensor(sample.X), torch.tensor(sample.Y, dtype=torch.float64)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.1)
    for _ in range(12):
        for rows in torch.randperm(len(X)).split(100):
            optimiser.zero_grad()
            binary_cross_entropy_with_logits(network(X[rows]), Y[rows]).backward()
            optimiser.step()
    return network.eval()


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    law = CalibratedLaw(n_labels=LABELS, n_features=FEATURES, random_state=0)
    test = law.sample(5000, random_state=2)
    with torch.random.fork_rng():
        network = pretrained(law.sample(3000, random_state=1))
    with torch.no_grad():
        logits = network(torch.tensor(test.X))
    numbers = {}
    for beta in BETAS:
        sets = {"cut at 1/2": logits > 0, "decode": decode(logits, beta)}
        for name, labels in sets.items():
            numbers[f"F_{beta:g}, {name}"] = test.expected_fbeta(labels.numpy(), beta)
        numbers[f"F_{beta:g}, best possible"] = test.bayes_fbeta(beta)
    if output is not None:
        draw(Path(output), numbers)
    return numbers


def draw(folder: Path, numbers: dict[str, float]) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, axes = plt.subplots()
        for name, mark in (("cut at 1/2", "o-"), ("decode", "s-"), ("best possible", "--")):
            axes.plot(BETAS, [numbers[f"F_{beta:g}, {name}"] for beta in BETAS], mark, label=name)
        axes.set(xlabel="beta", ylabel="F_beta", title="One network, every beta", xscale="log")
        axes.set_xticks(BETAS, [f"{beta:g}" for beta in BETAS])
        axes.legend()
        figure.savefig(folder / "22_pretrained.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<44} {value:.3f}")
