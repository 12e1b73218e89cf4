from __future__ import annotations

import csv
import io
import re

import pytest

from fbeta.experiments.benchmark import PAPER_DATASETS, PAPER_METHODS, paper_score
from fbeta.experiments.tables import convergence_rows, score_tables

from .conftest import convergence_record, score_record

RECORDS = [
    score_record("scene", "fbeta", 0.7435),
    score_record("scene", "br", 0.55),
    score_record("birds", "br", 0.56),
    score_record("birds", "fbeta", 0.58),
    score_record("birds", "fbeta-all", 0.62),
    score_record("a_b", "fbeta", 0.5),
]


def test_markdown_has_the_paper_beside_ours() -> None:
    (table,) = score_tables(RECORDS)
    lines = table.to_markdown().splitlines()
    assert lines[0] == "| Data set | FBeta | BR |"
    assert lines[2] == "| Scene | **0.7435** (0.7445 =) | 0.5500 (0.6009 -) |"
    assert lines[3] == "| Birds | **0.5800** | 0.5600 (0.5510 +) |"
    assert lines[4] == "| Birds (all sizes) | **0.6200** (0.5836 +) |  |"
    assert lines[5] == "| A_b | **0.5000** |  |"
    assert "2-fold" in lines[7]


def test_latex_is_balanced_and_escaped() -> None:
    (table,) = score_tables(RECORDS)
    text = table.to_latex()
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {2}
    assert r"A\_b" in text
    assert r"\textit{0.7445} ($=$)" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_csv_has_one_line_for_each_entry() -> None:
    (table,) = score_tables(RECORDS)
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert len(rows) == len(RECORDS)
    first = rows[0]
    assert (first["dataset"], first["method"], first["variant"]) == ("scene", "fbeta", "")
    assert float(first["difference"]) == pytest.approx(0.7435 - 0.7445)
    assert float(first["fit_seconds"]) == 2.0


def test_seeds_are_averaged_and_protocols_kept_apart() -> None:
    records = [
        score_record("scene", "fbeta", 0.7, seed=0),
        score_record("scene", "fbeta", 0.8, seed=1),
        score_record("scene", "fbeta", 0.9, beta=2.0),
    ]
    first, second = score_tables(records)
    del records[0].cell.parameters["intercepts"]
    assert len(score_tables(records)) == 3
    assert first.rows["scene", ""]["fbeta"].score == pytest.approx(0.75)
    other = second.rows["scene", ""]["fbeta"]
    assert (other.score, other.paper) == (0.9, None)


def test_the_paper_has_24_numbers() -> None:
    numbers = {
        (dataset, method)
        for dataset in PAPER_DATASETS
        for base in PAPER_METHODS
        for method in (base, f"{base}-all")
        if paper_score(dataset, method) is not None
    }
    assert len(numbers) == 24
    assert ("birds", "efp") in numbers
    assert ("birds", "fbeta") not in numbers
    assert paper_score("scene", "fbeta", beta=2.0) is None


def test_convergence_rows_are_means_by_size() -> None:
    records = [
        convergence_record(n, seed, 0.01 / n * (1 + seed)) for n in (10, 5) for seed in (0, 1)
    ]
    head, *rows = convergence_rows(records)
    assert head == ["n", "seeds", "score", "expected", "regret", "bayes"]
    assert [row[:2] for row in rows] == [[5, 2], [10, 2]]
    assert rows[0][4] == pytest.approx(0.003)
