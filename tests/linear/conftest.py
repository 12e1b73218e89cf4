"""Every test of the solver runs with and without its compiled part."""

from __future__ import annotations

import pytest

from fbeta.linear import lanes


@pytest.fixture(params=["compiled", "arrays"], autouse=True)
def stage(request, monkeypatch):
    if request.param == "arrays":
        monkeypatch.setattr(lanes, "_compiled", None)
    elif lanes._compiled is None:
        pytest.skip("fbeta was built without a compiler")
    monkeypatch.setattr(lanes, "SMALLEST", 0)
    return request.param
