from __future__ import annotations

from pathlib import Path

import pytest

from fbeta.cli import main

from .toys import TRAIN, Run, write_csv


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def model(tmp_path: Path, run: Run) -> Path:
    """A model fitted to a CSV file."""
    train = write_csv(tmp_path / "train.csv", *TRAIN)
    path = tmp_path / "model.skops"
    code, _, err = run("fit", train, "--label-prefix", "is_", "--alpha", 1, "-o", path)
    assert (code, err) == (0, "")
    return path


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The automatic method keeps what it has found after a moment."""
    monkeypatch.setattr("fbeta.cli.options.TIME_LIMIT", 0.05)
