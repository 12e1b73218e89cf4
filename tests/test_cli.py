from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fbeta import FBetaClassifier, fbeta_score
from fbeta.cli import main
from fbeta.storage import load_model

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")

Run = Callable[..., tuple[int, str, str]]
LABELS = ("sea", "sky", "sun")


def toy(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).round(3)
    Y = (X[:, :3] + 0.5 * rng.normal(size=(n, 3)) > 0).astype(int)
    return X, Y


TRAIN, TEST = toy(80, 0), toy(30, 1)


def write_csv(path: Path, X: Any, Y: Any = None, prefix: str = "is_", sep: str = ",") -> Path:
    head = [f"x{j}" for j in range(X.shape[1])]
    rows = X.tolist()
    if Y is not None:
        head = [*(prefix + name for name in LABELS), *head]
        rows = [[*y, *x] for x, y in zip(rows, Y.tolist(), strict=True)]
    path.write_text("\n".join(sep.join(map(str, row)) for row in [head, *rows]) + "\n")
    return path


def write_sets(path: Path, X: Any, Y: Any) -> Path:
    lines = ["id,x0,x1,x2,x3,tags"]
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        tags = "|".join(name for name, on in zip(LABELS, y, strict=True) if on)
        lines.append(",".join([f"row{i}", *map(str, x), tags]))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_arff(path: Path, X: Any, Y: Any, relation: str = "toy") -> Path:
    lines = [f"@relation '{relation}'", *(f"@attribute {name} {{0,1}}" for name in LABELS)]
    lines += [f"@attribute x{j} numeric" for j in range(4)]
    lines += ["@data", *(",".join(map(str, [*y, *x])) for x, y in zip(X, Y, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_svmlight(path: Path, X: Any, Y: Any) -> Path:
    lines = []
    for x, y in zip(X, Y, strict=True):
        labels = ",".join(str(j) for j in np.flatnonzero(y))
        lines.append(f"{labels} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x)))
    path.write_text("\n".join(lines) + "\n")
    return path


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


def expected_score(beta: float = 1.0, alpha: float = 1.0) -> float:
    fitted = FBetaClassifier(alpha=alpha).fit(*TRAIN)
    return fbeta_score(TEST[1], fitted.predict(TEST[0], beta=beta), beta)


# fit, evaluate and predict, for every format


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def formats(folder: Path) -> dict[str, tuple[Path, Path, list[str]]]:
    xml = folder / "toy.xml"
    xml.write_text("<labels>" + "".join(f'<label name="{n}"/>' for n in LABELS) + "</labels>")
    tags = ["--label-column", "tags", "--delimiter", "|", "--drop", "id"]
    return {
        "csv": (write_csv(folder / "a.csv", *TRAIN), write_csv(folder / "b.csv", *TEST),
                ["--label-columns", "is_sea,is_sky,is_sun"]),
        "tsv": (write_csv(folder / "a.tsv", *TRAIN, sep="\t"),
                write_csv(folder / "b.tsv", *TEST, sep="\t"), ["--label-prefix", "is_"]),
        "sets": (write_sets(folder / "c.csv", *TRAIN), write_sets(folder / "d.csv", *TEST), tags),
        "mulan": (write_arff(folder / "a.arff", *TRAIN), write_arff(folder / "b.arff", *TEST),
                  ["--labels", str(xml)]),
        "meka": (write_arff(folder / "c.arff", *TRAIN, "toy: -C 3"),
                 write_arff(folder / "d.arff", *TEST, "toy: -C 3"), []),
        "svmlight": (write_svmlight(folder / "a.svm", *TRAIN),
                     write_svmlight(folder / "b.svm", *TEST), []),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "tsv", "sets", "mulan", "meka", "svmlight"])
def test_fit_evaluate_predict(kind: str, tmp_path: Path, run: Run) -> None:
    train, test, options = formats(tmp_path)[kind]
    path = tmp_path / "new" / "model.skops"
    code, out, err = run(
        "fit", train, *options, "--alphas", "0.1,1", "--cv", 3, "--json", "-o", path
    )
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert (summary["rows"], summary["features"], summary["labels"]) == (80, 4, 3)
    code, out, err = run("evaluate", path, test, "--json", "--beta", 2)
    assert (code, err) == (0, "")
    scores = json.loads(out)
    assert scores["fbeta"] == pytest.approx(expected_score(2.0, summary["alpha"]))
    code, out, err = run("predict", path, test, "-o", tmp_path / "out.csv")
    assert (code, out) == (0, "")
    rows = [list(row.values()) for row in rows_of(tmp_path / "out.csv")]
    predicted = FBetaClassifier(alpha=summary["alpha"]).fit(*TRAIN).predict(TEST[0])
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
    fitted = FBetaClassifier().fit(*TRAIN)
    code, out, _ = run("predict", model, test, "--form", "sets", "--delimiter", "/", "--expected",
                       "--beta", 2)  # fmt: skip
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    sets = [
        {f"is_{LABELS[j]}" for j in np.flatnonzero(row)} for row in fitted.predict(TEST[0], beta=2)
    ]
    assert [set(filter(None, row["labels"].split("/"))) for row in rows] == sets
    np.testing.assert_allclose(
        [float(row["expected_fbeta"]) for row in rows], fitted.expected_fbeta(TEST[0], beta=2)
    )
    code, out, _ = run("predict", model, test, "--json")
    assert [list(row.values()) for row in json.loads(out)] == fitted.predict(TEST[0]).tolist()
    assert run("predict", model, test, "--form", "sets", "--delimiter", "s")[0] == 2


def test_missing_values_are_filled_with_the_means_of_the_training(tmp_path: Path, run: Run) -> None:
    X, Y = TRAIN
    train = write_csv(tmp_path / "a.csv", X, Y)
    text = train.read_text().splitlines()
    cells = text[1].split(",")
    cells[-1] = ""
    train.write_text("\n".join([text[0], ",".join(cells), *text[2:]]))
    path = tmp_path / "m.skops"
    code, _, err = run("fit", train, "--label-prefix", "is_", "--alpha", 1, "-o", path)
    assert code == 2
    assert "line 2" in err
    options = ("--label-prefix", "is_", "--alpha", 1, "--missing", "mean", "-o", path)
    assert run("fit", train, *options)[0] == 0
    means = load_model(path).reading["means"]
    np.testing.assert_allclose(means[:3], X[:, :3].mean(axis=0))
    np.testing.assert_allclose(means[3], X[1:, 3].mean())
    new = tmp_path / "n.csv"
    new.write_text("x0,x1,x2,x3\n1,,2,\n")
    filled = tmp_path / "f.csv"
    filled.write_text(f"x0,x1,x2,x3\n1,{means[1]!r},2,{means[3]!r}\n")
    first, second = (run("predict", path, file, "--expected") for file in (new, filled))
    assert first[0] == 0
    assert first == second


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


def test_compare(tmp_path: Path, run: Run) -> None:
    train, test, options = formats(tmp_path)["mulan"]
    command = ["compare", train, test, *options, "--methods", "fbeta,fbeta-all", "--alphas", "1"]
    code, out, err = run(*command, "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(out)["methods"]
    assert first["fbeta"] == pytest.approx(expected_score())
    assert second["method"] == "fbeta-all"
    code, out, _ = run(*command)
    assert code == 0
    assert "FBeta, all sizes" in out


# reproduce and demo


def test_reproduce_table2_resumes(tmp_path: Path, run: Run) -> None:
    command = ["reproduce", "table2", "--datasets", "calibrated", "--alphas", "1", "--cv", 2,
               "--json", "-o", tmp_path]  # fmt: skip
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
    code, _, err = run("reproduce", "table2", "--datasets", "calibrated", "--alphas", 1, "--cv", 2,
                       "--methods", "fbeta-all,fbeta", "-o", tmp_path)  # fmt: skip
    assert code == 1
    assert "ZeroDivisionError: oh" in err
    assert "0." in (tmp_path / "table2.md").read_text()


def test_demo(tmp_path: Path, run: Run) -> None:
    code, out, err = run("demo", "-o", tmp_path / "demo")
    assert (code, err) == (0, "")
    rows = rows_of(tmp_path / "demo" / "convergence.csv")
    assert float(rows[-1]["regret"]) < 0.001 < float(rows[0]["regret"])
    assert (tmp_path / "demo" / "convergence.png").read_bytes().startswith(b"\x89PNG")
    assert "30,000" in out


# errors


def assert_mendable(result: tuple[int, str, str], *words: str) -> None:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("fbeta: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_mistakes_of_the_user_give_one_line(model: Path, tmp_path: Path, run: Run) -> None:
    test = write_csv(tmp_path / "t.csv", *TEST)
    other = write_csv(tmp_path / "o.csv", TEST[0][:, :2], TEST[1])
    out = tmp_path / "x.skops"
    fit = ("fit", test, "-o", out)
    assert_mendable(run("fit", tmp_path / "absent.csv", "--label-prefix", "i", "-o", out), "absent")
    assert_mendable(run(*fit), "exactly one of --label-columns")
    assert_mendable(run(*fit, "--label-prefix", "zz"), "'zz'")
    assert_mendable(run(*fit, "--label-prefix", "is_", "--beta", -1), "beta")
    assert_mendable(run(*fit, "--label-prefix", "is_", "--beta", "x"), "beta")
    assert_mendable(run(*fit, "--label-prefix", "is_", "--alpha", -1), "alpha")
    assert_mendable(run(*fit, "--label-prefix", "is_", "--alphas", "1,x"), "1,x")
    assert_mendable(run(*fit, "--label-prefix", "is_", "--cv", 1), "cv")
    assert_mendable(run(*fit, "--label-prefix", "is_", "--cv", 1000), "splits")
    assert_mendable(run(*fit, "--label-prefix", "is_", "--method", "magic"), "magic", "fbeta")
    assert_mendable(run("fit", test, "--label-prefix", "is_", "-o", tmp_path), "folder")
    assert_mendable(run("fit", "a.docx", "-o", out), ".arff")
    assert_mendable(run("fit"), "data")
    assert_mendable(run("predict", model, other), "'x2', 'x3'")
    assert_mendable(run("predict", test, test), "not a model")
    assert_mendable(run("predict", model, tmp_path), tmp_path.name)
    assert_mendable(run("predict", model, test, "--beta", 0), "beta")
    assert_mendable(run("evaluate", model, write_csv(tmp_path / "u.csv", TEST[0])), "is_sea")
    assert_mendable(run("compare", test, test, "--methods", "magic"), "magic")
    assert_mendable(run("reproduce", "table2", "--datasets", "moon"), "moon", "scene")
    assert_mendable(run("reproduce", "figure1", "--sizes", "0"), "sizes")
    assert_mendable(run("nonsense"), "nonsense")
    assert_mendable(run("fit", "--nonsense"), "nonsense")
    assert not out.exists()


def test_a_bug_is_told_apart(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("internal")

    monkeypatch.setattr("fbeta.experiments.convergence.compute_convergence", broken)
    code, _, err = run("demo", "-o", tmp_path)
    assert code == 1
    assert "ZeroDivisionError: internal" in err
    assert err.splitlines()[-1].startswith("fbeta: this is a bug")


@settings(
    max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(st.data())
def test_fuzzed_models_end_with_a_clean_line(
    model: Path, tmp_path: Path, run: Run, data: st.DataObject
) -> None:
    content = model.read_bytes()
    kind = data.draw(st.sampled_from(["bytes", "flips", "schema"]))
    if kind == "bytes":
        content = data.draw(st.binary(max_size=200))
    elif kind == "flips":
        changed = bytearray(content)
        for _ in range(data.draw(st.integers(1, 5))):
            changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
        content = bytes(changed)
    else:
        content = forge(content, data)
    broken = tmp_path / "broken.skops"
    broken.write_bytes(content)
    test = tmp_path / "fuzz.csv"
    if not test.exists():
        write_csv(test, *TEST)
    command = data.draw(st.sampled_from(["predict", "evaluate"]))
    code, out, err = run(command, broken, test)
    if code != 0:
        assert_mendable((code, out, err))


def forge(content: bytes, data: st.DataObject) -> bytes:
    """Put junk into the parts of the schema that are not a matter of the types."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "schema.json":
                schema = json.loads(text)
                nodes = json_nodes(schema)
                node = data.draw(st.sampled_from(nodes))
                junk = ["null", "-1", "1e999", '"x"', "true", "[", "10000000000000"]
                node["content"] = data.draw(st.sampled_from(junk))
                text = json.dumps(schema).encode()
            new.writestr(name, text)
    return out.getvalue()


def json_nodes(node: Any) -> list[Any]:
    found = []
    if isinstance(node, dict):
        found = [node] if node.get("__loader__") == "JsonNode" else []
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            found += json_nodes(part)
    return found


# the program as others see it


def program(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fbeta.cli", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('no typer', name='typer')")
    result = program("demo", PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == 'fbeta: the command line needs typer: pip install "fbeta[cli]"\n'


def test_help_has_an_example_for_each_command(run: Run) -> None:
    plain = ["fit", "predict", "evaluate", "compare", "demo", "reproduce"]
    for command in [*plain, *(f"reproduce {part}" for part in ("figure1", "table2", "report"))]:
        code, out, _ = run(*command.split(), "--help")
        assert code == 0
        assert f"Example: fbeta {command}" in " ".join(out.split())


def test_version_and_completion(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fbeta import __version__

    code, out, err = run("--version")
    assert (code, err) == (0, "")
    assert out.startswith(f"fbeta {__version__} (with")
    result = program(_FBETA_COMPLETE="complete_bash", COMP_WORDS="fbeta rep", COMP_CWORD="1")
    assert "reproduce" in result.stdout


def test_output_in_a_pipe_has_no_colours(model: Path, tmp_path: Path) -> None:
    test = write_csv(tmp_path / "t.csv", *TEST)
    result = program("evaluate", model, test, PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert "F_beta" in result.stdout


@pytest.mark.skipif(os.name == "nt", reason="needs the pipes of POSIX")
def test_a_reader_may_leave_early(model: Path, tmp_path: Path) -> None:
    test = write_csv(tmp_path / "t.csv", *toy(20_000, 0))
    command = [sys.executable, "-m", "fbeta.cli", "predict", str(model), str(test)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"is_sea,is_sky,is_sun\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
