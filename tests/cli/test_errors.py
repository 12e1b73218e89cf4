"""What goes wrong, and what it says."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .toys import TEST, Run, write_csv

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")


def assert_mendable(result: tuple[int, str, str], *words: str) -> None:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("fbeta: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word.lower() in err.lower()  # some versions of typer write arguments in capitals


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
    assert_mendable(run(*fit, "--label-prefix", "is_", "--cv", 1000), "--cv 1000", "30 rows")
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
    def broken(*args: object, **others: object) -> None:
        raise ZeroDivisionError("internal")

    monkeypatch.setattr("fbeta.experiments.benchmark.convergence_cells", broken)
    code, _, err = run("demo", "-o", tmp_path)
    assert code == 1
    assert "ZeroDivisionError: internal" in err
    assert err.splitlines()[-1].startswith("fbeta: this is a bug")


@pytest.mark.slow
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_fuzzed_models_end_with_a_clean_line(
    model: Path, tmp_path: Path, run: Run, data: st.DataObject
) -> None:
    content = model.read_bytes()
    kind = data.draw(st.sampled_from(["bytes", "flips", "schema", "state"]))
    if kind == "bytes":
        content = data.draw(st.binary(max_size=200))
    elif kind == "flips":
        changed = bytearray(content)
        for _ in range(data.draw(st.integers(1, 5))):
            changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
        content = bytes(changed)
    else:
        content = forge(content, data, kind)
    broken = tmp_path / "broken.skops"
    broken.write_bytes(content)
    test = tmp_path / "fuzz.csv"
    if not test.exists():
        write_csv(test, *TEST)
    command = data.draw(st.sampled_from(["predict", "evaluate"]))
    code, out, err = run(command, broken, test)
    if code != 0:
        assert_mendable((code, out, err))


JUNK = ["null", "-1", "1e999", '"x"', "true", "[", "10000000000000", "0.5", "{}"]


def forge(content: bytes, data: st.DataObject, kind: str) -> bytes:
    """Put junk into the parts of the schema that are not a matter of the types."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "schema.json":
                schema = json.loads(text)
                junk = data.draw(st.sampled_from(JUNK))
                node = schema["content"]["estimator"]
                if kind == "schema":
                    node = data.draw(st.sampled_from(json_nodes(schema)))
                else:
                    # one number or name inside it
                    words = re.split(r"(?<=[:\[] )", json.loads(node["content"]))
                    place = data.draw(st.integers(1, len(words) - 1))
                    rest = re.sub(r"^[^{\[][^,\]}]*", "", words[place])
                    junk = json.dumps("".join([*words[:place], junk, rest, *words[place + 1 :]]))
                node["content"] = junk
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
