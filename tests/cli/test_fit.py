"""What commands fit: the automatic method unless a strength is asked for; ranks by folds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fbeta import FBetaAuto
from fbeta.cli import main
from fbeta.estimators.average import Progress
from fbeta.storage.model_files import load_model

from .toys import TEST, TRAIN, write_csv

LABELS = ["--label-prefix", "is_"]

for needed in ("typer", "rich", "skops"):
    pytest.importorskip(needed)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = tmp_path / "train.csv", tmp_path / "test.csv"
    for path, rows in zip(paths, (TRAIN, TEST), strict=True):
        write_csv(path, *rows)
    return str(paths[0]), str(paths[1])


def test_fit_uses_the_automatic_method(files, tmp_path, capsys) -> None:
    model = str(tmp_path / "m.skops")
    command = ["fit", files[0], *LABELS, "--cv", "2", "--time-limit", "0.001", "-o", model]
    assert main([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["method"] == "auto"
    assert summary["alpha"] is None
    row = summary["leaderboard"][0]
    assert sum(r["weight"] for r in summary["leaderboard"]) == pytest.approx(1)
    stored = load_model(model)
    assert type(stored.classifier).__name__ == "FBetaAuto"
    assert stored.classifier.time_limit == 0.001
    assert main([*command[:-1], str(tmp_path / "n.skops")]) == 0
    printed = capsys.readouterr().out
    assert row["name"] in printed
    # the score above the table is that of its first row
    average = next(line for line in printed.splitlines() if "average " in line)
    assert f"{summary['cv_score']:.4f}" in average


def test_what_there_was_no_time_for_is_named(files, tmp_path, capsys, monkeypatch) -> None:
    fit = FBetaAuto.fit

    def late(self, X, Y, *, progress, **more):
        for why in ("it took too long", "it does not run on tensors"):
            progress(Progress(f"as {why}", "left out", None, None, 1.0, 2.0, why))
        return fit(self, X, Y, progress=progress, **more)

    monkeypatch.setattr(FBetaAuto, "fit", late)
    command = ["fit", files[0], *LABELS, "--cv", "2", "--time-limit", "0.001"]
    assert main([*command, "-o", str(tmp_path / "m.skops")]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = "Left out, because of the --time-limit: 'as it took too long'"
    assert [line for line in lines if line.startswith("Left out")] == [words]


def test_a_strength_asks_for_the_papers_method(files, tmp_path, capsys) -> None:
    for option in (["--alpha", "1"], ["--alphas", "0.1,1", "--cv", "2"]):
        model = str(tmp_path / f"{option[0][2:]}.skops")
        assert main(["fit", files[0], *LABELS, *option, "-o", model, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["method"] == "fbeta"


def test_methods_are_ranked_by_the_folds_of_the_training_file(files, capsys) -> None:
    options = ["--methods", "br,forest,auto", "--cv", "2", "--time-limit", "0.001", "--json"]
    assert main(["compare", *files, *LABELS, *options]) == 0
    rows = json.loads(capsys.readouterr().out)["methods"]
    assert {row["method"] for row in rows} == {"br", "forest", "auto"}
    scores = [row["cv_score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= row["fbeta"] <= 1 for row in rows)
