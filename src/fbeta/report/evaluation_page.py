"""The page of ``fbeta evaluate --report``: one model on labelled rows, with a slider for beta."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.report.charts import CALIBRATION, LineChart, Series, calibration_chart
from fbeta.report.evaluation import MEASURES
from fbeta.report.inspection import (
    BETA_GRID,
    BetaView,
    alpha_scores,
    inspect_betas,
    leaderboard,
    precision_recall_curves,
    speaking_features,
    text_cells,
)
from fbeta.report.pages import html_table, page, resource, section
from fbeta.storage.model_files import StoredModel

__all__ = ["evaluation_page"]

_LABEL_COLUMNS = ("label", "rows with it", "predicted", "precision", "recall", "F_beta")
_ROW_COLUMNS = ("expected F", "actual F", "true tags", "predicted tags")
_ROW_GROUPS = {
    "surest": "Most sure",
    "unsurest": "Least sure",
    "overconfident": "Sure but wrong",
}
_BASELINES = {"constant": "best constant set", "half": "labels with probability above 1/2"}
# characters of a cell that are shown beside a row
_MAX_CELL = 300

_BETA_TEXT = (
    "Means over the rows, with 0/0 = 1. The model is the same at every beta; only the decision "
    "changes: to the right recall counts more and the sets grow, to the left precision counts more "
    "and they shrink. Error bars are standard errors. Dashed lines are baselines at the same beta: "
    "the constant set that is best on these very rows, and the labels whose probability is above "
    "1/2 (binary relevance)."
)
_LABEL_TEXT = (
    "Precision, recall and F_beta of each label over all rows, at the beta of the slider. "
    "Click a heading to sort."
)
_CURVE_TEXT = (
    "Precision and recall of one label over all thresholds of its probability; the large point is "
    "the prediction at the beta of the slider."
)
_FEATURE_TEXT = "Words and other features whose values go with a high probability of this label:"
_CONFUSION_TEXT = (
    "Rows in which one tag was missed and another was predicted wrongly, at the beta of the "
    "slider; the most frequent pairs."
)
_ROW_TEXT = (
    "The rows with the highest and the lowest expected F_beta, and those whose actual F_beta is "
    "furthest below the expected. \u2713 marks a tag that is true and predicted, \u2212 a missed "
    "tag, + a wrong tag."
)


def evaluation_page(
    stored: StoredModel,
    X: Any,
    Y: NDArray[Any],
    *,
    title: str,
    beta: float | None = None,
    unseen: Sequence[str] = (),
    ids: Mapping[str, Sequence[Any]] | None = None,
    date: str | None = None,
) -> str:
    """Write a page that shows a model on labelled data, for every beta.

    Parameters
    ----------
    stored : StoredModel
        The model; names in it may come from anybody.
    X, Y : arrays of shape (n, d) and (n, s)
        Features, and labels as 0/1. Text columns of a table are shown beside the rows.
    title : str
        What was measured on what, as plain text.
    beta : float, optional
        Where the slider stands at first; that of the model by default.
    unseen : sequence of str
        Names of columns that Y has beyond the labels of the model, which it never predicts.
    ids : mapping from str to sequence of length n, optional
        Columns that name the rows, to be shown beside them.
    date : str, optional
        Date of the evaluation; today by default.

    Returns
    -------
    str
        HTML of one file, which opens without a network.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[1, 0], [1, 0], [1, 1], [1, 1]])
    >>> stored = StoredModel(FBetaClassifier().fit(X, Y), ("sea", "<sky>"))
    >>> text = evaluation_page(stored, X, Y, title="toy")
    >>> "<sky>" in text, text.count('type="range"')
    (False, 1)
    """
    features = stored.features(X)
    views, marginals = inspect_betas(stored, features, Y, beta=beta)
    own = float(stored.classifier.beta if beta is None else beta)
    start = [view.beta for view in views].index(own)
    names = [*stored.label_names, *unseen]
    columns = {**(ids or {}), **dict(text_cells(stored, X))}
    content = _data(names, Y, views, start, columns)
    content["about"] = _about_labels(stored, features, Y, marginals)
    choice, candidates, content["alphas"] = _choice(stored)
    date = date or datetime.now().astimezone().strftime("%Y-%m-%d")
    parts = [
        f"<p>{len(Y):,} rows, {len(names):,} labels, {escape(date)}</p>",
        _slider(views, start, float(np.asarray(Y).sum(axis=1).mean())),
        section("What beta does", _BETA_TEXT, '<figure id="beta-chart"></figure>'),
        _label_section(),
        _chosen_label_section(names, marginals is not None),
        section(
            "Which tags are taken for which",
            _CONFUSION_TEXT,
            _filled_table("confusions", ("missed", "predicted instead", "rows"))
            + '<p id="no-confusions">There are no such rows.</p>',
        ),
        *_expectation_sections(stored, views[start], list(columns)),
        section(
            "The model, and how it was chosen", choice, candidates + _model_table(stored, len(Y))
        ),
        _embedded(content),
        "<noscript><p>The numbers of this page need JavaScript.</p></noscript>",
    ]
    return page(
        title,
        "\n".join(parts),
        style=resource("evaluation.css"),
        script=resource("evaluation.js"),
    )


def _about_labels(
    stored: StoredModel, features: Any, Y: NDArray[Any], marginals: NDArray[np.float64] | None
) -> dict[str, Any]:
    """Return the precision-recall curve and the speaking features of each label, where known."""
    if marginals is None:
        return {"curves": [], "features": []}
    names = stored.names_of_features()
    known = names is not None and len(names) == features.shape[1]
    return {
        "curves": precision_recall_curves(Y, marginals),
        "features": speaking_features(features, marginals, names or ()) if known else [],
    }


def _slider(views: Sequence[BetaView], start: int, true_size: float) -> str:
    """Make the slider and the numbers that it moves; the script fills them in."""
    words = {key: MEASURES[key] for key in ("fbeta", "precision", "recall")}
    words |= {key: f"F_beta, {_BASELINES[key]}" for key in views[0].baselines}
    words["size"] = f"size of the sets (true: {true_size:.2f})"
    words |= {key: name for key, name in MEASURES.items() if key not in words}
    numbers = "".join(
        f'<div><dt>{escape(name)}</dt><dd><span id="number-{key}"></span> '
        f'<small id="error-{key}"></small></dd></div>'
        for key, name in words.items()
    )
    grid = (
        f"{len(views)} values from {views[0].beta:.3g} to {views[-1].beta:.3g}"
        f"{', eighths of an octave apart' if len(views) >= len(BETA_GRID) else ''}"
    )
    if len(views) == 1:
        grid = "this method is fitted for one beta and predicts for no other"
    return (
        '<div class="beta"><label for="beta">beta <output id="beta-value" for="beta"></output>'
        f"<small>{escape(grid)}</small></label>"
        f'<input id="beta" type="range" min="0" max="{len(views) - 1}" step="1" value="{start}">'
        '<div class="ends"><span>precision</span><span>recall</span></div></div>'
        f'<dl class="numbers" aria-live="polite">{numbers}</dl>'
    )


def _filled_table(name: str, head: Sequence[str]) -> str:
    """Make a table that the script fills in."""
    return f'<div id="{name}">{html_table(head, [], name=name.replace("-", " "))}</div>'


def _download(name: str) -> str:
    return f'<button type="button" data-download="{name}">Download as CSV</button>'


def _label_section() -> str:
    heads = [f'<button type="button">{escape(name)}</button>' for name in _LABEL_COLUMNS]
    tools = (
        '<div class="tools"><label>Search <input id="search" type="search"></label>'
        f"{_download('labels')}</div>"
    )
    return section("By label", _LABEL_TEXT, tools + _filled_table("by-label", heads))


def _chosen_label_section(names: Sequence[str], has_marginals: bool) -> str:
    """Make the section with the precision-recall curve and the features of a chosen label."""
    if not has_marginals:
        return ""
    options = "".join(f'<option value="{j}">{escape(n)}</option>' for j, n in enumerate(names))
    return section(
        "One label",
        _CURVE_TEXT,
        f'<div class="tools"><label>Label <select id="label">{options}</select></label></div>'
        '<figure id="curve" class="square"></figure>'
        f'<div id="features"><p>{escape(_FEATURE_TEXT)}</p><p class="tag-list"></p></div>',
    )


def _expectation_sections(stored: StoredModel, view: BetaView, columns: list[str]) -> list[str]:
    """Show the calibration of the expected F_beta, and rows by it."""
    if view.bins is None:
        name = type(stored.classifier).__name__
        words = f"A model of {name} does not estimate the F_beta of its own predictions."
        return [section("How sure it is", words)]
    head = ["row", *map(escape, columns), *_ROW_COLUMNS]
    tables = "".join(
        f"<h3>{title}</h3>{_filled_table(key, head)}" for key, title in _ROW_GROUPS.items()
    )
    chart = '<figure id="calibration" class="square"></figure>'
    tools = f'<div class="tools">{_download("rows")}</div>'
    return [
        section("Calibration of the expected F_beta", CALIBRATION, chart),
        section("Rows to look at", _ROW_TEXT, tools + tables),
    ]


def _model_table(stored: StoredModel, n_rows: int) -> str:
    """Say what the model is."""
    classifier, rows = stored.classifier, stored.training.get("rows")
    sizes = getattr(getattr(classifier, "best_estimator_", classifier), "cardinalities_", None)
    facts = {
        "class": type(classifier).__name__,
        "steps before it": ", ".join(type(step).__name__ for step in stored.steps),
        **{key: repr(value) for key, value in classifier.get_params(deep=False).items()},
        "features": str(getattr(stored.estimator, "n_features_in_", "")),
        "labels": str(len(stored.label_names)),
        "sizes of label sets": "" if sizes is None else ", ".join(str(int(k)) for k in sizes),
        "fitted to": f"{rows} rows" if isinstance(rows, int) else "",
        "measured on": f"{n_rows} rows",
        "made with": ", ".join(f"{name} {number}" for name, number in stored.versions.items()),
    }
    cells = [[escape(key), escape(words)] for key, words in facts.items() if words]
    return html_table(["", ""], cells, name="the model", words=True)


def _choice(stored: StoredModel) -> tuple[str, str, dict[str, Any] | None]:
    """Say how the model was chosen: words, HTML, and a chart for the script."""
    tried = leaderboard(stored.classifier)
    if tried:
        chosen = sum(weight > 0 for *_, weight in tried)
        rows = [[escape(n), f"{score:.4f}", f"{w:.2f}" if w else ""] for n, score, w in tried]
        text = (
            f"It averages {chosen} out of {len(tried)} models that were tried: those, and with the "
            "weights, that did best on held-out rows of the training data."
        )
        return text, html_table(["tried", "F_beta", "weight"], rows, name="what was tried"), None
    search = alpha_scores(stored.classifier)
    if search is None:
        given = "alpha" in stored.training and stored.training.get("cv_score") is None
        text = "The file does not say how its parameters were chosen."
        return "Its parameters were given, not searched for." if given else text, "", None
    alphas, scores, folds = search
    best = int(np.argmax(scores))
    text = (
        f"alpha = {alphas[best]:g} was chosen from {len(alphas)} regularisation strengths: its "
        f"mean F_beta over {folds} folds of the training rows, {scores[best]:.4f}, was the highest."
    )
    points = [(alpha, score) for alpha, score in zip(alphas, scores, strict=True) if alpha > 0]
    if not points:
        return text, "", None
    series = [Series("mean over the folds", points)]
    chart = LineChart("", "alpha", "F_beta over the folds", series, x_log=True)
    return text, '<figure id="alphas"></figure>', asdict(chart)


def _beta_chart(views: Sequence[BetaView]) -> LineChart:
    """Show precision, recall, F_beta with its standard error, and the baselines against beta."""
    names = {"fbeta": "F_beta", "precision": "precision", "recall": "recall"}
    lines = [
        Series(name, [(view.beta, view.scores[key]) for view in views], number)
        for number, (key, name) in enumerate(names.items())
    ]
    errors = [view.standard_error for view in views]
    lines[0] = Series(lines[0].name, lines[0].points, 0, errors=errors)
    lines += [
        Series(name, [(view.beta, view.baselines[key]) for view in views], None)
        for key, name in _BASELINES.items()
        if key in views[0].baselines
    ]
    return LineChart("", "beta", "mean over the rows", lines, x_log=True)


def _data(
    names: Sequence[str],
    Y: NDArray[Any],
    views: Sequence[BetaView],
    start: int,
    columns: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    """Gather what the script shows; numbers are rounded as ``fbeta evaluate`` prints them."""
    shown = {row.row: row.true for view in views for group in view.rows.values() for row in group}
    cells = {row: [_cell(column[row]) for column in columns.values()] for row in shown}
    return {
        "betas": [view.beta for view in views],
        "shown": [f"{view.beta:.3g}" for view in views],
        "start": start,
        "chart": asdict(_beta_chart(views)),
        "labels": list(names),
        "support": np.asarray(Y).sum(axis=0).astype(int).tolist(),
        "columns": list(columns),
        "rows": {row: {"true": shown[row], "cells": cells[row]} for row in shown},
        "at": [_at_beta(view) for view in views],
    }


def _at_beta(view: BetaView) -> dict[str, Any]:
    numbers = {key: f"{value:.4f}" for key, value in {**view.scores, **view.baselines}.items()}
    groups = {
        key: [[r.row, f"{r.expected:.3f}", f"{r.actual:.3f}", r.predicted] for r in rows]
        for key, rows in view.rows.items()
    }
    return {
        "numbers": {**numbers, "size": f"{view.mean_size:.2f}"},
        "error": f"{view.standard_error:.4f}",
        "predicted": view.predicted.tolist(),
        "hits": view.hits.tolist(),
        "confusions": view.confusions,
        "calibration": asdict(calibration_chart("", {"this model": view.bins}, [0]))
        if view.bins
        else None,
        "groups": groups,
    }


def _cell(value: Any) -> str:
    words = "" if value is None else str(value)
    return words if len(words) <= _MAX_CELL else f"{words[:_MAX_CELL]}..."


def _embedded(content: dict[str, Any]) -> str:
    """Put data into a page: nothing in it can end the element, or be half a character."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="data">{text}</script>'
