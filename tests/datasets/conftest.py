from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Writer = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def mulan_folder() -> Path:
    """The folder with the real benchmark files; tests that need it skip without."""
    beside_project = Path(__file__).parents[2].parent / "shared" / "data" / "mulan"
    folder = Path(os.environ.get("FBETA_DATA", beside_project))
    if not (folder / "yeast-train.arff").is_file():
        pytest.skip(f"no Mulan files in {folder}: set FBETA_DATA to a folder that has them")
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write a small text file and give its path."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return write_file
