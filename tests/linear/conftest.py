"""Every test of the solver runs with and without its compiled part."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _both_stages(stage):
    """Ask for both."""
