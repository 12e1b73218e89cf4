"""The experiment of the automatic classifier: cells, results, table and command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fbeta import FBetaAuto, FBetaClassifierCV
from fbeta.experiments.benchmark import auto_cells, compute_auto, load_dataset
from fbeta.experiments.cells import Record
from fbeta.experiments.tables import auto_rows, calibration_error


def test_what_is_measured_is_what_a_user_would_measure() -> None:
    (cell,) = auto_cells(["calibrated"], time_limit=1e-3, cv=2, seeds=[3])
    result = compute_auto(cell)
    X, Y, X_test, Y_test = load_dataset("calibrated").split
    clf = FBetaAuto(time_limit=1e-3, cv=2, random_state=3).fit(X, Y)
    assert result["score"] == clf.score(X_test, Y_test)
    assert result["cv_score"] == clf.best_score_
    assert result["paper"] == FBetaClassifierCV(cv=2).fit(X, Y).score(X_test, Y_test)
    expected = np.sort(clf.expected_fbeta(X_test))
    groups = [part.mean() for part in np.array_split(expected, 10)]
    np.testing.assert_allclose([group["expected"] for group in result["calibrated"]], groups)
    json.dumps(result)
    head, row = auto_rows([Record.now(cell, result, 1.0)])
    assert dict(zip(head, row, strict=True))["FBetaAuto"] == result["score"]
    assert row[-2] == calibration_error(result["calibrated"]) < 0.1


def test_each_data_set_has_its_time() -> None:
    limits = [cell.parameters["time_limit"] for cell in auto_cells(["yeast", "bibtex", "mine"])]
    assert limits == [300.0, 900.0, 300.0]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("typer", "rich", "skops", "matplotlib"):
        pytest.importorskip(name)
    from fbeta.cli import main

    options = ["--datasets", "calibrated", "--time-limit", "0.001", "--output", str(tmp_path)]
    assert main(["reproduce", "auto", *options, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["data set"] == "calibrated"
    assert main(["reproduce", "auto", *options]) == 0
    assert f"{row['FBetaAuto']:.4f}" in capsys.readouterr().out
    assert (tmp_path / "auto.csv").read_text().startswith("data set,seed,")
