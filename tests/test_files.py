"""Outputs: written whole, and over nothing that is not theirs."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fbeta._files import (
    check_output,
    make_folder,
    remove_stale,
    to_csv,
    try_lock,
    write_atomically,
    write_text,
)

from .children import child

posix = pytest.mark.skipif(os.name == "nt", reason="a matter of POSIX")
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@posix
def test_an_input_is_not_written_over_by_whatever_name(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("data")
    (tmp_path / "soft").symlink_to(source)
    (tmp_path / "softer").symlink_to("soft")
    os.link(source, tmp_path / "hard")
    (tmp_path / "sub").mkdir()
    for path in ("a.csv", "soft", "softer", "hard", "sub/../a.csv"):
        with pytest.raises(ValueError, match="is an input of the same command"):
            check_output(tmp_path / path, [tmp_path / "absent", source])
    check_output(tmp_path / "b.csv", [source])
    check_output("/dev/null", ["/dev/null"])


@posix
def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "circle").symlink_to(folder)
    (folder / "a.csv").write_text("data")
    (tmp_path / "b.csv").write_text("data")
    (folder / "soft.csv").symlink_to("../b.csv")
    (tmp_path / "same").symlink_to("in")
    os.link(folder / "a.csv", tmp_path / "hard.csv")
    for path in ("in/a.csv", "in/new.csv", "same/new.csv", "b.csv", "hard.csv"):
        with pytest.raises(ValueError, match=r"is a file of the folder .*in, which is an input"):
            check_output(tmp_path / path, [tmp_path / "absent", folder])
    for path in ("new.csv", "in/deep/new.csv"):
        check_output(tmp_path / path, [folder])


@posix
def test_links_stay_and_modes_too(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    target = tmp_path / "deep" / "real.txt"
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "link").symlink_to("deep/real.txt")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    (tmp_path / "dangling").symlink_to("deep/later.txt")
    write_text(tmp_path / "dangling", "made")
    assert (tmp_path / "dangling").is_symlink()
    assert (tmp_path / "deep" / "later.txt").read_text() == "made"
    assert names(tmp_path / "deep") == ["later.txt", "real.txt"]


@posix
def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        check_output(tmp_path / "a")


@posix
def test_pipes_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_output(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through\n" * 20_000)
    reader.join(timeout=20)
    assert got == ["through\n" * 20_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]


@posix
def test_devices_are_written_to(tmp_path: Path) -> None:
    before = os.stat("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        write_text("/dev/full", "x")
    after = os.stat("/dev/full")
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
    write_text("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@posix
def test_standard_output_is_added_to(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("kept\n")
    (tmp_path / "link").symlink_to("/dev/stdout")
    program = (
        "import sys; from fbeta._files import write_text; "
        "[write_text(p, 'more\\n') for p in sys.argv[1:]]"
    )
    places = ["/dev/stdout", "/dev/fd/1", str(tmp_path / "link")]
    with log.open("a") as file:
        command = [sys.executable, "-c", program, *places]
        subprocess.run(command, stdout=file, check=True, timeout=60)
    assert log.read_text() == "kept\nmore\nmore\nmore\n"
    assert (tmp_path / "link").is_symlink()


def test_places_that_cannot_be_are_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"there is no folder .*absent: make it first"):
        check_output(tmp_path / "absent" / "a.txt")
    with pytest.raises(ValueError, match="is a folder"):
        check_output(tmp_path)
    with pytest.raises(NotADirectoryError):
        check_output(tmp_path / "file" / "a.txt")
    with pytest.raises(ValueError, match="there is no folder"):
        make_folder(tmp_path / "absent" / "deeper")
    with pytest.raises(ValueError, match="is a file, expected a folder"):
        make_folder(tmp_path / "file")
    assert make_folder(tmp_path / "new").is_dir()
    assert names(tmp_path) == ["file", "new"]


@posix
@pytest.mark.skipif(AS_ROOT, reason="root may write everywhere")
def test_what_must_not_be_written_is_not(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(ValueError, match="cannot be written to"):
        check_output(locked / "a.txt")
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "a.txt").chmod(0o400)
    with pytest.raises(ValueError, match="must not be written to"):
        check_output(tmp_path / "a.txt")


def test_the_answer_of_the_system_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as for anybody but root
    monkeypatch.setattr(os, "access", lambda *a, **k: False)
    with pytest.raises(ValueError, match="cannot be written to"):
        check_output(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(ValueError, match="must not be written to"):
        check_output(tmp_path / "a.txt")


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    for error in (RuntimeError, MemoryError, KeyboardInterrupt):
        with contextlib.suppress(error), write_atomically(tmp_path / "a.txt") as part:
            part.write_text("half of the n")
            raise error
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_an_error_of_the_disk_names_the_output(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    for raised in (OSError(28, "No space left on device"), None):
        with pytest.raises(OSError, match=r"out\.csv'") as error, write_atomically(path) as part:
            raise raised or OSError(28, "No space left on device", str(part))
        assert "fbeta-part" not in str(error.value)
    assert names(tmp_path) == []


@posix
def test_a_new_file_has_the_mode_of_the_mask_and_a_private_one_stays_private(
    tmp_path: Path,
) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "new.txt", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o640
    (tmp_path / "new.txt").chmod(0o600)
    with write_atomically(tmp_path / "new.txt") as part:
        part.write_text("secret")
        assert stat.S_IMODE(part.stat().st_mode) == 0o600


KILLED = """
import sys, time
from fbeta._files import write_atomically
with write_atomically(sys.argv[1]) as part:
    part.write_text("half")
    print("written", flush=True)
    time.sleep(100)
"""


@posix
def test_leftovers_of_a_killed_run_are_removed_and_those_of_a_living_one_stay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a[1].txt"
    with child("-c", KILLED, path) as dead:
        assert dead.stdout.readline() == b"written\n"
        dead.send_signal(signal.SIGKILL)
        dead.wait(timeout=20)
    (leftover,) = names(tmp_path)
    assert leftover.startswith(".a[1]-")
    with child("-c", KILLED, path) as alive:
        assert alive.stdout.readline() == b"written\n"
        (other,) = names(tmp_path)
        assert other != leftover, "the run that lives has removed that of the dead one"
        write_text(path, "whole")
        assert names(tmp_path) == sorted([other, "a[1].txt"])
    write_text(path, "again")
    assert names(tmp_path) == ["a[1].txt"]


@posix
def test_other_hidden_files_stay(tmp_path: Path) -> None:
    for name in (".a-1.txt", ".b-1.fbeta-part.txt", ".a-1.fbeta-part.csv"):
        (tmp_path / name).write_text("mine")
    stale, locked = tmp_path / ".a-1.fbeta-part.txt", tmp_path / ".a-2.fbeta-part.txt"
    stale.write_text("")
    with locked.open("w") as file:
        assert try_lock(file)
        remove_stale(tmp_path / "a.txt")
        assert not stale.exists()
        assert locked.exists()
    assert len(names(tmp_path)) == 4


def test_formulas_are_made_harmless_on_request() -> None:
    row = ["=1+1", "+1", "-x", "@a", "\tx", " =1", "plain", -1.5, None]
    assert to_csv([row]) == "=1+1,+1,-x,@a,\tx, =1,plain,-1.5,\n"
    assert to_csv([row], safe=True) == "'=1+1,'+1,'-x,'@a,'\tx,' =1,plain,-1.5,\n"
