"""How far to trust the expected F: its calibration, and abstaining where it is low."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fbeta import FBetaClassifier
from fbeta.datasets import CalibratedLaw
from fbeta.metrics import fbeta_per_instance

SIZES = {"few rows": 300, "many rows": 6000}


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    law = CalibratedLaw(n_labels=4, n_features=40, random_state=0)
    test = law.sample(5000, random_state=2)
    numbers, curves = {}, {}
    for name, n in SIZES.items():
        train = law.sample(n, random_state=1)
        model = FBetaClassifier(alpha=1.0).fit(train.X, train.Y)
        expected = model.expected_fbeta(test.X)
        achieved = fbeta_per_instance(test.Y, model.predict(test.X))
        order = np.argsort(-expected)
        kept = achieved[order].cumsum() / np.arange(1, len(order) + 1)
        curves[name] = (expected[order], achieved[order], kept)
        half, tenth = len(order) // 2, len(order) // 10
        numbers |= {
            f"{name}: expected F_1": float(expected.mean()),
            f"{name}: achieved F_1": float(achieved.mean()),
            f"{name}: expected on the surest tenth": float(expected[order[:tenth]].mean()),
            f"{name}: achieved on the surest tenth": float(kept[tenth - 1]),
            f"{name}: achieved on the surest half": float(kept[half - 1]),
        }
    if output is not None:
        draw(Path(output), curves)
    return numbers


def draw(folder: Path, curves) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, (left, right) = plt.subplots(1, 2)
        left.plot([0.3, 1], [0.3, 1], "--", color="0.5", label="expected = achieved")
        for (name, (expected, achieved, kept)), mark in zip(curves.items(), "os", strict=True):
            # ten groups of the same size, from the surest to the least sure
            groups = zip(np.array_split(expected, 10), np.array_split(achieved, 10), strict=True)
            points = np.array([(e.mean(), a.mean()) for e, a in groups])
            left.plot(*points.T, f"{mark}-", label=name)
            right.plot(np.arange(1, len(kept) + 1)[100:] / len(kept), kept[100:], label=name)
        left.set(xlabel="expected F_1", ylabel="achieved F_1", title="Calibration")
        right.set(xlabel="share of rows answered", ylabel="F_1 on them", title="Abstaining")
        left.legend()
        right.legend()
        figure.savefig(folder / "04_expected.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<44} {value:.3f}")
