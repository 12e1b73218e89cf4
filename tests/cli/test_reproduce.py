"""The paper's experiments and the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .toys import Run, rows_of

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")


@pytest.mark.slow
def test_reproduce_table2_resumes(tmp_path: Path, run: Run) -> None:
    command = [
        "reproduce",
        "table2",
        "--datasets",
        "calibrated",
        "--alphas",
        "1",
        "--cv",
        2,
        "--json",
        "-o",
        tmp_path,
    ]
    code, out, err = run(*command, "--methods", "fbeta")
    assert (code, err) == (0, "")
    assert json.loads(out)["computed"] == 1
    code, out, _ = run(*command, "--methods", "fbeta,fbeta-all")
    summary = json.loads(out)
    assert (code, summary["cells"], summary["computed"]) == (0, 2, 1)
    for suffix in ("md", "tex", "csv", "png"):
        assert (tmp_path / f"table2.{suffix}").stat().st_size > 100
    cell = json.loads(next((tmp_path / "cells" / "table2").glob("*.json")).read_text())
    assert {"seed", "alphas", "cv", "beta"} <= cell["parameters"].keys()
    assert {"alpha", "cv", "scores", "seconds"} <= cell["result"].keys()
    assert {"numpy", "scikit-learn", "fbeta"} <= cell["versions"].keys()


def test_reproduce_figure1(tmp_path: Path, run: Run) -> None:
    code, out, err = run("reproduce", "figure1", "--sizes", "50,500", "--seeds", 2, "-o", tmp_path)
    assert (code, err) == (0, "")
    assert "report.html" in out
    rows = rows_of(tmp_path / "figure1.csv")
    assert [row["n"] for row in rows] == ["50", "500"]
    assert float(rows[1]["regret"]) < float(rows[0]["regret"])


def test_reproduce_leaves_out_what_it_cannot_have(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fbeta.experiments import benchmark

    def absent(name: str, data_home: Path | None = None) -> None:
        raise benchmark_error(f"{name}: not here")

    benchmark_error = ValueError
    monkeypatch.setattr(benchmark, "load_dataset", absent)
    code, _, err = run("reproduce", "table2", "-o", tmp_path)
    assert code == 2
    assert "scene is left out: scene: not here" in err
    assert "--data" in err.splitlines()[-1]


def test_the_report_says_what_was_left_out(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fbeta.experiments import benchmark

    real = benchmark.load_dataset

    def only_scene(name: str, data_home: Path | None = None) -> Any:
        if name != "scene":
            raise ValueError(f"{name}: not here")
        return real("calibrated")

    monkeypatch.setattr(benchmark, "load_dataset", only_scene)
    code, _, err = run(
        "reproduce", "table2", "--methods", "fbeta", "--alphas", 1, "--cv", 2, "-o", tmp_path
    )
    assert code == 0, err
    assert "mediamill is left out: mediamill: not here" in err
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<td>Mediamill</td><td>mediamill: not here</td>" in report
    assert "Hardware: " in report


def test_a_cell_that_fails_is_a_bug_but_the_rest_is_kept(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fbeta.experiments import benchmark

    real = benchmark.compute_benchmark

    def fail_once(cell: Any, **options: Any) -> Any:
        if cell.method == "fbeta-all":
            raise ZeroDivisionError("oh")
        return real(cell, **options)

    monkeypatch.setattr(benchmark, "compute_benchmark", fail_once)
    code, _, err = run(
        "reproduce",
        "table2",
        "--datasets",
        "calibrated",
        "--alphas",
        1,
        "--cv",
        2,
        "--methods",
        "fbeta-all,fbeta",
        "-o",
        tmp_path,
    )
    assert code == 1
    assert "ZeroDivisionError: oh" in err
    assert "0." in (tmp_path / "table2.md").read_text()


def test_failures_are_told_where_all_cells_fail(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fbeta.experiments import benchmark

    monkeypatch.setattr(benchmark, "compute_convergence", lambda cell: 1 / 0)
    code, out, err = run("reproduce", "figure1", "--sizes", "50", "--seeds", 1, "-o", tmp_path)
    assert (code, out) == (1, "")
    assert "failed: ZeroDivisionError" in err


@pytest.mark.slow
def test_demo(tmp_path: Path, run: Run) -> None:
    code, out, err = run("demo", "-o", tmp_path / "demo")
    assert (code, err) == (0, "")
    rows = rows_of(tmp_path / "demo" / "figure1.csv")
    assert float(rows[-1]["regret"]) < 0.001 < float(rows[0]["regret"])
    assert (tmp_path / "demo" / "figure1.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "demo" / "tickets.html").read_text(encoding="utf-8")
    assert "warranty" in page
    assert out.count("$ fbeta ") == 2
    assert "F_beta (instances)" in out
    following = out.splitlines()[-3:]
    assert [line.split()[:2] for line in following] == [
        ["fbeta", "fit"],
        ["fbeta", "evaluate"],
        ["fbeta", "predict"],
    ]
    assert "30,000" in out
