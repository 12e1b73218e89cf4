"""Label sets from the short lists of tools for thousands of labels: cut, or decoded.

Three steps in one folder, because PECOS 1.2 needs older versions of NumPy and SciPy than fbeta:

- ``python -m benchmarks.many_labels data FOLDER`` writes the data sets as npz files;
- ``python benchmarks/many_labels.py lists FOLDER TOOL``, with napkinXC (the extra ``many-labels``)
  or ``libpecos`` and scikit-learn, fits the tool by five folds and to all training rows, and writes
  the lists of held-out and of test rows;
- ``python -m benchmarks.many_labels table FOLDER`` chooses a number k and a threshold on the
  held-out lists, fits :class:`fbeta.FBetaDecoder` to the same lists, and prints the F_1 of the test
  rows. The gain is over the better cut, with its standard error by paired test rows.

``python -m benchmarks.many_labels speed FOLDER`` prints the time and memory of decode, decoder and
``SizedClassifier`` on generated lists, and how they grow with rows, listed labels and labels.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import KFold
from sklearn.preprocessing import normalize

SETS = ("delicious", "bibtex")
LISTED = 50  # labels of each list
WORDS = 50_000  # of generated texts


def napkinxc(X: Any, Y: Any, X_new: Any) -> Any:
    """Probabilistic label trees of napkinXC, with its defaults."""
    from napkinxc.models import PLT

    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder, seed=0, threads=2)
        model.fit(X, [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])])
        lists = model.predict_proba(X_new, top_k=LISTED)
    indptr = np.cumsum([0, *map(len, lists)])
    labels, values = np.array([pair for pairs in lists for pair in pairs]).T
    return sp.csr_array((values, labels.astype(np.intp), indptr), (X_new.shape[0], Y.shape[1]))


def pecos(X: Any, Y: Any, X_new: Any) -> Any:
    """Linear matchers of PECOS (XR-Linear), with its defaults and a beam of 30."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    clusters = Indexer.gen(LabelEmbeddingFactory.create(Y, X))
    model = XLinearModel.train(X, Y, C=clusters, threads=2)
    return sp.csr_array(model.predict(X_new, only_topk=LISTED, beam_size=30, threads=2))


TOOLS = {"napkinxc": napkinxc, "pecos": pecos}


def ranks(lists: Any) -> Any:
    """Return the rank of each listed score within its row, the best first."""
    row = np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))
    order = np.lexsort((-lists.data, row))
    out = np.empty(lists.nnz, dtype=np.intp)
    out[order] = np.arange(lists.nnz) - lists.indptr[row]
    return out


def cut(lists: Any, taken: Any) -> Any:
    """Return the label sets of listed labels for which ``taken`` holds."""
    found = sp.csr_array((taken.astype(np.int8), lists.indices, lists.indptr), lists.shape)
    found = found.copy()
    found.eliminate_zeros()
    return found


def best_cuts(lists: Any, Y: Any) -> tuple[int, float]:
    """Return the number of labels and the threshold with the highest F_1 on held-out lists."""
    from fbeta.metrics import fbeta_per_instance

    place = ranks(lists)
    by_number = [fbeta_per_instance(Y, cut(lists, place < k)).mean() for k in range(1, LISTED + 1)]
    thresholds = np.unique(np.quantile(lists.data, np.linspace(0, 1, 400)))
    by_value = [fbeta_per_instance(Y, cut(lists, lists.data >= t)).mean() for t in thresholds]
    return 1 + int(np.argmax(by_number)), float(thresholds[np.argmax(by_value)])


def write_data(folder: Path) -> None:
    """Write the data sets as NAME-PART.npz."""
    from fbeta.datasets import load

    for name in SETS:
        parts = load(name).split
        for key, values in zip(("X", "Y", "X_test", "Y_test"), parts, strict=True):
            sp.save_npz(folder / f"{name}-{key}.npz", sp.csr_matrix(values))


def write_lists(folder: Path, tool: str) -> None:
    """Write the lists of a tool as NAME-TOOL.npz for held-out rows and NAME-TOOL-test.npz."""
    work = TOOLS[tool]
    for name in SETS:
        X, Y, X_test = (sp.load_npz(folder / f"{name}-{k}.npz") for k in ("X", "Y", "X_test"))
        X, X_test = (sp.csr_matrix(normalize(A), dtype=np.float32) for A in (X, X_test))
        Y = sp.csr_matrix(Y, dtype=np.float32)
        parts, rows = [], []
        for train, test in KFold(5, shuffle=True, random_state=0).split(X):
            parts.append(work(X[train], Y[train], X[test]))
            rows.append(test)
        lists = sp.csr_matrix(sp.vstack(parts))[np.argsort(np.concatenate(rows))]
        sp.save_npz(folder / f"{name}-{tool}.npz", lists)
        sp.save_npz(folder / f"{name}-{tool}-test.npz", sp.csr_matrix(work(X, Y, X_test)))


