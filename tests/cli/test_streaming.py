"""Files in blocks: the same models and predictions as from files that are read whole."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file

from fbeta import FBetaClassifier
from fbeta.cli import main
from fbeta.datasets.model_data import ModelInput
from fbeta.methods import METHODS
from fbeta.storage.model_files import load_model

from ..blocks.toys import make_rows
from ..cases import slow

for needed in ("typer", "skops"):
    pytest.importorskip(needed)


@pytest.fixture
def files(request, tmp_path):
    X, Y = make_rows(1500, 5, 3, sparse=request.param == "svm")
    kind = {"names": "csv"}.get(request.param, request.param)
    path = tmp_path / f"train.{kind}"
    options = []
    if request.param == "svm":
        some = np.flatnonzero(np.diff(X.indptr))
        X, Y = X[some], Y[some]
        dump_svmlight_file(X, Y, str(path), multilabel=True, zero_based=False)
    else:
        frame = pd.DataFrame(X, columns=list("abcde"))
        if request.param == "names":
            names = np.array(["sea", "sky", "sun"])
            frame["tags"] = [";".join(names[row > 0]) for row in Y]
            options = ["--label-column", "tags"]
        else:
            frame[["is_sea", "is_sky", "is_sun"]] = Y
            options = ["--label-prefix", "is_"]
        write = frame.to_parquet if kind == "parquet" else frame.to_csv
        write(path, index=False)
    return path, options


some_files = pytest.mark.parametrize(
    "files", [slow("csv"), slow("parquet"), "svm", "names"], indirect=True
)


def read_rows(path, stored):
    rows = ModelInput(stored).rows(path, labelled=True)
    for step in stored.steps:
        rows = replace(rows, X=step.transform(rows.X))
    return rows.X, rows.labels.Y


def run(*words):
    assert main([str(word) for word in words]) == 0


@some_files
def test_same_as_whole(files, tmp_path, capsys):
    path, options = files
    models = [tmp_path / "blocks.skops", tmp_path / "whole.skops"]
    run("fit", path, *options, "--alpha", 1, "-o", models[0], "--memory", "150kB", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["passes"] > 2
    run("fit", path, *options, "--alpha", 1, "-o", models[1])
    streamed, whole = map(load_model, models)
    assert list(streamed.label_names) == list(whole.label_names)
    X, Y = read_rows(path, streamed)
    right = FBetaClassifier(alpha=1.0).fit(X, Y)
    np.testing.assert_allclose(streamed.classifier.coef_, right.coef_, rtol=0.02, atol=0.01)
    rows = []
    for name, memory in (("out.csv", ["--memory", "100kB"]), ("all.csv", [])):
        run(
            "predict",
            models[0],
            path,
            "-o",
            tmp_path / name,
            "--expected",
            *memory,
            "--form",
            "columns",
        )
        with (tmp_path / name).open() as file:
            rows.append(list(csv.reader(file)))
    assert rows[0][0] == rows[1][0]
    values = [np.array(part[1:], dtype=float) for part in rows]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-9)


@pytest.mark.parametrize(
    "files", [slow("csv"), slow("parquet"), "svm", slow("names")], indirect=True
)
def test_search_and_checkpoint(files, tmp_path, capsys):
    path, options = files
    model = tmp_path / "m.skops"
    run(
        "fit",
        path,
        *options,
        "--alphas",
        "0.1,1000",
        "--cv",
        2,
        "-o",
        model,
        "--memory",
        "150kB",
        "--checkpoint",
        tmp_path / "state.npz",
        "--json",
    )
    assert json.loads(capsys.readouterr().out)["alpha"] == 0.1
    assert not list(tmp_path.glob("state*"))


@some_files
def test_what_does_not_go_together(files, tmp_path, capsys):
    path, options = files
    model = tmp_path / "m.skops"
    assert main(["fit", str(path), *options, "-o", str(model), "--memory", "lots"]) != 0
    assert "memory must be" in capsys.readouterr().err
    for wrong in (["--join-labels"], ["--missing", "error"]):
        command = ["fit", str(path), *options, "-o", str(model), "--memory", "1GB", *wrong]
        assert main(command) == 2
        assert wrong[0] in capsys.readouterr().err
    run("fit", path, *options, "--alpha", 1, "-o", model, "--memory", "1GB")
    assert main(["predict", str(model), str(path), "--memory", "1GB"]) != 0
    assert "--output" in capsys.readouterr().err


@pytest.mark.parametrize("files", ["csv"], indirect=True)
@pytest.mark.parametrize("memory", ["1GB", "20kB"])
def test_a_choice_of_alpha_keeps_what_it_knows(files, tmp_path, capsys, memory):
    path, options = files
    scores = []
    for more in ([], ["--memory", memory]):
        command = ["fit", path, *options, "--alphas", "0.1,1", "--cv", 2, *more]
        run(*command, "-o", tmp_path / "m.skops")
        search = load_model(tmp_path / "m.skops").classifier
        assert list(search.cv_results_["alpha"]) == [0.1, 1]
        capsys.readouterr()
        run("predict", tmp_path / "m.skops", path, "--expected")
        rows = csv.DictReader(capsys.readouterr().out.splitlines())
        scores.append([float(row["expected_fbeta"]) for row in rows])
    if memory == "1GB":
        np.testing.assert_allclose(scores[1], scores[0], rtol=1e-9)


def test_methods_without_blocks_are_refused(tmp_path, capsys):
    train = tmp_path / "a.csv"
    train.write_text("x,is_a\n" + "".join(f"{i % 7},{int(i % 7 > 3)}\n" for i in range(60)))
    able = ["fbeta", "fbeta-all", "fbeta-origin", "br", "sized", "cardinality"]
    words = f"fbeta: --memory and --checkpoint: the method must be {', '.join(able)}, not "
    for method in METHODS:
        command = ["fit", train, "--label-prefix", "is_", "--memory", "1GB", "--method", method]
        command += ["--alphas", "1"] if method in able and method != "sized" else []
        code = main([str(word) for word in (*command, "-o", tmp_path / "m.skops")])
        err = capsys.readouterr().err
        assert code == (0 if method in able else 2), err
        assert method in able or err == f"{words}{method}\n"


def test_files_without_rows_are_refused(tmp_path, capsys):
    model, empty, out = fit_with_id(tmp_path, "id"), tmp_path / "empty.csv", tmp_path / "out.csv"
    empty.write_text("id,x,tags\n")
    fit = ["fit", empty, "--label-column", "tags", "--alpha", "1"]
    for command in (["predict", model, empty], fit):
        for more in ([], ["--memory", "1GB"]):
            assert main([str(word) for word in (*command, "-o", out, *more)]) == 2
            err = capsys.readouterr().err
            assert f"{empty}" in err
            assert "expected at least one row" in err
            assert not out.exists()


@pytest.mark.parametrize(
    ("no", "code", "words"),
    [
        ("", 0, "12 blank cells of the label columns count as 0"),
        ("0", 2, "1.csv, line 2: expected 0 or 1 in label column 'is_a', found 'a missing value'"),
    ],
)
def test_blanks_are_no_labels_where_the_first_rows_have_some(tmp_path, capsys, no, code, words):
    for number, word in enumerate((no, "")):
        rows = [f"{i * i % 7 / 3},{word if i % 5 < 3 else 'x'},{i % 2}" for i in range(20)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["a,is_a,is_b", *rows]))
    command = ["fit", str(tmp_path), "--label-prefix", "is_", "--alpha", "1", "--memory", "1GB"]
    assert main([*command, "-o", str(tmp_path.parent / "m.skops")]) == code
    assert words in capsys.readouterr().err


def test_a_note_is_said_once(tmp_path, capsys):
    rows = [f"{i % 7},{(i * 3) % 5},{'ab'[i % 7 > 3]}" for i in range(400)]
    train, new = tmp_path / "a.csv", tmp_path / "new.csv"
    train.write_text("\n".join(["x,y,tags", *rows]))
    new.write_text("\n".join(["x,y", *("1;5,2" for _ in range(400))]))
    run("fit", train, "--label-column", "tags", "--alpha", 1, "-o", tmp_path / "m.skops")
    capsys.readouterr()
    out = tmp_path / "out.csv"
    run("predict", tmp_path / "m.skops", new, "--memory", "100kB", "-o", out)
    err = capsys.readouterr().err
    assert err.count("cells cannot be read as numbers") == 1
    assert "400 cells cannot be read as numbers and count as missing, the first in line 2" in err
    assert len(out.read_text().splitlines()) == 401


def fit_with_id(folder, name):
    rows = [f"R{i},{i % 7},{'ab'[i % 7 > 3]}" for i in range(40)]
    (folder / "train.csv").write_text("\n".join([f"{name},x,tags", *rows]))
    train = ["fit", folder / "train.csv", "--label-column", "tags", "--alpha", 1]
    run(*train, "--id", name.strip('"'), "-o", folder / "m.skops")
    return folder / "m.skops"


@pytest.mark.parametrize(
    ("files", "rows"),
    [
        ({"1.csv": "id,x\nR1,1\n", "2.csv": "x\n2\n"}, 1),
        ({"1.csv": "x\n1\n2\n", "2.csv": "id,x\nR2,2\n"}, 2),
        ({"1.jsonl": '{"id": "R1", "x": 1}\n' * 100 + '{"x": 2}\n'}, 100),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_blocks_with_other_columns_are_refused(tmp_path, capsys, files, rows, kind):
    model, folder, out = fit_with_id(tmp_path, "id"), tmp_path / "new", tmp_path / f"out.{kind}"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    command = ["predict", model, folder, "--memory", "1kB", "--form", "columns", "-o", out]
    assert main([str(word) for word in command]) == 2
    err = capsys.readouterr().err
    assert f"the first {rows} rows and the next must have the same columns: 'id'" in err
    assert not out.exists()


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_a_name_of_several_lines_is_one_header(tmp_path, capsys, kind):
    model = fit_with_id(tmp_path, '"my\nid"')
    (tmp_path / "new.csv").write_text('"my\nid",x\n' + "".join(f"R{i},{i}\n" for i in range(250)))
    texts = []
    for more in ([], ["--memory", "1kB"]):
        out = tmp_path / f"out{len(more)}.{kind}"
        run("predict", model, tmp_path / "new.csv", "--form", "columns", "-o", out, *more)
        texts.append(out.read_text())
    assert texts[0] == texts[1]


def test_a_label_called_na_is_the_same_in_all_blocks(tmp_path, capsys):
    tags = [("a;NA" if i < 50 else "NA") if i % 7 > 3 else "a" for i in range(400)]
    train = tmp_path / "a.csv"
    train.write_text("\n".join(["x,tags", *(f"{i % 7},{tag}" for i, tag in enumerate(tags))]))
    for more in ([], ["--memory", "20kB"]):
        model = tmp_path / f"{len(more)}.skops"
        run("fit", train, "--label-column", "tags", "--alpha", 0.01, "-o", model, *more)
        captured = capsys.readouterr()
        cells = sum(tag == "NA" for tag in tags)
        assert f"{cells} cells 'NA' are labels" in captured.out + captured.err
        run("evaluate", model, train, "--json")
        assert json.loads(capsys.readouterr().out)["by_label"][0]["recall"] == 1


@pytest.mark.parametrize(
    ("trained", "early", "late", "found"),
    [
        ("%d.%m.%Y", "%m/%d/%Y", "%m/%d/%Y", "dates with the month before the day"),
        ("%d.%m.%Y", "%Y-%m-%d", "%m/%d/%Y", ""),
        (".", "3,123", "3,12", "a decimal ','"),
        (".", "3,12", "3,123", ""),
        (".", "3,12", "3.12", "a decimal '.'"),
        (".", "3", "3,12", ""),
    ],
)
def test_blocks_of_new_rows_are_read_in_one_way(tmp_path, capsys, trained, early, late, found):
    days = pd.date_range("2024-01-01", periods=200)
    at, model, new = np.arange(200), tmp_path / "m.skops", tmp_path / "new.csv"
    is_date = "%" in trained
    written = days.strftime(trained) if is_date else [f"{i % 7}.{i}" for i in at]
    frame = pd.DataFrame({"x": written, "z": at % 3, "is_a": at % 2})
    frame.to_csv(tmp_path / "a.csv", index=False)
    run("fit", tmp_path / "a.csv", "--label-prefix", "is_", "--alpha", 1, "-o", model)
    rows = [pd.date_range(f"2024-02-{day}", periods=100) for day in ("01", "15")]
    rows[0] = rows[0][rows[0].day <= 12].repeat(4)[:100]
    parts = zip(rows, (early, late), strict=True)
    cells = [part.strftime(way) if is_date else [way] * 100 for part, way in parts]
    pd.DataFrame({"x": np.concatenate(cells), "z": 1}).to_csv(new, index=False)
    capsys.readouterr()
    out, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    command = ["predict", model, new, "--memory", "1MB", "--proba", "-o", out]
    assert main([str(word) for word in command]) == (2 if found else 0)
    err = capsys.readouterr().err
    if found:
        assert f"new.csv: column 'x' is written with {found} from line 102 on" in err
        assert "--memory" in err
        return
    run("predict", model, new, "--proba", "-o", whole)
    np.testing.assert_allclose(pd.read_csv(out), pd.read_csv(whole), rtol=1e-9)
