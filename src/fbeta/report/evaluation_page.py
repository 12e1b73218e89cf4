"""The page of ``fbeta evaluate --report``: one model at every beta, to be looked at and moved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.report.charts import CALIBRATION, LineChart, Series, calibration_chart, colour_of
from fbeta.report.evaluation import MEASURES
from fbeta.report.inspection import (
    BETA_GRID,
    AtBeta,
    RowView,
    inspect_betas,
    search_of,
    tried_by,
)
from fbeta.report.shell import figures, html_table, page, section
from fbeta.report.svg import cursor, to_html
from fbeta.storage.model_files import StoredModel

__all__ = ["evaluation_page"]

_COLUMNS = ("label", "rows with it", "predicted", "precision", "recall", "F_beta")
_ROWS = ("row", "expected F", "actual F", "true tags", "predicted tags")


def evaluation_page(
    stored: StoredModel,
    X: Any,
    Y: NDArray[Any],
    *,
    title: str,
    beta: float | None = None,
    unseen: Sequence[str] = (),
) -> str:
    """Write a page that shows a model on labelled data, for every beta.

    Parameters
    ----------
    stored : StoredModel
        The model; names in it may come from anybody.
    X, Y : arrays of shape (n, d) and (n, s)
        Features, and labels as 0/1.
    title : str
        What was measured on what, as plain text.
    beta : float, optional
        Where the slider stands at first; that of the model by default.
    unseen : sequence of str
        Names of columns that Y has beyond the labels of the model, which it never predicts.

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
    views = inspect_betas(stored, X, Y, beta=beta)
    own = float(stored.classifier.beta if beta is None else beta)
    start = [view.beta for view in views].index(own)
    parts = [
        _slider(views, start, float(np.asarray(Y).sum(axis=1).mean())),
        section("What beta does", _BETAS, _measures_chart(_beta_chart(views))),
        section("By label", _LABELS, _sortable()),
        *_trust(stored, views, start),
        _model_section(stored, np.shape(Y)),
        _embedded(_content([*stored.label_names, *unseen], Y, views, start)),
        "<noscript><p>The numbers of this page need JavaScript.</p></noscript>",
    ]
    return page(title, "\n".join(parts), style=_file("css"), script=_file("js"))


_BETAS = (
    "Means over the rows, 0/0 = 1. The model is one and the same; only its decision moves: to the "
    "right recall counts more and sets grow, to the left precision does and they shrink."
)
_LABELS = (
    "Precision, recall and F_beta of each label over all rows, at the beta of the slider. "
    "A press on a heading sorts."
)
_SURE = "The rows of which the model expects most, and those of which it expects least. "
_MARKS = "\u2713 is a tag that is true and predicted, \u2212 one that was missed, + a wrong one."


def _file(suffix: str) -> str:
    return (files("fbeta.report") / f"evaluation.{suffix}").read_text(encoding="utf-8")


def _shown(beta: float) -> str:
    return f"{beta:.3g}"


