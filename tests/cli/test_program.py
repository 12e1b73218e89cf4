"""The program as others see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..children import child
from .toys import TEST, Run, toy, write_csv

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")


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
    command = ("-m", "fbeta.cli", "predict", model, test)
    with child(*command, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"is_sea,is_sky,is_sun\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0
