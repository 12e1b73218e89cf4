"""One fitted model, every beta: turn predictions towards precision or recall after training."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fbeta import FBetaClassifier
from fbeta.datasets import CalibratedLaw
from fbeta.metrics import precision_score, recall_score

BETAS = np.geomspace(0.25, 4.0, 9)


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    law = CalibratedLaw(n_labels=4, n_features=40, random_state=0)
    train, test = law.sample(2000, random_state=1), law.sample(4000, random_state=2)

    model = FBetaClassifier(alpha=1.0).fit(train.X, train.Y)
    predictions = {beta: model.predict(test.X, beta=beta) for beta in BETAS}

    precision = [precision_score(test.Y, predictions[beta]) for beta in BETAS]
    recall = [recall_score(test.Y, predictions[beta]) for beta in BETAS]
    # the law is known, so F_beta can be averaged over all labels that the rows could have had
    matched = [test.expected_fbeta(predictions[beta], beta) for beta in BETAS]
    fixed = [test.expected_fbeta(predictions[1.0], beta) for beta in BETAS]
    best = [test.bayes_fbeta(beta) for beta in BETAS]

    if output is not None:
        draw(Path(output), precision, recall, matched, fixed, best)
    low, middle, high = 0, len(BETAS) // 2, -1
    return {
        "precision at beta 0.25": precision[low],
        "precision at beta 1": precision[middle],
        "precision at beta 4": precision[high],
        "recall at beta 0.25": recall[low],
        "recall at beta 1": recall[middle],
        "recall at beta 4": recall[high],
        "F_0.25 of the prediction for 1": fixed[low],
        "F_0.25 of the prediction for 0.25": matched[low],
        "best possible F_0.25": best[low],
        "F_4 of the prediction for 1": fixed[high],
        "F_4 of the prediction for 4": matched[high],
        "best possible F_4": best[high],
    }


def draw(folder: Path, precision, recall, matched, fixed, best) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, (left, right) = plt.subplots(1, 2)
        left.semilogx(BETAS, precision, "o-", label="precision")
        left.semilogx(BETAS, recall, "s-", label="recall")
        left.set(xlabel="beta of predict", title="One model, nine predictions")
        right.semilogx(BETAS, best, "--", color="0.5", label="best possible")
        right.semilogx(BETAS, matched, "o-", label="predict(X, beta=beta)")
        right.semilogx(BETAS, fixed, "s-", label="predict(X, beta=1)")
        right.set(xlabel="beta of the measure", ylabel="F_beta", title="Judged by each F_beta")
        for axes in (left, right):
            axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"], minor=False)
            axes.minorticks_off()
            axes.legend()
        figure.savefig(folder / "01_beta.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<36} {value:.3f}")
