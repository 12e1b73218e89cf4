"""Figures need the stored results and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fbeta.cli import main
from fbeta.experiments import benchmark, convergence
from fbeta.experiments.cells import ResultError
from fbeta.experiments.figures import draw_betas, draw_calibration, draw_convergence
from fbeta.experiments.store import ResultStore

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
PNG = b"\x89PNG\r\n\x1a\n"


def test_everything_is_drawn_again_from_the_results_alone(
    filled_store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("drawing must not compute or read data")

    monkeypatch.setattr(benchmark, "compute_benchmark", refuse)
    monkeypatch.setattr(benchmark, "load_dataset", refuse)
    monkeypatch.setattr(convergence, "compute_convergence", refuse)
    copy = tmp_path / "copy"
    shutil.copytree(filled_store.folder / "cells", copy / "cells")
    assert main(["reproduce", "report", "-o", str(copy)]) == 0
    for name in ("figure1.png", "table2.png"):
        content = (copy / name).read_bytes()
        assert content.startswith(PNG)
        assert len(content) > 5000
    assert (copy / "figure1.csv").read_text().count("\n") == 4
    assert {p.name for p in copy.iterdir()} == {
        "cells", "figure1.csv", "figure1.png", "report.html",
        "table2.csv", "table2.md", "table2.png", "table2.tex",
    }  # fmt: skip


def test_a_folder_without_results_is_the_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "report", "-o", str(tmp_path)]) == 2
    assert "no results" in capsys.readouterr().err
    with pytest.raises(ResultError):
        draw_convergence([], tmp_path / "x.png")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_formats_of_single_figures(tmp_path: Path, suffix: str) -> None:
    draw_betas({"a": {0.5: 0.4, 2.0: 0.6}}, tmp_path / f"betas.{suffix}")
    bins = [{"expected": 0.2, "actual": 0.3, "count": 4.0}]
    draw_calibration({"a": bins}, tmp_path / f"bins.{suffix}")
    assert all((tmp_path / f"{name}.{suffix}").stat().st_size > 500 for name in ("betas", "bins"))


def test_a_failed_drawing_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        draw_betas({"a": {1.0: 0.5}}, tmp_path / "x.nonsense")
    assert list(tmp_path.iterdir()) == []
