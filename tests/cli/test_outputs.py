"""Nothing of the user's is destroyed, and what the machine refuses is told in a line."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ..cases import slow
from ..children import INTERRUPTIBLE, child
from .toys import TEST, TRAIN, Run, toy, write_arff, write_csv

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="files and signals of POSIX")

FIT = ("--label-prefix", "is_", "--alpha", "1", "--method", "fbeta")


def program(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "fbeta.cli", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, timeout=60, check=False, **pipes)


def unwatched() -> dict[str, str]:
    """Return the environment without what has children write down what they run."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")}


def one_line(text: bytes) -> str:
    assert text.startswith(b"fbeta: "), text
    assert text.count(b"\n") == 1, text
    return text.decode()


def test_inputs_are_never_outputs(model: Path, tmp_path: Path, run: Run) -> None:
    train = tmp_path / "train.csv"
    before = train.read_bytes()
    kept = model.read_bytes()
    (tmp_path / "link.csv").symlink_to(train)
    os.link(train, tmp_path / "hard.csv")
    for output in (train, tmp_path / "link.csv", tmp_path / "hard.csv"):
        for command in (
            ("fit", train, *FIT, "-o", output),
            ("predict", model, train, "-o", output),
        ):
            code, out, err = run(*command)
            assert (code, out) == (2, "")
            assert "is an input of the same command" in err
    code, _, err = run("predict", model, train, "-o", model)
    assert code == 2
    assert "is an input" in err
    arff, xml = write_arff(tmp_path / "a.arff", *TRAIN), tmp_path / "a.xml"
    xml.write_text("<labels><label name='sea'/></labels>")
    code, _, err = run("fit", arff, "--labels", xml, "-o", xml)
    assert code == 2
    assert "is an input" in err
    plots = tmp_path / "plots"
    plots.mkdir()
    (plots / "betas.png").symlink_to(train)
    assert run("evaluate", model, train, "--plots", plots)[0] == 2
    assert (train.read_bytes(), model.read_bytes()) == (before, kept)


