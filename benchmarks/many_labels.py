"""Label sets from the short lists of tools for thousands of labels: cut, or decoded.

Three steps in one folder, because PECOS 1.2 needs older versions of NumPy and SciPy than fbeta:

- ``python -m benchmarks.many_labels data FOLDER`` writes the data sets as npz files;
- ``python benchmarks/many_labels.py lists FOLDER TOOL``, with ``pip install napkinxc`` or
  ``libpecos`` and scikit-learn, fits the tool by five folds and to all training rows, and writes
  the lists of held-out and of test rows;
- ``python -m benchmarks.many_labels table FOLDER`` chooses a number k and a threshold on the
  held-out lists, fits :class:`fbeta.FBetaDecoder` to the same lists, and prints the F_1 of the test
  rows. The gain is over the better cut, with its standard error by paired test rows.
"""

from __future__ import annotations

import argparse
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


def main() -> None:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("data", "lists", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("tool", nargs="?", choices=tuple(TOOLS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.step == "data":
        write_data(options.folder)
    elif options.step == "lists":
        write_lists(options.folder, options.tool)
    else:
        print("| | best k | best threshold | decoded as they are | FBetaDecoder | gain | fit, s |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name in SETS:
            for tool in TOOLS:
                if (options.folder / f"{name}-{tool}.npz").exists():
                    print(compare(options.folder, name, tool), flush=True)


if __name__ == "__main__":
    main()
