"""Label sets from the short lists of a tool for thousands of labels: napkinXC.

It needs ``pip install ".[many-labels]"`` in the source tree. Lists of PECOS, LibMultiLabel or
fastText go the same way, as a sparse matrix with a row of scores for each text.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from napkinxc.models import PLT
from sklearn.feature_extraction.text import TfidfTransformer

from fbeta import FBetaDecoder, LabelStatistics, decode, fbeta_score
from fbeta.metrics import fbeta_per_instance

LABELS, WORDS, LISTED = 2000, 6000, 30


def sample(n: int, seed: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Draw counts of words, and tags of which a few are frequent; some texts have many tags."""
    rng, law = np.random.default_rng(seed), np.random.default_rng(0)
    share = (10.0 + np.arange(LABELS)) ** -1.0
    own = law.integers(0, WORDS, size=(LABELS, 8))  # words that speak for a tag
    X, Y = [], []
    for size in 1 + rng.poisson(rng.gamma(1.0, 3.0, size=n)):
        tags = np.unique(rng.choice(LABELS, size=size, p=share / share.sum()))
        spoken, other = rng.choice(own[tags].ravel(), 4 * size), rng.integers(0, WORDS, 25)
        X.append(np.bincount(np.concatenate([spoken, other]), minlength=WORDS))
        Y.append(np.isin(np.arange(LABELS), tags))
    return sp.csr_array(np.array(X, dtype=np.float64)), sp.csr_array(np.array(Y, dtype=np.int8))


def lists_of(model: PLT, X: sp.csr_array) -> sp.csr_array:
    """Return the listed probabilities of each text as a sparse matrix."""
    rows = model.predict_proba(sp.csr_matrix(X), top_k=LISTED)
    labels, values = np.array([pair for row in rows for pair in row]).T
    indptr = np.cumsum([0, *map(len, rows)])
    return sp.csr_array((values, labels.astype(int), indptr), shape=(len(rows), LABELS))


def cut(lists: sp.csr_array, taken: np.ndarray) -> sp.csr_array:
    """Return the label sets of the listed labels for which ``taken`` holds."""
    found = sp.csr_array((taken.astype(np.int8), lists.indices.copy(), lists.indptr.copy()))
    found.resize(lists.shape)
    found.eliminate_zeros()
    return found


def places(lists: sp.csr_array) -> np.ndarray:
    """Return the place of each score in its list, from 0."""
    row = np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))
    order = np.lexsort((-lists.data, row))
    out = np.empty(len(order), dtype=int)
    out[order] = np.arange(len(order)) - lists.indptr[row]
    return out


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    X, Y = sample(4000, seed=1)
    held_out, held_labels = sample(1500, seed=2)
    test, truth = sample(3000, seed=3)
    weight = TfidfTransformer(sublinear_tf=True).fit(X)
    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder, seed=0, threads=1)
        tags = [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])]
        model.fit(sp.csr_matrix(weight.transform(X)), tags)
        seen, new = (lists_of(model, weight.transform(A)) for A in (held_out, test))
    # k, the threshold and the decoder are from the same held-out lists
    k = max(range(1, LISTED), key=lambda k: fbeta_score(held_labels, cut(seen, places(seen) < k)))
    levels = np.quantile(seen.data, np.linspace(0, 1, 200))
    level = max(levels, key=lambda level: fbeta_score(held_labels, cut(seen, seen.data >= level)))
    decoder = FBetaDecoder().fit(seen, held_labels)
    predictions = {
        f"the first {k}": cut(new, places(new) < k),
        "best threshold": cut(new, new.data >= level),
        "decode": decode(LabelStatistics.from_marginals(new)),
        "decoder": decoder.predict(new),
    }
    numbers = {f"F_1, {name}": fbeta_score(truth, p) for name, p in predictions.items()}
    numbers["labels per row, truth"] = float(truth.sum() / truth.shape[0])
    for name, p in predictions.items():
        numbers[f"labels per row, {name}"] = float(p.sum() / p.shape[0])
    numbers["F_1 that the decoder expects"] = float(decoder.expected_fbeta(new).mean())
    if output is not None:
        draw(Path(output), predictions, truth)
    return numbers


def draw(folder: Path, predictions: dict[str, sp.csr_array], truth: sp.csr_array) -> None:
    """Draw F_1 by the number of labels that a text has."""
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, axes = plt.subplots(figsize=(10, 3.5))
        size = np.minimum(np.asarray(truth.sum(axis=1)).ravel(), 12)
        for name, p in predictions.items():
            scores = fbeta_per_instance(truth, p)
            axes.plot(range(1, 13), [scores[size == k].mean() for k in range(1, 13)], label=name)
        axes.set(xlabel="labels of a text (12: or more)", ylabel="F_1")
        axes.legend()
        figure.savefig(folder / "08_lists.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<36} {value:.3f}")
