"""Binary sequence labelling: which positions of a sequence are marked, judged by F_1."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from fbeta import CardinalityClassifier, FBetaClassifier, LabelStatistics, decode, fbeta_score
from fbeta.datasets.benchmarks import all_label_sets

LENGTH = 9
START, ENTER, LEAVE = 0.15, 0.15, 0.3  # of a Markov chain: marked positions come in runs
NOISE = 1.3


def draw_sequences(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw one noisy number for each position, and whether it is marked."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, LENGTH), dtype=int)
    Y[:, 0] = rng.uniform(size=n) < START
    for t in range(1, LENGTH):
        Y[:, t] = rng.uniform(size=n) < np.where(Y[:, t - 1], 1 - LEAVE, ENTER)
    return Y + NOISE * rng.normal(size=Y.shape), Y


def true_statistics(X: np.ndarray) -> LabelStatistics:
    """Compute what the law itself says of sequences, over all 2^9 labellings."""
    sets = all_label_sets(LENGTH)
    log = np.log(np.where(sets[:, 0], START, 1 - START))
    for t in range(1, LENGTH):
        stay, enter = np.where(sets[:, t], 1 - LEAVE, LEAVE), np.where(sets[:, t], ENTER, 1 - ENTER)
        log += np.log(np.where(sets[:, t - 1], stay, enter))
    log = log - ((X[:, None, :] - sets) ** 2).sum(axis=2) / (2 * NOISE**2)
    P = np.exp(log - log.max(axis=1, keepdims=True))
    return LabelStatistics.from_distribution(P / P.sum(axis=1, keepdims=True), sets)


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    X_test, Y_test = draw_sequences(4000, seed=1)
    truth = true_statistics(X_test)
    sizes = (200, 600, 2000, 6000)
    scores = {name: [] for name in ("cut at 1/2", "exact decode", "FBeta", "cardinality")}
    for n in sizes:
        # a position may depend on all numbers of its sequence
        X, Y = draw_sequences(n, seed=2)
        single = [LogisticRegression().fit(X, Y[:, t]) for t in range(LENGTH)]
        P = np.column_stack([model.predict_proba(X_test)[:, 1] for model in single])
        predicted = {
            "cut at 1/2": P > 0.5,
            "exact decode": decode(LabelStatistics.from_marginals(P)),
            "FBeta": FBetaClassifier(alpha=10.0).fit(X, Y).predict(X_test),
            "cardinality": CardinalityClassifier(alpha=1.0).fit(X, Y).predict(X_test),
        }
        for name, labels in predicted.items():
            scores[name].append(fbeta_score(Y_test, labels))
    best = fbeta_score(Y_test, decode(truth))
    if output is not None:
        draw(Path(output), sizes, scores, best)
    numbers = {f"F_1, {name}, {sizes[-1]} sequences": values[-1] for name, values in scores.items()}
    return {**numbers, "F_1, the law itself": best}


def draw(folder: Path, sizes, scores, best) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, axes = plt.subplots(figsize=(6, 3.4))
        for (name, values), mark in zip(scores.items(), "osv^", strict=True):
            axes.plot(sizes, values, f"{mark}-", label=name)
        axes.axhline(best, linestyle="--", color="0.5", label="the law itself")
        axes.set(xscale="log", xlabel="training sequences", ylabel="F_1")
        axes.set_title("Marked positions of noisy sequences")
        axes.legend()
        figure.savefig(folder / "07_sequence.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<44} {value:.3f}")
