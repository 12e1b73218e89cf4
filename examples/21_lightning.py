"""A Lightning module with a head, its loss, the exact decode and the metric."""

import logging
import sys
import warnings
from pathlib import Path

import lightning
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fbeta.datasets import CalibratedLaw
from fbeta.nn import CardinalityHead, FBetaScore

LABELS, FEATURES = 5, 40


class Tagger(lightning.LightningModule):
    """Two layers; what is of this library are the three lines with a comment."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU())
        self.head = CardinalityHead(64, n_labels=LABELS, cardinalities=LABELS)  # the head
        self.score = FBetaScore(beta=1.0)  # the metric, reduced over all processes
        self.history: list[float] = []

    def forward(self, X):
        return self.head(self.body(X))

    def training_step(self, batch, _):
        X, Y = batch
        return self.head.loss(self(X), Y)  # the loss

    def validation_step(self, batch, _):
        X, Y = batch
        self.score(self.head.decode(self(X), self.score.beta), Y)
        self.log("F_1", self.score, on_epoch=True)

    def on_validation_epoch_end(self):
        self.history.append(float(self.trainer.callback_metrics["F_1"]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3, weight_decay=0.1)


def loader(sample, shuffle: bool = False) -> DataLoader:
    rows = TensorDataset(torch.tensor(sample.X), torch.tensor(sample.Y))
    return DataLoader(rows, batch_size=100, shuffle=shuffle)


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    law = CalibratedLaw(n_labels=LABELS, n_features=FEATURES, random_state=0)
    train, test = law.sample(3000, random_state=1), law.sample(2000, random_state=2)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning, on the number of workers
        torch.manual_seed(0)
        model = Tagger().double()
        trainer = lightning.Trainer(
            max_epochs=8, accelerator="cpu", devices=1, logger=False, num_sanity_val_steps=0,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(model, loader(train, shuffle=True), loader(test))
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor(test.X))
    numbers = {
        f"expected F_{beta:g}": test.expected_fbeta(model.head.decode(logits, beta).numpy(), beta)
        for beta in (0.5, 1.0, 2.0)
    }
    numbers |= {
        "F_1 after the first epoch": model.history[0],
        "F_1 after the last epoch": model.history[-1],
        "best possible F_1": test.bayes_fbeta(),
    }
    if output is not None:
        draw(Path(output), model.history, numbers["best possible F_1"])
    return numbers


def draw(folder: Path, history: list[float], best: float) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, axes = plt.subplots()
        axes.plot(range(1, len(history) + 1), history, "o-", label="validation rows")
        axes.axhline(best, linestyle="--", color="0.5", label="best possible in expectation")
        axes.set(xlabel="epoch", ylabel="F_1", title="F_1 of the decoded sets")
        axes.legend()
        figure.savefig(folder / "21_lightning.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<44} {value:.3f}")