def compare(folder: Path, name: str, tool: str) -> str:
    """Return a row of the table."""
    from fbeta import FBetaDecoder, LabelStatistics, decode
    from fbeta.metrics import fbeta_per_instance

    files = (f"{tool}", f"{tool}-test", "Y", "Y_test")
    lists, new, Y, Y_test = (sp.csr_array(sp.load_npz(folder / f"{name}-{k}.npz")) for k in files)
    number, threshold = best_cuts(lists, Y)
    start = time.perf_counter()
    decoder = FBetaDecoder().fit(lists, Y)
    seconds = time.perf_counter() - start
    found = {
        "k": cut(new, ranks(new) < number),
        "threshold": cut(new, new.data >= threshold),
        "as they are": decode(LabelStatistics.from_marginals(new)),
        "decoder": decoder.predict(new),
    }
    scores = {key: fbeta_per_instance(Y_test, labels) for key, labels in found.items()}
    better = max(("k", "threshold"), key=lambda key: scores[key].mean())
    gain = scores["decoder"] - scores[better]
    means = " | ".join(f"{values.mean():.3f}" for values in scores.values())
    error = gain.std() / len(gain) ** 0.5
    return f"| {name}, {tool} | {means} | {gain.mean():+.3f} ({error:.3f}) | {seconds:.1f} |"


def draw_lists(n: int, listed: int, labels: int) -> tuple[Any, Any]:
    """Draw lists of probabilities, and labels that they are too sure of."""
    rng = np.random.default_rng(0)
    width = labels // listed
    columns = rng.integers(0, width, size=(n, listed)) + width * np.arange(listed)
    p = rng.random((n, listed)) ** 4
    indptr = np.arange(0, n * listed + 1, listed)
    lists = sp.csr_array((p.ravel(), columns.ravel(), indptr), shape=(n, labels))
    present = rng.random(lists.nnz) < lists.data**1.5
    return lists, cut(lists, present)


def draw_texts(n: int, labels: int, d: int = WORDS) -> tuple[Any, Any]:
    """Draw rows with 30 words, and three labels of which each has three words of its own."""
    rng = np.random.default_rng(0)
    Y = rng.integers(0, labels, size=(n, 3))
    own = (Y[:, :, None] * 2 + np.arange(3)).reshape(n, 9) % d
    words = np.concatenate([own, rng.integers(0, d, size=(n, 21))], axis=1)
    rows = np.repeat(np.arange(n), 30)
    X = sp.csr_array((np.ones(n * 30), (rows, words.ravel())), shape=(n, d))
    sets = sp.csr_array((np.ones(n * 3), (np.repeat(np.arange(n), 3), Y.ravel())), (n, labels))
    return sp.csr_array(normalize(X)), sp.csr_array(sets > 0, dtype=np.int8)


def timed(work: Any) -> tuple[float, float]:
    """Return the seconds that work takes in a process of its own, and the memory that it adds."""
    begin, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin) / 1e6


def measure_speed(case: str, n: int, listed: int, labels: int) -> None:
    """Print one row of the table of times."""
    from fbeta import FBetaDecoder, LabelStatistics, SizedClassifier, decode

    if case == "sized":
        X, Y = draw_texts(n, labels)
        model = SizedClassifier(max_listed=listed)
        found = timed(lambda: model.fit(X, Y))
        more = f"; predict of {n // 5:,} rows {timed(lambda: model.predict(X[: n // 5]))[0]:.1f} s"
    else:
        lists, Y = draw_lists(n, listed, labels)
        sizes = np.full((n, 21), 1 / 21) if case == "sizes" else None
        work = {
            "decode": lambda: decode(LabelStatistics.from_marginals(lists)),
            "sizes": lambda: decode(LabelStatistics.from_marginals(lists, sizes)),
            "decoder": lambda: FBetaDecoder().fit(lists, Y),
        }[case]
        found, more = timed(work), ""
    print(f"| {case} | {n:,} | {listed} | {labels:,} | {found[0]:.1f}{more} | {found[1]:.2f} |")


SPEED = {
    "decode": (100_000, 50, 1_000_000),
    "sizes": (100_000, 50, 1_000_000),
    "decoder": (50_000, 50, 500_000),
    "sized": (12_500, 50, 2_500),
}


def main() -> None:
    """Run one of the steps."""
    if sys.argv[1:2] == ["measure"]:
        measure_speed(sys.argv[2], *map(int, sys.argv[3:]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("data", "lists", "table", "speed"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("tool", nargs="?", choices=tuple(TOOLS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.step == "data":
        write_data(options.folder)
    elif options.step == "lists":
        write_lists(options.folder, options.tool)
    elif options.step == "speed":
        print("| | rows | listed | labels | seconds | memory, GB |", flush=True)
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        for case, size in SPEED.items():
            for doubled in (None, 0, 1, 2):
                chosen = [str(part * (1 + (k == doubled))) for k, part in enumerate(size)]
                command = [sys.executable, "-m", "benchmarks.many_labels", "measure", case]
                subprocess.run([*command, *chosen], check=True)
    else:
        print("| | best k | best threshold | decoded as they are | FBetaDecoder | gain | fit, s |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name in SETS:
            for tool in TOOLS:
                if (options.folder / f"{name}-{tool}.npz").exists():
                    print(compare(options.folder, name, tool), flush=True)


if __name__ == "__main__":
    main()
