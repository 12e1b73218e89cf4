"""Cases of a parametrised test, of which some stay in ``make test``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow_but(kept: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """Return the cases as parameters: those that are not kept are marked slow."""
    return [case if case in kept else slow(case) for case in cases]


def slow(*values: Any, **options: Any) -> Any:
    """Return a case that is marked slow."""
    return pytest.param(*values, marks=pytest.mark.slow, **options)
