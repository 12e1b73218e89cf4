"""Charts need the stored results and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fbeta.cli import main
from fbeta.experiments import benchmark
from fbeta.experiments.cells import ResultStore
from fbeta.experiments.report import (
    beta_charts,
    calibration_charts,
    convergence_charts,
    score_charts,
)
from fbeta.experiments.tables import score_tables
from fbeta.methods import METHODS, make_method

from .conftest import convergence_record, score_record

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_everything_is_drawn_again_from_the_results_alone(
    filled_store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("drawing must not compute or read data")

    monkeypatch.setattr(benchmark, "compute_benchmark", refuse)
    monkeypatch.setattr(benchmark, "load_dataset", refuse)
    monkeypatch.setattr(benchmark, "compute_convergence", refuse)
    copy = tmp_path / "copy"
    shutil.copytree(filled_store.folder / "cells", copy / "cells")
    assert main(["reproduce", "report", "-o", str(copy)]) == 0
    for name in ("figure1.png", "table2.png"):
        content = (copy / name).read_bytes()
        assert content.startswith(PNG)
        assert len(content) > 5000
    assert (copy / "figure1.csv").read_text().count("\n") == 4
    assert {p.name for p in copy.iterdir()} == {
        "cells",
        "figure1.csv",
        "figure1.png",
        "report.html",
        "table2.csv",
        "table2.md",
        "table2.png",
        "table2.tex",
    }


def test_a_folder_without_results_is_the_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "report", "-o", str(tmp_path)]) == 2
    assert "no results" in capsys.readouterr().err
    with pytest.raises(ValueError):
        convergence_charts([])


def approx(points: list[tuple[float, float]]) -> list[object]:
    return [pytest.approx(point) for point in points]


def test_convergence_has_means_and_seeds() -> None:
    sizes = [(10, 0), (10, 1), (5, 0), (5, 1)]
    records = [convergence_record(n, seed, 0.1 * (seed + 1) / n) for n, seed in sizes]
    score, regret = convergence_charts(records)
    runs, mean, bayes = score.series
    assert runs.loose
    assert runs.points == approx([(10, 0.615), (10, 0.605), (5, 0.605), (5, 0.585)])
    assert mean.points == approx([(5, 0.595), (10, 0.61)])
    assert (bayes.colour, bayes.points) == (None, [(5, 0.625), (10, 0.625)])
    assert regret.y_log
    assert regret.series[1].points == approx([(5, 0.03), (10, 0.015)])
    # a regret of zero has no logarithm
    assert not convergence_charts([convergence_record(5, 0, 0.0)])[1].y_log


def test_charts_of_a_table() -> None:
    records = [
        score_record("scene", "fbeta", 0.7),
        score_record("scene", "br", 0.6),
        score_record("toy", "br", 0.4, seed=0),
        score_record("toy", "br", 0.6, seed=1),
    ]
    records[1].result["calibration"] = None
    (table,) = score_tables(records)
    scene, toy = score_charts(table)
    assert (scene.names, scene.values) == (["FBeta", "BR"], [0.7, 0.6])
    assert scene.marks == [0.7445, 0.6009]
    assert toy.names == ["BR"]
    # a method has one colour, whatever stands beside it
    assert toy.colours[0] == scene.colours[1]
    # BR does not know beta
    by_beta = beta_charts(table)
    assert [chart.title for chart in by_beta] == ["Scene"]
    assert by_beta[0].series[0].points == approx([(0.5, 0.6), (1, 0.7), (2, 0.8)])
    assert by_beta[0].x_ticks == [0.5, 1.0, 2.0]
    calibration = calibration_charts(table)
    assert [chart.title for chart in calibration] == ["Scene", "Toy"]
    assert [series.name for series in calibration[1].series] == ["BR", "expected = actual"]
    # everywhere the colour of its method
    assert by_beta[0].series[0].colour == calibration[0].series[0].colour == scene.colours[0]
    assert calibration[1].series[0].colour == scene.colours[1]


def test_only_methods_that_do_not_follow_beta_are_marked_so() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    Y = (X[:, :3] + rng.normal(size=(60, 3)) > 0).astype(int)
    others = rng.normal(size=(60, 4))  # some methods know their training rows by heart
    for name, method in METHODS.items():
        model = make_method(name)
        if name == "auto":
            model.set_params(time_limit=0.3)
        if name in ("limo", "chain", "cost", "rml", "sml", "macrof", "threshold"):
            continue  # slow to fit, or they refuse another beta
        model.fit(X, Y)
        low, high = (model.predict(others, beta=beta) for beta in (0.1, 10.0))
        assert (low != high).any() == method.follows_beta, name