def _slider(views: Sequence[AtBeta], start: int, true_size: float) -> str:
    """Make the slider and the numbers that it moves; the script fills them in."""
    words = {key: MEASURES[key] for key in ("fbeta", "precision", "recall")}
    words["size"] = f"size of the sets (true: {true_size:.2f})"
    words |= {key: name for key, name in MEASURES.items() if key not in words}
    numbers = "".join(
        f'<div><dt>{escape(name)}</dt><dd id="number-{key}"></dd></div>'
        for key, name in words.items()
    )
    grid = (
        f"{len(views)} values from {_shown(views[0].beta)} to {_shown(views[-1].beta)}"
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


def _beta_chart(views: Sequence[AtBeta]) -> LineChart:
    """Show precision, recall and F_beta against beta."""
    names = {"fbeta": "F_beta", "precision": "precision", "recall": "recall"}
    lines = [
        Series(name, [(view.beta, view.scores[key]) for view in views], number)
        for number, (key, name) in enumerate(names.items())
    ]
    return LineChart(
        "Precision, recall and F_beta", "beta", "mean over the rows", lines, x_log=True
    )


def _measures_chart(chart: LineChart) -> str:
    return f'<div class="charts"><figure>{to_html(chart, with_cursor=True)}</figure></div>'


def _sortable() -> str:
    heads = [f'<button type="button">{escape(name)}</button>' for name in _COLUMNS]
    return f'<div id="by-label">{html_table(heads, [], name="by label")}</div>'


def _trust(stored: StoredModel, views: Sequence[AtBeta], start: int) -> list[str]:
    """Show how far what the model expects can be relied on, and where it expects most and least."""
    name = type(stored.classifier).__name__
    if views[start].bins is None:
        words = f"A model of {name} does not estimate the F_beta of its own predictions."
        return [section("How sure it is", words)]
    charts = "".join(
        f'<div data-calibration="{place}"{"" if place == start else " hidden"}>'
        f"{to_html(calibration_chart('', {name: view.bins or []}, [colour_of(name)]))}</div>"
        for place, view in enumerate(views)
    )
    drawn = f'<div class="charts"><figure>{charts}</figure></div>'
    tables = "".join(
        f'<h3>{title}</h3><div id="{key}">{html_table(_ROWS, [], name=title)}</div>'
        for key, title in (("surest", "Most sure"), ("unsurest", "Least sure"))
    )
    return [
        section("Calibration of the expected F_beta", CALIBRATION, drawn),
        section("Most and least sure", _SURE + _MARKS, tables),
    ]


def _model_section(stored: StoredModel, shape: tuple[int, ...]) -> str:
    """Say what the model is, and how it was chosen."""
    classifier, rows = stored.classifier, stored.training.get("rows")
    facts = {
        "class": type(classifier).__name__,
        "steps before it": ", ".join(type(step).__name__ for step in stored.steps),
        **{key: repr(value) for key, value in classifier.get_params(deep=False).items()},
        "features": str(getattr(stored.estimator, "n_features_in_", "")),
        "labels": str(len(stored.label_names)),
        "sizes of label sets": _sizes(classifier),
        "fitted to": f"{rows} rows" if isinstance(rows, int) else "",
        "measured on": f"{shape[0]} rows",
        "made with": ", ".join(f"{name} {number}" for name, number in stored.versions.items()),
    }
    cells = [[escape(key), escape(words)] for key, words in facts.items() if words]
    table = html_table(["", ""], cells, name="the model", words=True)
    text, chart = _choice(stored)
    return section("The model, and how it was chosen", text, chart + table)


def _choice(stored: StoredModel) -> tuple[str, str]:
    """Return how alpha was chosen in words, and as a chart where it was searched for."""
    training, search = stored.training, search_of(stored.training, stored.classifier)
    tried = tried_by(stored.classifier)
    if tried:
        chosen = sum(weight > 0 for *_, weight in tried)
        rows = [[escape(n), f"{score:.4f}", f"{w:.2f}" if w else ""] for n, score, w in tried]
        table = html_table(["tried", "F_beta", "weight"], rows, name="what was tried")
        return (
            f"It averages {chosen} out of {len(tried)} models that were tried: those, and with the "
            "weights, that did best on held-out rows of the training data."
        ), table
    if search is None:
        given = "alpha" in training and training.get("cv_score") is None
        return (
            "Its parameters were given, not searched for."
            if given
            else "The file does not say how its parameters were chosen."
        ), ""
    best = int(np.argmax(search.scores))
    text = (
        f"alpha = {search.alphas[best]:g} was chosen from {len(search.alphas)} strengths of "
        f"regularisation: its mean F_beta over {search.folds} folds of the training rows, "
        f"{search.scores[best]:.4f}, was the highest."
    )
    points = [(a, s) for a, s in zip(search.alphas, search.scores, strict=True) if a > 0]
    series = [Series("mean over the folds", points)]
    chart = LineChart("F_beta over the folds", "alpha", "F_beta", series, x_log=True)
    return text, figures([chart]) if points else ""


def _sizes(classifier: Any) -> str:
    best = getattr(classifier, "best_estimator_", classifier)
    sizes = getattr(best, "cardinalities_", None)
    return "" if sizes is None else ", ".join(str(int(size)) for size in sizes)


def _content(
    names: Sequence[str], Y: NDArray[Any], views: Sequence[AtBeta], start: int
) -> dict[str, Any]:
    """Gather what the script shows; numbers are written here, as ``fbeta evaluate`` prints them."""
    shown = {row.row: row.true for view in views for row in (*view.surest, *view.unsurest)}
    return {
        "betas": [view.beta for view in views],
        "shown": [_shown(view.beta) for view in views],
        "start": start,
        "cursor": cursor(_beta_chart(views), [view.beta for view in views]),
        "labels": list(names),
        "support": np.asarray(Y).sum(axis=0).astype(int).tolist(),
        "truth": shown,
        "at": [
            {
                "numbers": {
                    **{key: f"{value:.4f}" for key, value in view.scores.items()},
                    "size": f"{view.mean_size:.2f}",
                },
                "predicted": view.predicted.tolist(),
                "hits": view.hits.tolist(),
                "surest": [_cells(row) for row in view.surest],
                "unsurest": [_cells(row) for row in view.unsurest],
            }
            for view in views
        ],
    }


def _cells(row: RowView) -> list[Any]:
    return [row.row, f"{row.expected:.3f}", f"{row.actual:.3f}", row.predicted]


def _embedded(content: dict[str, Any]) -> str:
    """Put data into a page: nothing in it can end the element, or be half a character."""
    text = json.dumps(content, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="data">{text}</script>'
