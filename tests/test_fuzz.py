"""Ten thousand damaged files, in a process with 4 GB of address space."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

for module in ("skops", "typer", "pandas", "pyarrow"):
    pytest.importorskip(module, reason=f"{module} is not installed")

COUNT = 10_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("kind", ["readers", "models"])
def test_damaged_files_are_refused_or_read_within_a_limit(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", kind, str(COUNT), "0"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["refused"] + found["read"] == COUNT
    # damage that is never noticed, or always, would test nothing
    assert min(found.values()) > COUNT // 50
