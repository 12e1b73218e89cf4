from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Writer = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write a small text file and give its path."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return write_file