def test_a_folder_and_a_checkpoint_are_safe(model: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    data = write_csv(folder / "p1.csv", *TRAIN)
    before, kept = data.read_bytes(), model.read_bytes()
    fit = ("fit", folder, *FIT, "--memory", "1GB")
    elsewhere = (*fit, "-o", tmp_path / "m.skops", "--checkpoint")
    for command, words in (
        ((*fit, "-o", data), "is an input"),
        ((*fit, "-o", folder / "out.skops"), "is an input"),
        ((*elsewhere, data), "is an input"),
        ((*elsewhere, tmp_path / "m.skops"), "expected two files"),
        (("predict", model, folder, "--memory", "1GB", "-o", data), "is an input"),
        (("predict", model, folder, "--memory", "1GB", "-o", folder / "o.csv"), "is an input"),
    ):
        code, out, err = run(*command)
        assert (code, out) == (2, ""), command
        assert words in err
        assert err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["p1.csv"]
    assert (data.read_bytes(), model.read_bytes()) == (before, kept)


@pytest.mark.slow
def test_the_standard_input_is_no_output(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", *TRAIN)
    before = train.read_bytes()
    with train.open("rb") as file:
        done = program("fit", "-", *FIT, "-o", train, stdin=file)
    assert done.returncode == 2
    assert "is an input" in one_line(done.stderr)
    assert train.read_bytes() == before


def test_a_place_that_cannot_be_is_told_before_the_fit(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write_csv(tmp_path / "train.csv", *TRAIN)
    monkeypatch.setattr("fbeta.cli.fit.read_training", lambda *a: pytest.fail("it was read"))
    monkeypatch.chdir(tmp_path)
    for output in ("new/m.skops", tmp_path / "new" / "m.skops", tmp_path, "train.csv/m.skops"):
        code, out, err = run("fit", train, *FIT, "-o", output)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.csv"]
    assert run("demo", "-o", tmp_path / "a" / "b")[0] == 2
    assert run("reproduce", "figure1", "-o", tmp_path / "a" / "b")[0] == 2


@pytest.mark.slow
def test_a_model_goes_to_the_standard_output_and_comes_from_a_pipe(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", *TRAIN)
    for output in ("-", "/dev/stdout"):
        done = program("fit", train, *FIT, "-o", output)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"PK")
        assert b"Fitted to" in done.stderr
    (tmp_path / "m.skops").write_bytes(done.stdout)
    assert program("predict", tmp_path / "m.skops", train).stdout.startswith(b"is_sea,is_sky")


def test_links_and_modes_of_outputs_stay(model: Path, tmp_path: Path, run: Run) -> None:
    test = write_csv(tmp_path / "t.csv", *TEST)
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    assert run("predict", model, test, "-o", link)[0] == 0
    assert link.is_symlink()
    assert real.read_text().startswith("is_sea")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_full_disk_is_told_in_a_line(model: Path, tmp_path: Path) -> None:
    test = write_csv(tmp_path / "t.csv", *TEST)
    device = os.stat("/dev/full")
    for command in (
        ("predict", model, test, "-o", "/dev/full"),
        ("fit", test, *FIT, "-o", "/dev/full"),
    ):
        done = program(*command)
        assert done.returncode == 2
        assert "/dev/full: No space left on device" in one_line(done.stderr)
    assert os.stat("/dev/full").st_rdev == device.st_rdev
    with open("/dev/full", "wb") as full:
        done = program("evaluate", model, test, stdout=full)
    assert done.returncode == 2
    assert "the standard output: No space left on device" in one_line(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "fit"])
def test_a_disk_that_fills_up_leaves_the_old_file(
    command: str, model: Path, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    test, output = write_csv(tmp_path / "t.csv", *toy(2_000, 0)), tmp_path / "out.csv"
    output.write_text("old")
    before = sorted(path.name for path in tmp_path.iterdir())

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    inputs = {"predict": (model, test), "fit": (test, *FIT)}[command]
    # Python would cut the modules that it compiles at the limit as well, and keep them
    environment = unwatched() | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = program(command, *inputs, "-o", output, preexec_fn=limit, env=environment)
    assert done.returncode == 2
    assert "too large" in one_line(done.stderr)
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


LIMITED = """
import resource, sys
import fbeta.cli.fit, fbeta.estimators.auto
from fbeta.cli.app import run
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, used + 2**27))
sys.exit(run())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
# with no time for another candidate: nearest neighbours would do with the memory there is
@pytest.mark.parametrize("method", [("fbeta",), ("auto", "--time-limit", "0.001")])
def test_too_little_memory_is_told_in_a_line(tmp_path: Path, method: tuple[str, ...]) -> None:
    data, output = tmp_path / "a.svm", tmp_path / "m.skops"
    data.write_text("".join(f"{i % 7},{i % 5} {i + 1}:1 1000000:1\n" for i in range(50)))
    options = ["--method", *method, "--json", "-o", output]
    command = [sys.executable, "-c", LIMITED, "fit", data, *options]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        timeout=120,
        check=False,
        env=unwatched() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert "out of memory" in one_line(done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.slow
def test_a_reader_that_leaves_is_told_in_a_line(model: Path, tmp_path: Path) -> None:
    test = write_csv(tmp_path / "t.csv", *toy(20_000, 0))
    with child("-m", "fbeta.cli", "predict", model, test, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"is_sea,is_sky,is_sun\n"
        process.stdout.close()
        assert "broken pipe" in one_line(process.stderr.read())
        assert process.wait(timeout=60) == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("of 8 GB"),
        ImportError("a.so: failed to map segment from shared object"),
        OSError(28, "No space"),
    ],
)
def test_what_the_machine_refuses_is_no_bug(
    model: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("fbeta.cli.options.load_model", refuse)
    code, out, err = run("predict", model, write_csv(tmp_path / "t.csv", *TEST))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "bug" not in err
    assert ("out of memory" in err) == isinstance(error, (MemoryError, ImportError))


SLOW = """
import sys, time
import fbeta._files
from fbeta.cli.app import run
def slow(*args):
    print("writing", flush=True)
    time.sleep(100)
fbeta._files._replace = slow
sys.exit(run())
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, slow(signal.SIGTERM), slow(signal.SIGHUP)],
)
def test_a_run_that_is_ended_removes_its_temporary_files(tmp_path: Path, number: int) -> None:
    train = write_csv(tmp_path / "train.csv", *TRAIN)
    output = tmp_path / "m.skops"
    # what a script ignores (nohup: a hangup) is ignored, and rightly so by the command
    heeded = "".join(f"signal.signal(signal.{n}, signal.SIG_DFL)\n" for n in ("SIGHUP", "SIGTERM"))
    command = ("-c", INTERRUPTIBLE + heeded + SLOW, "fit", train, *FIT, "-o", output, "--json")
    with child(*command, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        assert len(list(tmp_path.iterdir())) == 2, "there has to be one to be removed"
        process.send_signal(number)
        assert process.wait(timeout=30) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


@pytest.mark.slow
def test_what_a_killed_run_has_left_is_removed_by_the_next(tmp_path: Path, run: Run) -> None:
    train = write_csv(tmp_path / "train.csv", *TRAIN)
    output = tmp_path / "m.skops"
    with child("-c", SLOW, "fit", train, *FIT, "-o", output, "--json") as process:
        assert process.stdout.readline() == b"writing\n"
        process.kill()
        process.wait(timeout=30)
    time.sleep(0.01)
    assert len(list(tmp_path.iterdir())) == 2
    assert run("fit", train, *FIT, "-o", output)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.skops", "train.csv"]
