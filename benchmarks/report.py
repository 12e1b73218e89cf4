"""The results as one page of Markdown."""

from __future__ import annotations

from typing import Any

SECTIONS: list[tuple[str, str, str, dict[str, str]]] = [
    (
        "solver",
        "The solver",
        "All binary problems of the reduction, at alpha = 1 unless it is named, against "
        "scikit-learn's `LogisticRegression` in a loop over the problems, with the fastest of its "
        "solvers at the loosest tolerance that reaches the optimum within 1e-6 (liblinear, which "
        "penalises the intercept, with `intercept_scaling=100`; on the word indicators the faster "
        "of newton-cholesky and lbfgs). Where not all problems were timed, the peer's time is "
        "scaled. Gaps are those of the summed objective to its optimum. `products` is our time in "
        "units of one product X @ W with a column for each problem.",
        {
            "case": "case",
            "problems": "problems",
            "ours_s": "ours, s",
            "peer_s": "peer, s",
            "peer": "peer",
            "peer_sample": "timed",
            "ratio": "ratio",
            "goal": "goal",
            "ours_gap": "our gap",
            "peer_gap": "peer's gap",
            "products": "products",
        },
    ),
    (
        "path",
        "The path of 8 alphas in 5 folds",
        "One pass for each fold, against 40 separate fits by the same solver.",
        {
            "case": "case",
            "path_s": "path, s",
            "fits_s": "fits, s",
            "ratio": "ratio",
            "goal": "goal",
        },
    ),
    (
        "memory",
        "Memory",
        "The Mediamill-shaped fit in a process of its own.",
        {
            "before_gib": "data and libraries, GiB",
            "peak_gib": "peak, GiB",
            "fit_gib": "added by the fit, GiB",
        },
    ),
    (
        "scaling",
        "How the cost grows",
        "From a base case, twice and four times as large in one direction at a time.",
        {
            "n": "n",
            "d": "d",
            "s": "labels",
            "largest": "sizes",
            "problems": "problems",
            "seconds": "seconds",
            "products": "products",
        },
    ),
    (
        "decode",
        "The decode",
        "Against the O(s^3) procedure without a stopping bound, timed on some of the instances.",
        {
            "n": "instances",
            "labels": "labels",
            "cardinalities": "sizes",
            "seconds": "seconds",
            "plain_s": "plain, s",
            "ratio": "ratio",
            "same_values": "same values",
        },
    ),
    (
        "factored",
        "The decode of marginals",
        "Marginals of the labels, with and without probabilities of their number. They stay "
        "factored; against the decode of the unfolded statistics, timed on some of the instances "
        "(and without the time and memory of unfolding them).",
        {
            "n": "instances",
            "labels": "labels",
            "marginals": "marginals",
            "seconds": "seconds",
            "mb": "memory, MB",
            "dense_s": "unfolded, s",
            "dense_mb": "unfolded, MB",
            "ratio": "ratio",
            "same_values": "same values",
        },
    ),
    (
        "wide",
        "Many labels",
        "19,000 sparse texts with 30,000 words and 2,000 tags, and predictions for 1,000 more: the "
        "paper's model, and labels with a model of their number.",
        {
            "method": "method",
            "fit_s": "fit, s",
            "predict_s": "predict, s",
            "peak_gib": "peak, GiB",
            "added_gib": "added, GiB",
            "F_1": "F_1",
        },
    ),
    (
        "decoder",
        "The decoder over one-against-rest models",
        "scikit-learn's logistic regressions, cross-fitted in five folds: F_1 on the test set with "
        "the best single threshold, with the exact decode under independence, and with "
        "`FBetaDecoder`.",
        {
            "set": "data set",
            "threshold": "threshold",
            "independent": "independent",
            "decoder": "decoder",
            "fit_s": "fit, s",
        },
    ),
    ("efp", "EFP's multinomial fits at Enron's size", "Against one scikit-learn fit a label.", {}),
]


def markdown(results: dict[str, Any]) -> str:
    """Return the page for the parts that have been run."""
    environment = ", ".join(f"{k} {v}" for k, v in results["environment"].items())
    out = ["# Benchmarks", f"`make bench` writes this page. {environment}."]
    for key, title, text, columns in SECTIONS:
        if key in results:
            rows = results[key] if isinstance(results[key], list) else [results[key]]
            names = columns or {name: name.replace("_", " ") for name in rows[0]}
            out += [f"## {title}", text, _table(rows, names)]
    return "\n\n".join(out) + "\n"


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_cell(row[c]) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"
    return str(value)
