"""HTML pages of one file each: their elements, and the page of ``fbeta evaluate --report``."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.report import charts, evaluation
from fbeta.report.evaluation import MEASURES
from fbeta.storage.model_files import StoredModel

_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
    "style-src 'unsafe-inline'; script-src "
)
_LABEL_COLUMNS = ("label", "rows with it", "predicted", "precision", "recall", "F_beta")
_CONFUSION_COLUMNS = ("missed", "predicted instead", "rows")
_ROW_COLUMNS = ("expected F", "actual F", "true tags", "predicted tags")
_BASELINES = {"constant": "best constant set", "half": "labels with probability above 1/2"}
# characters of a cell that are shown beside a row
_MAX_CELL = 300


def _resource(name: str) -> str:
    """Return the text of a style sheet or script of this package."""
    return (files("fbeta.report") / name).read_text(encoding="utf-8")


def page(title: str, content: str, *, style: str = "", script: str = "") -> str:
    """Put content into a page of its own, with styles for light and dark, phones and desks."""
    light, dark = (
        f":root {{ {' '.join(f'--c{n}: {colour};' for n, colour in enumerate(colours))} }}"
        for colours in zip(*charts.PALETTE, strict=True)
    )
    dark = f"@media (prefers-color-scheme: dark) {{ {dark} }}"
    digest = b64encode(sha256(script.encode()).digest()).decode()
    # values are filled in once: a title with a placeholder in it stays as it is
    text = Template(_resource("page.html")).substitute(
        title=escape(title),
        policy=_POLICY + (f"'sha256-{digest}'" if script else "'none'"),
        style="\n".join([light, dark, _resource("page.css"), style]),
        content=content,
        script=f"<script>{script}</script>" if script else "",
    )
    # names from files may have lone surrogates, which UTF-8 cannot encode
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def section(title: str, text: str, content: str = "") -> str:
    """Make a section of a heading and a paragraph, both plain text, and HTML below them."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def figures(panels: Sequence[charts.Chart]) -> str:
    """Draw charts beside each other, as many as there is room for; no HTML for none."""
    drawn = (
        f"<figure><figcaption>{escape(panel.title)}</figcaption>{charts.to_svg(panel)}</figure>"
        for panel in panels
    )
    return f'<div class="charts">{"".join(drawn)}</div>' if panels else ""


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, name: str = "table", words: bool = False
) -> str:
    """Put cells of HTML into a table that scrolls on a phone; columns are numbers, or words."""
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll{" words" if words else ""}" tabindex="0" role="region" '
        f'aria-label="{escape(name)}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
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
    views, marginals = evaluation.inspect_betas(stored, features, Y, beta=beta)
    own = float(stored.classifier.beta if beta is None else beta)
    start = [view.beta for view in views].index(own)
    names = [*stored.label_names, *unseen]
    columns = {**(ids or {}), **dict(evaluation.text_cells(stored, X))}
    choice, candidates, alphas = _choice(stored)
    data = {**_data(names, Y, views, columns), "start": start, "alphas": alphas}
    if marginals is not None:
        matrix, feature_names = evaluation.named_features(stored, features)
        data["curves"] = evaluation.precision_recall_curves(Y, marginals)
        data["features"] = evaluation.speaking_features(matrix, marginals, feature_names)
    date = date or datetime.now().astimezone().strftime("%Y-%m-%d")
    buttons = [f'<button type="button">{escape(name)}</button>' for name in _LABEL_COLUMNS]
    row_head = ["row", *map(escape, columns), *_ROW_COLUMNS]
    has_rows = views[start].bins is not None
    content = Template(_resource("evaluation.html")).substitute(
        summary=escape(f"{len(Y):,} rows, {len(names):,} labels, {date}"),
        grid=escape(_grid_words(views)),
        last=len(views) - 1,
        start=start,
        numbers=_numbers(views, float(np.asarray(Y).sum(axis=1).mean())),
        label_table=html_table(buttons, [], name="by label"),
        options="".join(f'<option value="{j}">{escape(n)}</option>' for j, n in enumerate(names)),
        confusion_table=html_table(_CONFUSION_COLUMNS, [], name="confused tags"),
        calibration=escape(charts.CALIBRATION),
        row_table=html_table(row_head, [], name="rows"),
        choice=escape(choice),
        candidates=candidates,
        model_table=_model_table(stored, len(Y)),
        data=_embedded(data),
        **{"class": escape(type(stored.classifier).__name__)},
        hide_label="hidden" if marginals is None else "",
        hide_rows="" if has_rows else "hidden",
        hide_no_rows="hidden" if has_rows else "",
    )
    style, script = _resource("evaluation.css"), _resource("evaluation.js")
    return page(title, content, style=style, script=script)


