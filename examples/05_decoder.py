"""A decoder over the probabilities of a forest that nobody wants to train again."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier

from fbeta import FBetaDecoder, LabelStatistics, decode, fbeta_score

LABELS = 12
LIMITS = range(1, 7)


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw instances with between one and five labels, which compete with each other."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 20))
    law = np.random.default_rng(0)
    scores = np.tanh(X @ law.standard_normal((20, 30)) / 3) @ law.standard_normal((30, LABELS))
    size = 1 + rng.binomial(4, 1 / (1 + np.exp(-1.5 * X[:, 0])))
    rank = np.argsort(np.argsort(-(scores + 1.5 * rng.gumbel(size=scores.shape)), axis=1), axis=1)
    return X, (rank < size[:, None]).astype(int)


def presence(found: list[np.ndarray]) -> np.ndarray:
    """Return the probability of each label from a forest's list of arrays, of shape (n, s)."""
    return np.column_stack([p[:, 1] for p in found])


def best_threshold(P: np.ndarray, Y: np.ndarray) -> float:
    """Return the one threshold for all labels with the best F_1 on held-out rows."""
    return max(np.linspace(0.05, 0.6, 56), key=lambda cut: fbeta_score(Y, cut < P))


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    X, Y = sample(2000, seed=1)
    held_out, held_labels = sample(1000, seed=2)
    test, truth = sample(4000, seed=3)
    forest = RandomForestClassifier(100, min_samples_leaf=3, random_state=0).fit(X, Y)
    # what the forest says of rows that it has not seen is all that the decoder learns from
    seen, new = forest.predict_proba(held_out), forest.predict_proba(test)
    decoder = FBetaDecoder().fit(seen, held_labels)
    cut = best_threshold(presence(seen), held_labels)
    predictions = {
        "cut at 1/2": presence(new) > 0.5,
        "best threshold": presence(new) > cut,
        "independent labels": decode(LabelStatistics.from_marginals(new)),
        "decoder": decoder.predict(new),
    }
    numbers = {f"F_1, {name}": fbeta_score(truth, p) for name, p in predictions.items()}
    numbers |= {f"labels per row, {n}": float(p.sum(axis=1).mean()) for n, p in predictions.items()}
    numbers["labels per row, truth"] = float(truth.sum(axis=1).mean())
    numbers["F_1 that the decoder expects"] = float(decoder.expected_fbeta(new).mean())
    limited = {most: decoder.predict(new, min_labels=1, max_labels=most) for most in LIMITS}
    numbers["F_1, decoder with at most 2 labels"] = fbeta_score(truth, limited[2])
    if output is not None:
        draw(Path(output), predictions, truth, limited)
    return numbers


def draw(folder: Path, predictions, truth, limited) -> None:
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5))
        sizes = np.arange(8)
        for name in ("best threshold", "independent labels", "decoder"):
            share = np.bincount(predictions[name].sum(axis=1), minlength=8)[:8] / len(truth)
            left.plot(sizes, share, marker="o", label=name)
        share = np.bincount(truth.sum(axis=1), minlength=8)[:8] / len(truth)
        left.bar(sizes, share, color="#c4c9cf", label="truth")
        left.set(xlabel="labels of a row", ylabel="share of the rows")
        left.legend()
        scores = [fbeta_score(truth, p) for p in limited.values()]
        right.plot(list(limited), scores, marker="o", label="decoder with a limit")
        for name in ("best threshold", "independent labels"):
            right.axhline(fbeta_score(truth, predictions[name]), linestyle="--", label=name)
        right.set(xlabel="most labels of a prediction", ylabel="F_1")
        right.legend()
        figure.savefig(folder / "05_decoder.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<36} {value:.3f}")
