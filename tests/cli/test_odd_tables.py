"""Escapes, formulas, numbers and sizes that are odd, through the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ..cases import slow
from .photos import TAGS, TEST, TRAIN, write
from .toys import Run

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("tables") / "train.csv", TRAIN)


ESCAPES = "\x1b[31mred\x1b]0;title\x07"


def test_terminal_escapes_are_shown(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, train = tmp_path / "m.skops", tmp_path / "a.csv"
    rows_ = [f"{i % 7},{ESCAPES if i % 2 else 'plain'}" for i in range(40)]
    train.write_text("\n".join([f"x{ESCAPES},tags", *rows_]))
    code, out, err = run("fit", train, *TAGS, "--delimiter", "|", "-o", path)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert r"\x1b[31mred\x1b]0;title\x07" in out
    assert "\x1b" not in run("evaluate", path, train)[1]
    for command in (
        ("fit", train, "--label-column", ESCAPES, "-o", path),
        ("predict", path, write(tmp_path / "b.csv", TEST)),
    ):
        code, out, err = run(*command)
        assert code == 2
        assert "\x1b" not in err
        assert "x1b[31m" in err
    # data in a file or a pipe is what it is, and on a terminal it is shown
    predict = ("predict", path, train, "--form", "sets", "--delimiter", "|")
    assert ESCAPES in run(*predict)[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    out = run(*predict)[1]
    assert "\x1b" not in out
    assert r"\x1b[31mred" in out


def test_formulas_can_be_made_harmless(tmp_path: Path, run: Run) -> None:
    path, train, formula = tmp_path / "m.skops", tmp_path / "a.csv", "=HYPERLINK(1)"
    train.write_text("\n".join(["n,x,tags", *(f"=r{i},{i % 7},{formula}" for i in range(40))]))
    assert run("fit", train, *TAGS, "--id", "n", "-o", path)[0] == 0
    plain = run("predict", path, train, "--form", "sets")[1]
    safe = run("predict", path, train, "--form", "sets", "--safe-csv")[1]
    assert plain.splitlines()[1] == f"=r0,{formula}"
    assert safe.splitlines()[1] == f"'=r0,'{formula}"
    out = tmp_path / "out.csv"
    options = ("--form", "columns", "--safe-csv", "-o", out)
    assert run("predict", path, train, *options)[0] == 0
    assert out.read_text().splitlines()[0] == f"n,'{formula}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--beta", "1e200"), "1e200"),
        (("--beta", "nan"), "nan"),
        (("--beta", "\u0661"), "beta"),
        (("--beta", "1_0"), "1_0"),
        (("--alphas", "nan"), "--alphas"),
        (("--cv", "\u0663"), "cv"),
        (("--alphas", ","), "--alphas"),
        (("--alphas", "inf"), "inf"),
        (("--jobs", "1.5"), "1.5"),
    ],
)
def test_odd_numbers_are_refused(
    table: Path, tmp_path: Path, run: Run, options: tuple[str, ...], words: str
) -> None:
    code, out, err = run("fit", table, *TAGS[:2], *options, "-o", tmp_path / "m.skops")
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("sizes", ["nan", "inf", "0", "1.5", "x", ","])
def test_odd_sizes_are_refused(sizes: str, tmp_path: Path, run: Run) -> None:
    code, out, err = run("reproduce", "figure1", "--sizes", sizes, "-o", tmp_path / "r")
    assert (code, out) == (2, "")
    assert "--sizes" in err
    assert not (tmp_path / "r").exists()


def test_cells_with_odd_digits_are_no_numbers(table: Path, tmp_path: Path, run: Run) -> None:
    train = tmp_path / "a.csv"
    train.write_text("x,tags\n" + "".join(f"{i % 5},a\n" for i in range(10)) + "\u0661,a\n")
    code, _, err = run("fit", train, *TAGS, "--numeric", "x", "-o", tmp_path / "m.skops")
    assert code == 2
    assert "line 12" in err


@pytest.mark.parametrize("change", [{}, slow({"score": "x"}), slow({"score": None})])
def test_a_cell_file_with_an_empty_result_is_named(
    change: dict[str, Any], tmp_path: Path, run: Run
) -> None:
    assert run("reproduce", "figure1", "--sizes", "50", "--seeds", 1, "-o", tmp_path)[0] == 0
    (cell,) = (tmp_path / "cells" / "figure1").glob("*.json")
    content = json.loads(cell.read_text())
    content["result"] = {**content["result"], **change} if change else {}
    cell.write_text(json.dumps(content))
    code, out, err = run("reproduce", "report", "-o", tmp_path)
    assert (code, out) == (2, "")
    assert cell.name in err
    assert err.count("\n") == 1


def test_a_huge_index_is_refused(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "a.svm"
    path.write_text("1 1:1\n2 2:1\n1,2 999999999:1.0\n")
    code, out, err = run("fit", path, "-o", tmp_path / "m.skops")
    assert (code, out) == (2, "")
    assert "line 3" in err
    assert "999999999" in err
