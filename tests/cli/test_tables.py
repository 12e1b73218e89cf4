"""Tables as people have them, through the command line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fbeta.storage.model_files import load_model

from .photos import FIT, TAGS, TEST, TRAIN, rows, score, write
from .toys import Run, rows_of

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("tables") / "train.csv", TRAIN)


@pytest.fixture
def model(table: Path, tmp_path: Path, run: Run) -> Path:
    code, _, err = run("fit", table, *TAGS, "-o", tmp_path / "m.skops")
    assert (code, err) == (0, "")
    return tmp_path / "m.skops"


def test_columns_are_shown_before_the_fit_and_used(table: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "m.skops"
    code, out, err = run("fit", table, *TAGS, "-o", path)
    assert (code, err) == (0, "")
    shown = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
    kinds = {
        "photo": "id",
        "size": "numeric",
        "colour": "categorical",
        "note": "text",
        "taken": "date",
        "unit": "constant",
    }
    for name, kind in kinds.items():
        assert f" {kind} " in shown[name], name
    assert " 17 " in shown["size"], "the number of gaps"
    assert out.index("photo") < out.index("Fitted to")
    counts = {name: sum(name in row["tags"] for row in TRAIN) for name in ("big", "red", "sea")}
    assert all(str(count) in shown[name] for name, count in counts.items())
    assert load_model(path).feature_names == ("size", "colour", "note", "taken")
    assert score(run, path, write(tmp_path / "test.csv", TEST)) > 0.8


def test_the_user_decides(table: Path, tmp_path: Path, run: Run) -> None:
    options = (
        "--text",
        "colour",
        "--categorical",
        "note",
        "--id",
        "taken",
        "--drop",
        "photo",
        "--numeric",
        "size",
    )
    code, out, _ = run("fit", table, *TAGS, *options, "-o", tmp_path / "m.skops", "--json")
    assert code == 0
    found = {c["name"]: c["kind"] for c in json.loads(out)["columns"]}
    assert found == {
        "size": "numeric",
        "colour": "text",
        "note": "categorical",
        "taken": "id",
        "unit": "constant",
    }
    for wrong, words in (
        (("--text", "x,y"), "'x', 'y'"),
        (("--drop", "colour", "--text", "colour"), "two uses"),
        (("--text", "size", "--id", "size"), "it is in --text"),
        (("--drop", "tags"), "two uses"),
        (("--numeric", "colour,note"), "expected a number"),
    ):
        code, out, err = run("fit", table, *TAGS, *wrong, "-o", tmp_path / "m.skops")
        assert (code, out) == (2, "")
        assert words in err
        assert err.count("\n") == 1
    assert "'colour', line 2" in err
    assert "'note', line 2" in err, "all bad columns are in one message"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.csv", {"sep": ";", "tags": ", "}),
        ("a.csv", {"sep": "|", "tags": ";"}),
        ("a.csv", {"sep": "\t"}),
        ("a.tsv", {"sep": "\t"}),
        ("a.csv.gz", {}),
        ("a.csv", {"tags": ""}),
        ("a.csv", {"code": "utf-16"}),
        ("a.csv", {"code": "utf-8-sig"}),
        ("a.csv", {"code": "cp1252"}),
    ],
)
def test_files_of_many_kinds(name: str, options: Any, tmp_path: Path, run: Run) -> None:
    named = [{**row, "colour": row["colour"].replace("blue", "bleu fonc\u00e9")} for row in TRAIN]
    path = tmp_path / "m.skops"
    train = write(tmp_path / name, named, **options)
    code, _, err = run("fit", train, *TAGS, "-o", path)
    assert (code, err) == (0, "")
    values = load_model(path).estimator[0].parts_[1].values
    assert "bleu fonc\u00e9" in values
    assert load_model(path).label_names == ("big", "red", "sea", "winter")
    assert score(run, path, train) > 0.8


def test_separators_and_encodings_by_hand(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "m.skops"
    train = write(tmp_path / "a.dat", TRAIN, sep="~", code="utf-16-le")
    options = ("--format", "csv", "--sep", "~", "--encoding", "utf-16-le")
    assert run("fit", train, *TAGS, *options, "-o", path)[0] == 0
    assert score(run, path, train, *options) > 0.8
    for wrong in (("--sep", "ab"), ("--encoding", "klingon"), ("--encoding", "ascii")):
        code, _, err = run("fit", train, *TAGS, "--format", "csv", *wrong, "-o", path)
        assert (code, err.count("\n")) == (2, 1)
    assert run("fit", train, *TAGS, "-o", path)[0] == 2


def test_json_lines(model: Path, tmp_path: Path, run: Run) -> None:
    train, test = tmp_path / "a.jsonl", tmp_path / "b.ndjson"
    train.write_text("".join(json.dumps(row) + "\n" for row in TRAIN))
    test.write_text("".join(json.dumps(row) + "\n\n" for row in TEST))
    path = tmp_path / "j.skops"
    assert run("fit", train, *TAGS, "-o", path)[0] == 0
    # a model does not mind from which format its later files are
    plain = write(tmp_path / "test.csv", TEST)
    assert score(run, path, test) == score(run, model, plain) == score(run, model, test)
    train.write_text('{"a": 1}\n[1]\n')
    code, _, err = run("fit", train, *TAGS, "-o", path)
    assert code == 2
    assert "line 2: expected a JSON object" in err


def test_parquet_with_every_type(model: Path, tmp_path: Path, run: Run) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for name, data in (("train", TRAIN), ("test", TEST)):
        frame = pandas.DataFrame(data)
        frame["taken"] = pandas.to_datetime(frame["taken"])
        frame["colour"] = frame["colour"].astype("category")
        frame["flag"] = frame["size"] > 2
        frame.to_parquet(tmp_path / f"{name}.parquet")
    path = tmp_path / "p.skops"
    code, out, _ = run("fit", tmp_path / "train.parquet", *TAGS, "-o", path, "--json")
    assert code == 0
    found = {c["name"]: c["kind"] for c in json.loads(out)["columns"]}
    assert (found["taken"], found["colour"], found["flag"]) == ("date", "categorical", "numeric")
    assert score(run, path, tmp_path / "test.parquet") > 0.8
    out = tmp_path / "out.parquet"
    assert run("predict", model, tmp_path / "test.parquet", "--expected", "-o", out)[0] == 0
    written = pandas.read_parquet(out)
    assert list(written) == ["photo", "tags", "expected_fbeta"]
    written["tags"] = written["tags"].map(";".join).replace("", None)
    printed = run("predict", model, tmp_path / "test.parquet", "--expected")[1]
    pandas.testing.assert_frame_equal(
        written, pandas.read_csv(io.StringIO(printed)), check_dtype=False
    )


def test_the_standard_input(
    table: Path, model: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        code, out, err = run("predict", model, "-")
    assert (code, err) == (0, "")
    assert out.startswith("photo,tags\n")
    assert out.count("\n") == 151


@pytest.mark.slow
def test_the_standard_input_of_a_process(table: Path, model: Path) -> None:
    command = [sys.executable, "-m", "fbeta.cli", "predict", str(model), "-"]
    with table.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"photo,tags\n")
    assert done.stdout.count(b"\n") == 151


def test_predictions_with_all_that_goes_with_them(model: Path, tmp_path: Path, run: Run) -> None:
    test = write(tmp_path / "test.csv", TEST)
    stored = load_model(model)
    cells = np.array(
        [[row[c] for c in ("size", "colour", "note", "taken")] for row in TEST], dtype=object
    )
    out = tmp_path / "out.csv"
    code, _, err = run("predict", model, test, "--proba", "--expected", "-o", out)
    assert (code, err) == (0, f"wrote 60 predictions to {out}\n")
    found = rows_of(out)
    assert [row["photo"] for row in found] == [row["photo"] for row in TEST]
    marginals = [[float(row[f"proba_{c}"]) for c in stored.label_names] for row in found]
    np.testing.assert_allclose(marginals, stored.predict_proba(cells))
    np.testing.assert_allclose(
        [float(row["expected_fbeta"]) for row in found], stored.expected_fbeta(cells)
    )
    code, out_, _ = run("predict", model, test, "--keep", "colour,tags", "--form", "sets", "--json")
    assert [row["colour"] for row in json.loads(out_)] == [row["colour"] for row in TEST]
    assert list(json.loads(out_)[0]) == ["photo", "colour", "tags", "labels"]
    assert run("predict", model, test, "--keep", "")[1].startswith("tags\n")
    columns = run("predict", model, test, "--keep", "", "--form", "columns")[1]
    assert columns.startswith("big,red,sea,winter\n")
    lines = tmp_path / "out.jsonl"
    assert run("predict", model, test, "-o", lines)[0] == 0
    assert json.loads(lines.read_text().splitlines()[0])["photo"] == "img10000"
    code, printed, _ = run("predict", model, test, "--min-labels", 2, "--max-labels", 2)
    sizes = {len(row["tags"].split(";")) for row in csv.DictReader(io.StringIO(printed))}
    assert sizes == {2}


def test_options_that_do_not_apply_are_errors(
    table: Path, model: Path, tmp_path: Path, run: Run
) -> None:
    svm = tmp_path / "a.svm"
    svm.write_text("1 1:1\n2 2:1\n1,2 1:1\n")
    arff = tmp_path / "a.arff"
    arff.write_text("@relation 'x: -C 1'\n@attribute a {0,1}\n@attribute x real\n@data\n1,2\n0,1\n")
    fit = ("-o", tmp_path / "x.skops")
    for command, words in [
        (("fit", table, *TAGS, "--labels", arff, *fit), "to csv files: --label-column, "),
        (("fit", table, *TAGS, "--n-labels", 2, *fit), "--n-labels"),
        (("fit", table, *TAGS, "--nominal", "onehot", *fit), "--nominal"),
        (("fit", table, "--label-columns", "unit", "--delimiter", ";", *fit), "--delimiter"),
        (("fit", table, *TAGS, "--alphas", "1", *fit), "nothing to choose"),
        (("fit", table, *TAGS, "--cv", 3, *fit), "nothing to choose"),
        (("fit", svm, "--label-column", "x", *fit), "--label-column does not apply to svmlight"),
        (("fit", svm, "--missing", "mean", *fit), "--missing"),
        (("fit", svm, "--sep", ";", *fit), "--sep"),
        (("fit", arff, "--text", "x", *fit), "--text does not apply to arff"),
        (("fit", arff, "--encoding", "utf-8", *fit), "--encoding"),
        (("predict", model, table, "--form", "columns", "--delimiter", ","), "--form sets"),
        (("predict", model, table, "--json", "--safe-csv"), "--safe-csv"),
        (("predict", model, table, "--keep", "nothing"), "'nothing'"),
        (("predict", model, table, "-o", tmp_path / "x.csv.gz"), "not compressed"),
        (("fit", table, *TAGS, "-o", tmp_path / "x.skops.gz"), "not compressed"),
        (("predict", model, table, "--json", "-o", tmp_path / "x.parquet"), "--json"),
        (("predict", model, table, "--missing", "mean"), "--missing belongs to fbeta fit"),
        (("evaluate", model, table, "--missing", "mean"), "--missing belongs to fbeta fit"),
        (("compare", table, table, *TAGS[:2], "--methods", ""), "--methods"),
        (("compare", table, table, *TAGS[:2], "--methods", ","), "--methods"),
        (("reproduce", "table2", "--methods", ""), "--methods"),
        (("reproduce", "table2", "--datasets", ""), "--datasets"),
    ]:
        code, out, err = run(*command)
        assert (code, out) == (2, ""), command
        assert words in err, (command, err)
        assert err.count("\n") == 1


def test_labels_are_counted_and_rare_ones_pointed_out(tmp_path: Path, run: Run) -> None:
    data = [
        {**row, "tags": [*row["tags"], *(["once"] if i == 3 else [])]}
        for i, row in enumerate(TRAIN)
    ]
    train = write(tmp_path / "a.csv", data, tags="; ")
    code, out, _ = run("fit", train, *TAGS, "-o", tmp_path / "m.skops")
    assert code == 0
    assert "In fewer than 2 rows, too few to learn from: 'once'" in out
    code, out, _ = run("fit", train, *TAGS, "-o", tmp_path / "m.skops", "--json")
    assert json.loads(out)["counts"]["once"] == 1


@pytest.mark.parametrize(
    ("cell", "words"),
    [("a;;b", "'a;;b'"), ("[a]", "'[a]'"), ("['a', 2.5]", "2.5"), ("a;b,c", "';' in")],
)
def test_tags_that_are_odd_are_shown(cell: str, words: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "a.csv"
    other = "['a']" if cell.startswith("[") else "a;b"
    lines = ["x,tags", f'1,"{cell}"', f'2,"{other}"', '3,"a"' if other == "a;b" else '3,"[]"']
    path.write_text("\n".join(lines))
    code, out, err = run("fit", path, *TAGS, "-o", tmp_path / "m.skops")
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_labels_that_were_never_seen_are_counted_in_both_forms(
    model: Path, tmp_path: Path, run: Run
) -> None:
    data = [
        {**row, "tags": [*row["tags"], *(["new"] if i < 6 else [])]} for i, row in enumerate(TEST)
    ]
    code, out, err = run("evaluate", model, write(tmp_path / "t.csv", data), "--json")
    assert code == 0
    assert "6 rows have labels that the model has never seen" in err
    assert "'new' (6)" in err
    found = json.loads(out)
    assert found["unseen"] == {"new": 6}
    row = next(row for row in found["by_label"] if row["label"] == "new")
    assert (row["true"], row["predicted"], row["recall"]) == (6, 0, 0.0)

    def columns(name: str, data: list[dict[str, Any]], labels: tuple[str, ...]) -> Path:
        path, rows = tmp_path / name, []
        for row in data:
            on = {f"is_{label}": int(label in row["tags"]) for label in labels}
            rows.append({**{k: v for k, v in row.items() if k != "tags"}, **on})
        text = "\n".join(
            ",".join("" if v is None else str(v) for v in row.values())
            for row in [dict(zip(rows[0], rows[0], strict=True)), *rows]
        )
        path.write_text(text.replace(", seen", " seen"))
        return path

    known = ("big", "red", "sea", "winter")
    path = tmp_path / "c.skops"
    train = columns("train.csv", TRAIN, known)
    assert run("fit", train, "--label-prefix", "is_", *FIT, "-o", path)[0] == 0
    code, out, err = run("evaluate", path, columns("t2.csv", data, (*known, "new")), "--json")
    assert code == 0
    assert "'is_new' (6)" in err
    other = json.loads(out)
    for key in ("fbeta", "precision", "recall", "micro_fbeta", "macro_fbeta", "hamming"):
        assert other[key] == pytest.approx(found[key]), key


@pytest.mark.parametrize("between", ["|", ", ", ",", "; "])
def test_labels_of_a_test_file_may_have_another_delimiter(
    model: Path, tmp_path: Path, run: Run, between: str
) -> None:
    first = run("evaluate", model, write(tmp_path / "t.csv", TEST), "--json")[1]
    code, out, err = run("evaluate", model, write(tmp_path / "t.csv", TEST, tags=between), "--json")
    note = f"fbeta: column 'tags' is written with {between.strip()!r} between labels here\n"
    assert (code, json.loads(out), err) == (0, json.loads(first), "" if between == "; " else note)
    odd = [{**row, "tags": ["one, two", *row["tags"]]} for row in TEST]  # is a label of its own
    found = json.loads(run("evaluate", model, write(tmp_path / "t.csv", odd), "--json")[1])
    assert found["unseen"] == {"one, two": len(TEST)}
    other = [{**row, "tags": ["one", "two"]} for row in TEST]  # no separator makes these known
    _, out, err = run("evaluate", model, write(tmp_path / "t.csv", other), "--json")
    assert (json.loads(out)["unseen"], "here" in err) == (dict.fromkeys(("one", "two"), 60), False)


def test_svmlight_counts_them_too(tmp_path: Path, run: Run) -> None:
    train, test, path = tmp_path / "a.svm", tmp_path / "b.svm", tmp_path / "m.skops"
    train.write_text("1 1:1\n2 2:1\n1,2 1:1 2:1\n1 1:2\n2 2:2\n")
    test.write_text("1,9 1:1\n2 2:1\n")
    assert run("fit", train, *FIT, "-o", path)[0] == 0
    code, out, err = run("evaluate", path, test, "--json")
    assert (code, json.loads(out)["unseen"]) == (0, {"9": 1})
    assert "'9' (1)" in err


def test_evaluation_by_label_and_in_words(model: Path, tmp_path: Path, run: Run) -> None:
    test = write(tmp_path / "t.csv", rows(200, 3))
    code, out, err = run("evaluate", model, test)
    assert (code, err) == (0, "")
    found = json.loads(run("evaluate", model, test, "--json")[1])
    predicted = json.loads(run("predict", model, test, "--json")[1])
    for row in found["by_label"]:
        name = row["label"]
        truth = [name in other["tags"] for other in rows(200, 3)]
        guess = [name in other["tags"] for other in predicted]
        both = sum(a and b for a, b in zip(truth, guess, strict=True))
        assert (row["true"], row["predicted"]) == (sum(truth), sum(guess))
        assert row["precision"] == pytest.approx(both / sum(guess))
        assert row["recall"] == pytest.approx(both / sum(truth))
        assert f"{row['fbeta']:.4f}" in out
    assert f"gets {found['fbeta']:.3f}" in " ".join(out.split())
    assert "least sure" in " ".join(out.split())


def test_a_column_of_text_alone(tmp_path: Path, run: Run) -> None:
    train, new = tmp_path / "a.csv", tmp_path / "new.csv"
    write(train, [{"note": row["note"], "tags": row["tags"]} for row in TRAIN])
    assert run("fit", train, *TAGS, "-o", tmp_path / "m.skops")[0] == 0
    new.write_text('note\n"a boat, and a storm"\n""\na tree\n')
    code, out, err = run("predict", tmp_path / "m.skops", new)
    assert (code, err) == (0, "")
    assert out.count("\n") == 4, "an empty cell is a row, too"


def test_predictions_have_the_form_of_the_training_file(tmp_path: Path, run: Run) -> None:
    train, model = tmp_path / "a.csv", tmp_path / "m.skops"
    lines = [f"{i % 7},{'ab|c' if i % 7 > 3 else 'c'}" for i in range(40)]
    train.write_text("\n".join(["x,topics", *lines]))
    assert run("fit", train, "--label-column", "topics", *FIT, "-o", model)[0] == 0
    code, out, _ = run("predict", model, train)
    assert (code, {*out.splitlines()}) == (0, {"topics", "c", "ab|c"})
    assert "ab/c" in run("predict", model, train, "--delimiter", "/")[1]


def test_labels_that_no_delimiter_can_part_are_columns(tmp_path: Path, run: Run) -> None:
    train, model = tmp_path / "a.jsonl", tmp_path / "m.skops"
    rows_ = [{"x": i % 7, "tags": ["a;b"] if i % 7 > 3 else ["c"]} for i in range(40)]
    train.write_text("\n".join(map(json.dumps, rows_)))
    assert run("fit", train, *TAGS, "-o", model)[0] == 0
    clash = "fbeta: label 'a;b' contains the delimiter ';'"
    code, out, err = run("predict", model, train)
    assert (code, out[:6]) == (0, "a;b,c\n")
    assert err == f"{clash}: labels are written as 0/1 columns (or choose another --delimiter)\n"
    for form in ((), ("--form", "sets")):
        assert run("predict", model, train, *form, "--delimiter", "|")[::2] == (0, "")
    for form in (("--form", "sets"), ("--delimiter", ";")):
        code, _, err = run("predict", model, train, *form)
        assert (code, err) == (2, f"{clash}: choose another --delimiter\n")
    assert run("predict", model, train, "--form", "columns")[2] == ""
    code, out, err = run("predict", model, train, "--json")
    assert (json.loads(out)[0], err) == ({"tags": ["c"]}, "")
