"""``fbeta decode``: label sets from the scores of another tool."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import typer
from sklearn.model_selection import KFold

from fbeta._files import check_output
from fbeta.cli import options as o
from fbeta.cli.app import command, stderr
from fbeta.datasets.score_lists import read_lists, write_sets
from fbeta.decoding.exact import decode as decode_statistics
from fbeta.estimators.decoder import FBetaDecoder
from fbeta.metrics import fbeta_per_instance
from fbeta.statistics.label_statistics import LabelStatistics

Inputs = StrEnum("Inputs", ["auto", "probabilities", "logits"])


@command("fbeta decode scores.jsonl --labels truth.jsonl --new new.jsonl -o sets.jsonl")
def decode(
    scores: Path = o.argument(
        "Scored labels: .jsonl, .npz, label:score pairs, or a table with a column for each label."
    ),
    labels: Path | None = o.option("The labels of these rows: the scores are calibrated on them."),
    new: Path | None = o.option("Other lists, decoded by what was learnt from --labels."),
    output: Path | None = o.option("File for the label sets: .jsonl, .csv, .npz or text.", "-o"),
    beta: float = o.BETA,
    inputs: Inputs = o.option("What scores are (auto: probabilities in [0, 1]).", default="auto"),
    min_labels: int = o.option("Predict at least so many.", default=0, **o.integer(0)),
    max_labels: int | None = o.option("Predict at most so many.", **o.integer(0)),
    as_json: bool = o.JSON,
) -> None:
    """Decode label sets from lists of scores of another tool."""
    files = [path for path in (scores, labels, new) if path is not None]
    if output is not None:
        check_output(output, files)
    if new is not None and labels is None:
        raise ValueError("--new: needs --labels, from which the scores are calibrated")
    names, rows = read_lists(files)
    limits: Any = {"beta": beta, "min_labels": min_labels, "max_labels": max_labels}
    words: dict[str, Any] = {"beta": beta, "rows": rows[0].shape[0]}
    if labels is None:
        if inputs == "logits":
            raise ValueError("--inputs logits: needs --labels, or scores that are probabilities")
        q = LabelStatistics.from_marginals(rows[0])
        sets: Any = decode_statistics(q, return_expected=True, **limits)
        found, expected = sets
    else:
        found, expected, words["fbeta"] = _calibrated(rows, new is not None, str(inputs), limits)
    words |= {"labels_per_row": found.nnz / max(found.shape[0], 1)}
    words["expected_fbeta"] = float(np.mean(expected)) if len(expected) else None
    if output is not None:
        write_sets(output, found, names, expected)
    if as_json:
        typer.echo(json.dumps(words))
        return
    if "fbeta" in words:
        typer.echo(
            f"F_{beta:g} of rows of {scores} that the decoder had not seen: {words['fbeta']:.4f}"
        )
    typer.echo(f"{found.shape[0]} label sets, {words['labels_per_row']:.2f} labels each on average")
    if output is None:
        stderr("fbeta: nothing is written: give -o FILE for the label sets")


def _calibrated(
    rows: list[Any], has_new: bool, inputs: str, limits: dict[str, Any]
) -> tuple[Any, Any, float]:
    """Return label sets, their expected F_beta, and the F_beta of rows that were held out."""
    lists, truth = rows[0], sp.csr_array(rows[1], dtype=np.int8)
    if lists.shape[0] != truth.shape[0]:
        raise ValueError(f"--labels: {truth.shape[0]} rows, but there are {lists.shape[0]} lists")
    if len(other := rows[1].data[~np.isin(rows[1].data, (0, 1))]):
        raise ValueError(f"--labels: expected label sets, or 0 and 1, found the score {other[0]:g}")
    truth.eliminate_zeros()
    decoder = FBetaDecoder(limits["beta"], inputs=inputs)
    goal = {name: limits[name] for name in ("min_labels", "max_labels")}
    held_out, expected, order = [], [], []
    folds = KFold(min(5, max(2, lists.shape[0])), shuffle=True, random_state=0)
    for train, test in folds.split(lists):
        decoder.fit(lists[train], truth[train])
        held_out.append(decoder.predict(lists[test], **goal))
        expected.append(decoder.expected_fbeta(lists[test], **goal))
        order.append(test)
    back = np.argsort(np.concatenate(order))
    found, values = sp.csr_array(sp.vstack(held_out))[back], np.concatenate(expected)[back]
    score = float(fbeta_per_instance(truth, found, limits["beta"]).mean())
    if not has_new:
        return found, values, score
    decoder.fit(lists, truth)
    return decoder.predict(rows[2], **goal), decoder.expected_fbeta(rows[2], **goal), score
