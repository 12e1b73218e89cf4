"""A table of products with gaps and odd scales: the paper's method, and everything by itself."""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import FBetaAuto, FBetaClassifierCV, fbeta_score
from fbeta._files import to_csv
from fbeta.datasets import read_csv

COLUMNS = ("price", "weight_g", "age_days", "rating", "views")
TAGS = ("cheap", "gift", "heavy", "popular")


def make_products(n: int, seed: int) -> list[list[str]]:
    """Draw the rows of a CSV file: what tags depend on is not linear, and a tenth is missing."""
    rng = np.random.default_rng(seed)
    price, weight = rng.lognormal(3, 1, n), rng.lognormal(6, 1.2, n)
    age, rating = rng.integers(1, 2000, n), rng.uniform(1, 5, n).round(1)
    views = rng.lognormal(0.8 * rating + 2, 1)
    tags = np.column_stack(
        [
            price < 15,
            (price > 15) & (price < 60) & (weight < 800),
            weight > 1200,
            (views > 400) & (age < 1000),
        ]
    )
    tags ^= rng.uniform(size=tags.shape) < 0.05
    numbers = np.column_stack([price, weight, age, rating, views]).round(2)
    cells = np.where(rng.uniform(size=numbers.shape) < 0.1, "", numbers.astype(str))
    names = (";".join(np.array(TAGS)[row]) for row in tags)
    return [[*row, name] for row, name in zip(cells.tolist(), names, strict=True)]


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "products.csv")
        path.write_text(to_csv([[*COLUMNS, "tags"], *make_products(1000, seed=0)]))
        data = read_csv(path, label_column="tags", label_names=TAGS, missing="nan")
    train, test = slice(0, 250), slice(250, None)

    # without a time limit the order of the search does not depend on the speed of the machine
    clf = FBetaAuto(cv=3, time_limit=None, random_state=0).fit(data.X[train], data.Y[train])
    usual = make_pipeline(SimpleImputer(), StandardScaler(), FBetaClassifierCV(cv=3))
    usual.fit(data.X[train], data.Y[train])

    predicted = clf.predict(data.X[test])
    expected = clf.expected_fbeta(data.X[test])
    if output is not None:
        draw(Path(output), clf.leaderboard_)
    return {
        "F_1, the paper's method, scaled": float(usual.score(data.X[test], data.Y[test])),
        "F_1, FBetaAuto": fbeta_score(data.Y[test], predicted),
        "F_1, FBetaAuto, in cross-validation": clf.best_score_,
        "F_1, FBetaAuto, expected": float(expected.mean()),
        "tried": float(len(clf.leaderboard_)),
        "members of the average": float(sum(w > 0 for w in clf.weights_.values())),
    }


def draw(folder: Path, board) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, axes = plt.subplots(figsize=(6, 0.22 * len(board) + 1))
        names = [row["name"] for row in board][::-1]
        used = [row["weight"] > 0 for row in board][::-1]
        scores = [row["score"] for row in board][::-1]
        axes.barh(names, scores, color=["C0" if use else "0.75" for use in used])
        axes.set(xlabel="F_1 in cross-validation", title="What was tried; blue has a weight")
        axes.set_xlim(left=0.9 * min(scores))
        axes.tick_params(axis="y", labelsize=6)
        figure.savefig(folder / "06_auto.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<44} {value:.3f}")
