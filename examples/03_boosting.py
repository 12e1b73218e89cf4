"""Gradient boosting under the reduction, where linear models cannot follow."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.multioutput import MultiOutputClassifier

from fbeta import FBetaClassifierCV, FBetaReduction, LabelStatistics, decode
from fbeta.datasets.benchmarks import all_label_sets
from fbeta.decoding.expected import expected_fbeta

SETS = all_label_sets(3)
DRAWS = 4  # training samples
COLOURS = ["#9aa0a6", "#3d85d0", "#e07b28", "#8a6d5a", "#2f9e6a", "#2fa8a8", "#c9a227", "#b865b8"]


def law(X: np.ndarray) -> np.ndarray:
    """Return the probabilities of the 8 label sets at points of the plane, of shape (n, 8)."""
    angle, radius = np.arctan2(X[:, 1], X[:, 0]), np.hypot(X[:, 0], X[:, 1])
    attraction = [2 * np.cos(2 * angle), 2 * np.sin(2 * angle), 4 * (radius - 1)]
    scores = np.column_stack(attraction) @ SETS.T - 0.7 * SETS.sum(axis=1)
    weights = np.exp(scores)
    return weights / weights.sum(axis=1, keepdims=True)


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points in a square and their labels."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, (n, 2))
    chosen = (law(X).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return X, SETS[np.minimum(chosen, 7)]


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    points, _ = sample(4000, seed=0)
    truth = LabelStatistics.from_distribution(law(points), SETS)
    draws = []
    for seed in range(1, 1 + DRAWS):
        X, Y = sample(2000, seed)
        trees = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8)
        models = {
            "linear, fbeta": FBetaClassifierCV(cv=3).fit(X, Y),
            "boosting, cut at 1/2": MultiOutputClassifier(trees).fit(X, Y),
            "boosting, fbeta": FBetaReduction(trees).fit(X, Y),
        }
        # the law is known, so F_1 can be averaged over all labels that the points could have had
        draws.append(
            {
                name: expected_fbeta(truth, model.predict(points)).mean()
                for name, model in models.items()
            }
        )
    numbers = {name: float(np.mean([draw[name] for draw in draws])) for name in models}
    numbers["best possible"] = float(decode(truth, return_expected=True)[1].mean())
    if output is not None:
        draw_maps(Path(output), models, numbers)
    gains = [draw["boosting, fbeta"] - draw["boosting, cut at 1/2"] for draw in draws]
    return {
        **{f"F_1, {name}": value for name, value in numbers.items()},
        "smallest gain of fbeta over the cut": float(min(gains)),
        "largest gain of fbeta over the cut": float(max(gains)),
    }


def draw_maps(folder: Path, models, numbers) -> None:
    side = np.linspace(-1.5, 1.5, 80)
    plane = np.column_stack([part.ravel() for part in np.meshgrid(side, side)])
    maps = {name: model.predict(plane) for name, model in models.items()}
    maps["best possible"] = decode(LabelStatistics.from_distribution(law(plane), SETS))
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, row = plt.subplots(1, 4, figsize=(10, 3.5))
        for axes, (name, labels) in zip(row, maps.items(), strict=True):
            which = (labels @ [4, 2, 1]).reshape(len(side), len(side))
            extent = (-1.5, 1.5, -1.5, 1.5)
            colours = ListedColormap(COLOURS)
            axes.imshow(which, colours, origin="lower", extent=extent, vmin=0, vmax=7)
            axes.set(title=f"{name}\nF_1 {numbers[name]:.3f}", xticks=[], yticks=[])
            axes.grid(visible=False)
        names = [", ".join(np.array(["a", "b", "c"])[y == 1]) or "none" for y in SETS]
        handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS]
        figure.legend(handles, names, loc="outside lower center", ncols=8)
        figure.savefig(folder / "03_boosting.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<36} {value:.3f}")
