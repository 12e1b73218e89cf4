"""Fit, evaluate, predict and compare, for every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import FBetaClassifier, fbeta_score
from fbeta.storage.model_files import load_model, save_model

from .toys import (
    LABELS,
    TEST,
    TRAIN,
    Run,
    rows_of,
    write_arff,
    write_csv,
    write_sets,
    write_svmlight,
)

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")


# the columns of tables are scaled; ARFF and SVMlight files are taken as they are
MEAN, SCALE = TRAIN[0].mean(axis=0), TRAIN[0].std(axis=0)
RAW = ("mulan", "meka", "svmlight")


def scaled(X: Any, kind: str = "csv") -> Any:
    return X if kind in RAW else (X - MEAN) / SCALE


def reference(alpha: float = 1.0, kind: str = "csv") -> FBetaClassifier:
    return FBetaClassifier(alpha=alpha).fit(scaled(TRAIN[0], kind), TRAIN[1])


def expected_score(beta: float = 1.0, alpha: float = 1.0, kind: str = "csv") -> float:
    predicted = reference(alpha, kind).predict(scaled(TEST[0], kind), beta=beta)
    return fbeta_score(TEST[1], predicted, beta)


def formats(folder: Path) -> dict[str, tuple[Path, Path, list[str]]]:
    xml = folder / "toy.xml"
    xml.write_text("<labels>" + "".join(f'<label name="{n}"/>' for n in LABELS) + "</labels>")
    tags = ["--label-column", "tags", "--delimiter", "|", "--drop", "id"]
    return {
        "csv": (
            write_csv(folder / "a.csv", *TRAIN),
            write_csv(folder / "b.csv", *TEST),
            ["--label-columns", "is_sea,is_sky,is_sun"],
        ),
        "tsv": (
            write_csv(folder / "a.tsv", *TRAIN, sep="\t"),
            write_csv(folder / "b.tsv", *TEST, sep="\t"),
            ["--label-prefix", "is_"],
        ),
        "sets": (write_sets(folder / "c.csv", *TRAIN), write_sets(folder / "d.csv", *TEST), tags),
        "mulan": (
            write_arff(folder / "a.arff", *TRAIN),
            write_arff(folder / "b.arff", *TEST),
            ["--labels", str(xml)],
        ),
        "meka": (
            write_arff(folder / "c.arff", *TRAIN, "toy: -C 3"),
            write_arff(folder / "d.arff", *TEST, "toy: -C 3"),
            [],
        ),
        "svmlight": (
            write_svmlight(folder / "a.svm", *TRAIN),
            write_svmlight(folder / "b.svm", *TEST),
            [],
        ),
    }


@pytest.mark.parametrize("kind", ["csv", "tsv", "sets", "mulan", "meka", "svmlight"])
def test_fit_evaluate_predict(kind: str, tmp_path: Path, run: Run) -> None:
    train, test, options = formats(tmp_path)[kind]
    path = tmp_path / "model.skops"
    code, out, err = run(
        "fit", train, *options, "--alphas", "0.1,1", "--cv", 3, "--json", "-o", path
    )
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert (summary["rows"], summary["features"], summary["labels"]) == (80, 4, 3)
    code, out, err = run("evaluate", path, test, "--json", "--beta", 2)
    assert (code, err) == (0, "")
    scores = json.loads(out)
    assert scores["fbeta"] == pytest.approx(expected_score(2.0, summary["alpha"], kind))
    code, out, err = run("predict", path, test, "--form", "columns", "-o", tmp_path / "out.csv")
    assert (code, out) == (0, "")
    rows = [list(row.values()) for row in rows_of(tmp_path / "out.csv")]
    predicted = reference(summary["alpha"], kind).predict(scaled(TEST[0], kind))
    np.testing.assert_array_equal(np.array(rows, dtype=int), predicted)


def test_parquet(tmp_path: Path, run: Run) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for name, data in (("train", TRAIN), ("test", TEST)):
        frame = pandas.read_csv(write_csv(tmp_path / f"{name}.csv", *data))
        frame.to_parquet(tmp_path / f"{name}.parquet")
    path = tmp_path / "m.skops"
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    assert run("fit", train, "--label-prefix", "is_", "--alpha", 1, "-o", path)[0] == 0
    code, out, _ = run("evaluate", path, test, "--json")
    assert code == 0
    assert json.loads(out)["fbeta"] == pytest.approx(expected_score())
    # the same model reads the same columns from a CSV file
    code, out, _ = run("predict", path, test)
    assert (code, out) == (0, run("predict", path, tmp_path / "test.csv")[1])


def test_predict_needs_only_the_features_by_name(model: Path, tmp_path: Path, run: Run) -> None:
    X = TEST[0]
    plain = write_csv(tmp_path / "plain.csv", X)
    rows = [["note", "x3", "x1", "x0", "x2"]] + [["?!", x[3], x[1], x[0], x[2]] for x in X.tolist()]
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("\n".join(",".join(map(str, row)) for row in rows))
    code, out, err = run("predict", model, plain)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "is_sea,is_sky,is_sun"
    assert run("predict", model, mixed)[1] == out
    mixed.write_text("x0,X1,x2\n1,2,3\n")
    code, _, err = run("predict", model, mixed)
    words = "lacks the features 'x1', 'x3' of the model; its columns are 'x0', 'X1', 'x2'"
    assert (code, err) == (2, f"fbeta: {mixed}: {words}\n")


def test_predict_an_arff_file_whose_labels_are_unknown(tmp_path: Path, run: Run) -> None:
    train, test, _ = formats(tmp_path)["meka"]
    path = tmp_path / "m.skops"
    assert run("fit", train, "--alpha", 1, "-o", path)[0] == 0
    known = run("predict", path, test)[1]
    head, _, rows = test.read_text().partition("@data\n")
    unknown = "".join("?,?,?," + ",".join(r.split(",")[3:]) + "\n" for r in rows.splitlines())
    (tmp_path / "u.arff").write_text(head + "@data\n" + unknown)
    assert run("predict", path, tmp_path / "u.arff") == (0, known, "")
    bare = "\n".join(line for line in head.splitlines() if "{0,1}" not in line)
    bare += "\n@data\n" + "".join(",".join(r.split(",")[3:]) + "\n" for r in rows.splitlines())
    (tmp_path / "b.arff").write_text(bare)
    assert run("predict", path, tmp_path / "b.arff") == (0, known, "")


def test_predict_forms(model: Path, tmp_path: Path, run: Run) -> None:
    test = write_csv(tmp_path / "t.csv", TEST[0])
    fitted, new = reference(), scaled(TEST[0])
    code, out, _ = run(
        "predict", model, test, "--form", "sets", "--delimiter", "/", "--expected", "--beta", 2
    )
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    sets = [{f"is_{LABELS[j]}" for j in np.flatnonzero(row)} for row in fitted.predict(new, beta=2)]
    assert [set(filter(None, row["labels"].split("/"))) for row in rows] == sets
    np.testing.assert_allclose(
        [float(row["expected_fbeta"]) for row in rows], fitted.expected_fbeta(new, beta=2)
    )
    code, out, _ = run("predict", model, test, "--json")
    assert [list(row.values()) for row in json.loads(out)] == fitted.predict(new).tolist()
    assert run("predict", model, test, "--form", "sets", "--delimiter", "s")[0] == 2


def test_missing_values_are_filled_with_the_means_of_the_training(tmp_path: Path, run: Run) -> None:
    X, Y = TRAIN
    train = write_csv(tmp_path / "a.csv", X, Y)
    text = train.read_text().splitlines()
    cells = text[1].split(",")
    cells[-1] = ""
    train.write_text("\n".join([text[0], ",".join(cells), *text[2:]]))
    path = tmp_path / "m.skops"
    options = ("--label-prefix", "is_", "--alpha", 1, "-o", path)
    code, _, err = run("fit", train, *options, "--missing", "error")
    assert code == 2
    assert "'x3', line 2: a missing value" in err
    assert run("fit", train, *options)[0] == 0
    parts = load_model(path).estimator[0].parts_
    np.testing.assert_allclose([part.mean for part in parts[:3]], X[:, :3].mean(axis=0))
    np.testing.assert_allclose(parts[3].mean, X[1:, 3].mean())
    assert [part.gaps for part in parts] == [False, False, False, True]
    new = tmp_path / "n.csv"
    new.write_text("x0,x1,x2,x3\n1,,2,0.5\n")
    filled = tmp_path / "f.csv"
    filled.write_text(f"x0,x1,x2,x3\n1,{parts[1].mean!r},2,0.5\n")
    first, second = (run("predict", path, file, "--expected") for file in (new, filled))
    assert first[0] == 0
    assert first == second


def write_nominal(path: Path, order: str, rows: str = "") -> Path:
    """A file of 60 rows whose labels follow two nominal features; or other rows."""
    sizes = [("lo", "mid", "hi")[i % 3] for i in range(60)]
    lines = [f"{+(s == 'mid')},{+(i % 2)},{s},{'ny'[i % 2]}" for i, s in enumerate(sizes)]
    head = "@relation 'x: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n"
    path.write_text(f"{head}{order}\n@data\n" + (rows or "\n".join(lines)) + "\n")
    return path


ORDER = "@attribute size {lo,mid,hi}\n@attribute big {n,y}"


@pytest.mark.parametrize("nominal", ["codes", "onehot"])
def test_nominal_values_are_matched_by_name(tmp_path: Path, run: Run, nominal: str) -> None:
    train, model = write_nominal(tmp_path / "a.arff", ORDER), tmp_path / "m.skops"
    fit = ["--method", "forest", "--nominal", nominal]
    assert run("fit", train, *fit, "-o", model)[0] == 0
    known = run("predict", model, train)
    other = "@attribute size {hi,more,lo,mid}\n@attribute big {y,n}"
    test = write_nominal(tmp_path / "b.arff", other)
    assert run("predict", model, test) == known
    scores = [
        run("compare", train, t, "--methods", "br", *fit[2:], "--json") for t in (train, test)
    ]
    first, second = (json.loads(out)["methods"][0]["fbeta"] for _, out, _ in scores)
    assert first == second
    refused = (
        (other, "1,0,more,y", "line 7: expected one of ['lo', 'mid', 'hi'] for attribute 'size'"),
        (ORDER.replace("lo,mid", "mid,lo"), "{2 lo}", "line 4: expected 'lo' as first value of"),
        (ORDER.replace("{n,y}", "numeric"), "1,0,lo,1", "line 7: expected one of ['n', 'y'] for"),
    )
    for order, row, words in refused:
        code, _, err = run("evaluate", model, write_nominal(test, order, row))
        assert code == 2, err
        assert words in err
    # models of before do not say in which order the values were
    stored = load_model(model)
    reading = {key: value for key, value in stored.reading.items() if key != "declared"}
    save_model(model, **{**vars(stored), "reading": reading, "versions": None})
    assert run("predict", model, train) == known
    for wrong in ([], {"size": []}, {"size": [1]}, {"size": "lo"}):
        reading["declared"] = wrong
        save_model(model, **{**vars(stored), "reading": reading, "versions": None})
        assert "how its training file was read" in run("predict", model, train)[2]


def test_gaps_in_arff_files_are_filled_if_wanted(tmp_path: Path, run: Run) -> None:
    train = write_arff(tmp_path / "a.arff", *TRAIN, "toy: -C 3")
    head, _, rows = train.read_text().partition("@data\n")
    first, *others = rows.splitlines()
    gap = ",".join([*first.split(",")[:-1], "?"])
    train.write_text("\n".join([f"{head}@data", gap, *others]))
    path = tmp_path / "m.skops"
    assert run("fit", train, "--alpha", 1, "-o", path)[0] == 2
    assert run("fit", train, "--alpha", 1, "--missing", "mean", "-o", path)[0] == 0
    means = load_model(path).reading["means"]
    np.testing.assert_allclose(means[3], TRAIN[0][1:, 3].mean())
    assert run("predict", path, train)[0] == 0


def test_evaluate_prints_a_table_and_draws(model: Path, tmp_path: Path, run: Run) -> None:
    pytest.importorskip("matplotlib")
    test = write_csv(tmp_path / "t.csv", *TEST)
    code, out, err = run("evaluate", model, test, "--plots", tmp_path / "plots")
    assert (code, err) == (0, "")
    assert f"{expected_score():.4f}" in out
    for word in ("precision", "recall", "Hamming", "subset", "micro", "macro"):
        assert word in out
    assert "\x1b" not in out
    assert {p.name for p in (tmp_path / "plots").iterdir()} == {"betas.png", "calibration.png"}


def test_plots_count_labels_never_seen_as_missed(
    model: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    X, Y = TEST
    test = write_csv(tmp_path / "t.csv", X, Y)
    head, *rows = test.read_text().splitlines()
    test.write_text(
        "\n".join([f"{head},is_new", *(f"{row},{i % 2}" for i, row in enumerate(rows))])
    )
    drawn = {}
    for name in ("beta_chart", "calibration_chart"):
        monkeypatch.setattr(
            f"fbeta.cli.models.{name}", lambda _, v, *a, n=name: drawn.update({n: v})
        )
    monkeypatch.setattr("fbeta.cli.models.save_picture", lambda *given: None)
    code, out, _ = run("evaluate", model, test, "--json", "--plots", tmp_path / "plots")
    assert code == 0
    found = json.loads(out)
    assert found["unseen"] == {"is_new": 15}
    (by_beta,) = drawn["beta_chart"].values()
    assert by_beta["1"] == pytest.approx(found["fbeta"])
    bins = next(iter(drawn["calibration_chart"].values()))
    actual = np.average([b["actual"] for b in bins], weights=[b["count"] for b in bins])
    assert actual == pytest.approx(found["fbeta"])


def test_models_from_python_have_any_form(tmp_path: Path, run: Run) -> None:
    X, Y = TRAIN
    names = [f"is_{name}" for name in LABELS]
    sets = [{name for name, on in zip(names, row, strict=True) if on} for row in Y]
    model = make_pipeline(StandardScaler(), FBetaClassifier(beta=2.0)).fit(X, sets)
    path, test = tmp_path / "m.skops", write_csv(tmp_path / "t.csv", *TEST)
    save_model(path, model, feature_names=["x0", "x1", "x2", "x3"])
    predicted = FBetaClassifier(beta=2.0).fit(model[0].transform(X), Y)
    scaled = model[0].transform(TEST[0])
    code, out, err = run("evaluate", path, test, "--json", "--plots", tmp_path / "plots")
    assert (code, err) == (0, "")
    assert json.loads(out)["beta"] == 2.0
    assert json.loads(out)["fbeta"] == pytest.approx(predicted.score(scaled, TEST[1]))
    assert {p.name for p in (tmp_path / "plots").iterdir()} == {"betas.png", "calibration.png"}
    code, out, _ = run("predict", path, test, "--expected")
    expected = [float(row["expected_fbeta"]) for row in csv.DictReader(io.StringIO(out))]
    np.testing.assert_allclose(expected, predicted.expected_fbeta(scaled))


def test_a_method_without_an_expectation_says_so(tmp_path: Path, run: Run) -> None:
    train = write_csv(tmp_path / "a.csv", *TRAIN)
    path = tmp_path / "m.skops"
    fit = ("fit", train, "--label-prefix", "is_", "--alpha", 1, "--method", "limo", "-o", path)
    assert run(*fit)[0] == 0
    code, out, err = run("predict", path, train, "--expected")
    assert (code, out) == (2, "")
    assert err == "fbeta: a model of Limo does not estimate its own F_beta\n"


def test_compare(tmp_path: Path, run: Run) -> None:
    train, test, options = formats(tmp_path)["mulan"]
    command = ["compare", train, test, *options, "--methods", "fbeta,fbeta-all", "--alphas", "1"]
    code, out, err = run(*command, "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(out)["methods"]
    assert first["fbeta"] == pytest.approx(expected_score(kind="mulan"))
    assert second["method"] == "fbeta-all"
    code, out, _ = run(*command)
    assert code == 0
    assert "FBeta, all sizes" in out
