"""Write one small model file of each kind: python -m tests.make_models [NAME ...].

The files are kept, and every later version has to load them and predict the same. Write them again
only where a kind is new, or where the format of the files has changed before a release.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import (
    AlphaSearchCV,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoder,
    FBetaEnsemble,
    FBetaReduction,
)
from fbeta.datasets import TableEncoder
from fbeta.losses import get_loss
from fbeta.methods import METHODS, make_method
from fbeta.rivals import BinaryRelevance, LowRankClassifier
from fbeta.storage.model_files import load_model, save_model

# files of format 2, which are not written any more, and of format 3
FOLDER = Path(__file__).parent / "data" / "models"
FOLDERS = (FOLDER, FOLDER.with_name("models-3"))
EXPECTED = FOLDER / "expected.json"


def toy() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Training data and rows to predict, by arithmetic: no generator may ever change them."""
    grid = np.arange(26 * 3).reshape(26, 3)
    X = np.sin(grid * 1.7) + np.cos(grid * 0.31)
    Y = (X[:, [0, 1]] + 0.4 * np.sin(grid[:, [1, 2]] * 5.3) > 0.2).astype(np.int64)
    return X[:20], Y[:20], X[20:]


X, Y, NEW = toy()
SETS = [[name for name, on in zip(("sea", "sky"), row, strict=True) if on] for row in Y]

MEMBERS = [
    ("joint", make_pipeline(StandardScaler(), FBetaClassifier())),
    ("independent", BinaryRelevance(decode="independent")),
]

KINDS: dict[str, Callable[[], Any]] = {
    **{
        f"method-{name}": lambda name=name: make_method(name).fit(X, Y)
        for name in METHODS
        if name != "auto"  # it draws random numbers, and chooses by them
    },
    "auto": lambda: FBetaAuto(cv=2, random_state=0).fit(np.where(X > 1.5, np.nan, X), Y),
    "auto-sparse": lambda: FBetaAuto(cv=2, random_state=1).fit(sp.csr_array(np.abs(X)), Y),
    "ensemble": lambda: FBetaEnsemble(MEMBERS, cv=2, alphas=[0.1, 1.0]).fit(X, Y),
    "cv": lambda: FBetaClassifierCV([0.1, 1.0], cv=2).fit(X, Y),
    "search": lambda: AlphaSearchCV(BinaryRelevance(), alphas=[0.1, 1.0], cv=KFold(2)).fit(X, Y),
    "reduction": lambda: FBetaReduction(LogisticRegression()).fit(X, Y[:, :1]),
    "decoder": lambda: FBetaDecoder().fit(X, np.column_stack([Y, X[:, 2] > 0.1])),
    "pipeline": lambda: make_pipeline(StandardScaler(), FBetaClassifier()).fit(X, Y),
    "table": lambda: make_pipeline(
        TableEncoder({"x1": "categorical", "x2": "text"}), FBetaClassifier()
    ).fit(X.round(0), Y),
    "low-rank": lambda: LowRankClassifier.for_fbeta(2, alpha=0.1).fit(X, Y),
    "low-rank-classes": lambda: LowRankClassifier([[0, 1, 0.2], [1, 0, 0.2]]).fit(X, Y[:, 0]),
    "loss": lambda: FBetaClassifier(loss=get_loss("squared")).fit(X, Y),
    "form-sets": lambda: FBetaClassifier().fit(X, SETS),
    "form-sparse": lambda: FBetaClassifier().fit(sp.csr_array(X), sp.csc_matrix(Y)),
    "form-frame": lambda: FBetaClassifier().fit(
        pd.DataFrame(X, columns=["x", "y", "z"]),
        pd.DataFrame({"sea": Y[:, 0].astype(bool), "sky": pd.array(Y[:, 1], "Int8")}),
    ),
    "form-single": lambda: FBetaClassifier().fit(X, np.where(Y[:, 0], "yes", "no")),
}


def outcome(model: Any) -> dict[str, Any]:
    """What a model predicts, as JSON has it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found = {"predict": plain(model.predict(NEW))}
        for beta in (0.5, 2.0):
            # some methods are fitted for one beta and refuse the others, or know no beta
            with contextlib.suppress(ValueError, TypeError):
                found[f"beta {beta:g}"] = plain(model.predict(NEW, beta=beta))
        if hasattr(model, "expected_fbeta"):
            found["expected"] = model.expected_fbeta(NEW).round(6).tolist()
    return found


def plain(labels: Any) -> Any:
    """Labels in any form as lists, with the types that the form has beside them."""
    if sp.issparse(labels):
        return [type(labels).__name__, str(labels.dtype), labels.toarray().tolist()]
    if isinstance(labels, pd.DataFrame):
        dtypes = {str(name): str(dtype) for name, dtype in labels.dtypes.items()}
        return [dtypes, labels.astype(int).to_numpy().tolist()]
    if isinstance(labels, np.ndarray | pd.Series):
        return [str(labels.dtype), labels.tolist()]
    return [type(labels[0]).__name__, [sorted(row) for row in labels]]


def main(names: list[str]) -> None:
    """Write some of the files, or all of them."""
    FOLDERS[-1].mkdir(parents=True, exist_ok=True)
    expected = json.loads(EXPECTED.read_text()) if names else {}
    for name in names or KINDS:
        model = KINDS[name]()
        path = FOLDERS[-1] / f"{name}.skops"
        save_model(path, model, versions={})
        assert outcome(load_model(path).estimator) == outcome(model), name
        expected[name] = outcome(model)
    lines = (f"{json.dumps(name)}: {json.dumps(expected[name])}" for name in sorted(expected))
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