def _grid_words(views: Sequence[evaluation.BetaView]) -> str:
    if len(views) == 1:
        return "this method is fitted for one beta and predicts for no other"
    apart = ", eighths of an octave apart" if len(views) >= len(evaluation.BETA_GRID) else ""
    return f"{len(views)} values from {views[0].beta:.3g} to {views[-1].beta:.3g}{apart}"


def _numbers(views: Sequence[evaluation.BetaView], true_size: float) -> str:
    """Make the places of the numbers that the slider changes."""
    words = {key: MEASURES[key] for key in ("fbeta", "precision", "recall")}
    words |= {key: f"F_beta, {_BASELINES[key]}" for key in views[0].baselines}
    words["size"] = f"size of the sets (true: {true_size:.2f})"
    words |= {key: name for key, name in MEASURES.items() if key not in words}
    return "".join(
        f'<div><dt>{escape(name)}</dt><dd><span id="number-{key}"></span> '
        f'<small id="error-{key}"></small></dd></div>'
        for key, name in words.items()
    )


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
    tried = evaluation.leaderboard(stored.classifier)
    if tried:
        chosen = sum(weight > 0 for *_, weight in tried)
        rows = [[escape(n), f"{score:.4f}", f"{w:.2f}" if w else ""] for n, score, w in tried]
        text = (
            f"It averages {chosen} out of {len(tried)} models that were tried: those, and with the "
            "weights, that did best on held-out rows of the training data."
        )
        return text, html_table(["tried", "F_beta", "weight"], rows, name="what was tried"), None
    search = evaluation.alpha_scores(stored.classifier)
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
    series = [charts.Series("mean over the folds", points)]
    chart = charts.LineChart("", "alpha", "F_beta over the folds", series, x_log=True)
    return text, '<figure id="alphas"></figure>', asdict(chart)


def _beta_chart(views: Sequence[evaluation.BetaView]) -> charts.LineChart:
    """Show precision, recall, F_beta with its standard error, and the baselines against beta."""
    names = {"fbeta": "F_beta", "precision": "precision", "recall": "recall"}
    lines = [
        charts.Series(name, [(view.beta, view.scores[key]) for view in views], number)
        for number, (key, name) in enumerate(names.items())
    ]
    errors = [view.standard_error for view in views]
    lines[0] = charts.Series(lines[0].name, lines[0].points, 0, errors=errors)
    lines += [
        charts.Series(name, [(view.beta, view.baselines[key]) for view in views], None)
        for key, name in _BASELINES.items()
        if key in views[0].baselines
    ]
    return charts.LineChart("", "beta", "mean over the rows", lines, x_log=True)


def _data(
    names: Sequence[str],
    Y: NDArray[Any],
    views: Sequence[evaluation.BetaView],
    columns: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    """Gather what the script shows; numbers are rounded as ``fbeta evaluate`` prints them."""
    shown = {row.row: row.true for view in views for group in view.rows.values() for row in group}
    values = {row: [column[row] for column in columns.values()] for row in shown}
    texts = {row: ["" if v is None else str(v) for v in values[row]] for row in shown}
    cells = {r: [t[:_MAX_CELL] + "..." * (len(t) > _MAX_CELL) for t in texts[r]] for r in shown}
    return {
        "betas": [view.beta for view in views],
        "shown": [f"{view.beta:.3g}" for view in views],
        "chart": asdict(_beta_chart(views)),
        "labels": list(names),
        "support": np.asarray(Y).sum(axis=0).astype(int).tolist(),
        "columns": list(columns),
        "rows": {row: {"true": shown[row], "cells": cells[row]} for row in shown},
        "at": [_at_beta(view) for view in views],
    }


def _at_beta(view: evaluation.BetaView) -> dict[str, Any]:
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
        "calibration": asdict(charts.calibration_chart("", {"this model": view.bins}, [0]))
        if view.bins
        else None,
        "groups": groups,
    }


def _embedded(data: dict[str, Any]) -> str:
    """Write data as JSON in which nothing can end an element of HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
