"""``fbeta decode``: label sets from the scores of another tool."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line needs typer")

from fbeta.cli.app import run
from fbeta.metrics import fbeta_score


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    lists, truth = [], []
    for _ in range(150):
        labels, p = rng.choice(60, 8, replace=False), rng.random(8)
        lists.append({f"tag {j}": round(float(v), 6) for j, v in zip(labels, p, strict=True)})
        truth.append([name for name, v in lists[-1].items() if rng.random() < v**2])
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    (tmp_path / "truth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in truth))
    return tmp_path, lists, truth


def sets_in(path):
    return [json.loads(line)["labels"] for line in path.read_text().splitlines()]


def test_held_out_rows(files, capsys):
    folder, _, truth = files
    out = folder / "sets.jsonl"
    arguments = ["decode", str(folder / "scores.jsonl"), "--labels", str(folder / "truth.jsonl")]
    assert run([*arguments, "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 150
    assert found["fbeta"] == pytest.approx(fbeta_score(truth, sets_in(out)))
    assert run([*arguments, "--max-labels", "1", "-o", str(out)]) == 0
    assert max(map(len, sets_in(out))) == 1


def test_new_rows_and_scores_as_they_are(files, capsys):
    folder, _, truth = files
    scores, out = str(folder / "scores.jsonl"), folder / "sets.jsonl"
    assert run(["decode", scores, "-o", str(out), "--beta", "2"]) == 0
    plain = fbeta_score(truth, sets_in(out))
    learnt = ["--labels", str(folder / "truth.jsonl"), "--new", scores]
    assert run(["decode", scores, *learnt, "-o", str(out)]) == 0
    assert fbeta_score(truth, sets_in(out)) > plain
    assert run(["decode", scores]) == 0
    assert "nothing is written" in capsys.readouterr().err


def test_tables_with_a_column_for_each_label(files, capsys):
    folder, lists, truth = files
    names = sorted({name for row in lists for name in row})
    cells = [",".join(str(row.get(name, "")) for name in names) for row in lists]
    (folder / "scores.csv").write_text("\n".join([",".join(names), *cells, ""]))
    cells = [",".join(str(int(name in row)) for name in names) for row in truth]
    (folder / "truth.csv").write_text("\n".join([",".join(names), *cells, ""]))
    for suffix in ("csv", "jsonl"):
        scores, labels = str(folder / f"scores.{suffix}"), str(folder / f"truth.{suffix}")
        out = folder / f"from-{suffix}.jsonl"
        assert run(["decode", scores, "--labels", labels, "-o", str(out)]) == 0
    assert sets_in(folder / "from-csv.jsonl") == sets_in(folder / "from-jsonl.jsonl")
    first, second = capsys.readouterr().out.replace(".csv", ".jsonl").strip().split("\n")[::2]
    assert first == second


def test_gzip_is_read_and_never_written(files, capsys):
    folder, _, _ = files
    plain, packed = folder / "scores.jsonl", folder / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        assert run(["decode", str(path), "-o", str(folder / f"{path.stem}.sets.jsonl")]) == 0
    assert sets_in(folder / "packed.jsonl.sets.jsonl") == sets_in(folder / "scores.sets.jsonl")
    capsys.readouterr()
    (folder / "wrong.txt").write_bytes(packed.read_bytes())
    for arguments, words in (
        ([plain, "-o", folder / "sets.csv.gz"], "sets.csv.gz: outputs are not compressed"),
        ([folder / "wrong.txt"], "wrong.txt: the content is that of a gzip file"),
    ):
        assert run(["decode", *map(str, arguments)]) == 2
        assert words in capsys.readouterr().err


def test_names_that_contain_what_is_between_names(tmp_path, capsys):
    scores = tmp_path / "scores.jsonl"
    scores.write_text('{"a;b": 0.9, "c": 0.2}\n{"x, y": 0.8}\n')
    for suffix, name in (("csv", "'a;b' contains ';'"), ("txt", "'x, y' contains ','")):
        assert run(["decode", str(scores), "-o", str(tmp_path / f"sets.{suffix}")]) == 2
        assert f"sets.{suffix}: label {name}: choose a .jsonl file" in capsys.readouterr().err
    assert run(["decode", str(scores), "-o", str(tmp_path / "sets.jsonl")]) == 0
    assert sets_in(tmp_path / "sets.jsonl") == [["a;b"], ["x, y"]]


def test_mistakes_are_told_in_a_line(files, capsys):
    folder, _, _ = files
    scores = str(folder / "scores.jsonl")
    short = folder / "short.jsonl"
    short.write_text("[]\n")
    for arguments, words in (
        (["--new", scores], "--new: needs --labels"),
        (["--labels", str(short)], "1 rows, but there are 150 lists"),
        (["--labels", scores], "--labels: expected label sets, or 0 and 1, found the score 0."),
        (["--labels", str(folder / "none.jsonl")], "no such file"),
        (["--inputs", "logits"], "needs --labels"),
        (["-o", scores], "scores.jsonl"),
    ):
        assert run(["decode", scores, *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
