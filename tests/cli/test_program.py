"""The program as others see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .toys import TEST, Run, write_csv

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")


def program(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "fbeta.cli", *arguments, **environment)


def python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('no typer', name='typer')")
    result = program("demo", PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == 'fbeta: the command line needs typer: pip install "fbeta[cli]"\n'


def test_help_has_an_example_for_each_command(run: Run) -> None:
    plain = ["fit", "predict", "evaluate", "export", "compare", "demo", "reproduce"]
    parts = ("figure1", "table2", "report", "networks")
    for command in [*plain, *(f"reproduce {part}" for part in parts)]:
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


@pytest.mark.slow
def test_output_in_a_pipe_has_no_colours(model: Path, tmp_path: Path) -> None:
    test = write_csv(tmp_path / "t.csv", *TEST)
    result = program("evaluate", model, test, PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert "F_beta" in result.stdout


def test_names_of_any_script_are_printed_anywhere(tmp_path: Path) -> None:
    train = tmp_path / "a.csv"
    tags = ("blau", "gr\u00fcn;wei\u00df")
    lines = [f"{i % 7},{tags[i % 2]}" for i in range(40)]
    train.write_text("\n".join(["gr\u00f6\u00dfe,tags", *lines]), encoding="utf-8")
    both = """
import sys
from fbeta.cli import main
train, model = sys.argv[1:]
assert main(["fit", train, "--label-column", "tags", "--alpha", "1", "-o", model]) == 0
assert main(["evaluate", model, train]) == 0
"""
    result = python("-c", both, train, tmp_path / "m.skops", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert r"gr\xfcn" in result.stdout
    assert "F_beta" in result.stdout
    assert "\x1b" not in result.stdout


def test_without_arguments_there_is_help(run: Run) -> None:
    for command in ((), ("reproduce",)):
        code, out, err = run(*command)
        assert (code, err) == (0, "")
        assert "Usage: fbeta" in out


def suggestions(command: Any, option: str, incomplete: str) -> list[str]:
    """What the shell is given for an option, without a process of its own."""
    context = command.make_context("fbeta", [], resilient_parsing=True)
    (parameter,) = [p for p in command.params if option in p.opts]
    return [item.value for item in parameter.shell_complete(context, incomplete)]


def test_names_are_in_help_and_completed(run: Run) -> None:
    from fbeta.cli.app import load_commands

    for command in ("fit", "compare", "reproduce table2"):
        out = " ".join(run(*command.split(), "--help")[1].replace("│", " ").split())
        for name in ("fbeta-all", "limo", "chain"):
            assert name in out, command
    assert "medical" in run("reproduce", "table2", "--help")[1]
    commands = load_commands()
    assert suggestions(commands["fit"], "--method", "li") == ["limo"]
    assert suggestions(commands["compare"], "--methods", "br,li") == ["br,limo"]
    table2 = commands["reproduce"].commands["table2"]
    assert suggestions(table2, "--datasets", "scene,ye") == ["scene,yeast"]


def complete(line: str) -> str:
    words = len(line.split(" ")) - 1
    return program(_FBETA_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(words)).stdout


@pytest.mark.slow
def test_names_are_completed_by_the_shell() -> None:
    assert complete("fbeta fit --method li").split() == ["limo"]
