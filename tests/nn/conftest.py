"""Tests of :mod:`fbeta.nn` need PyTorch, and those of a GPU a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")
DEVICES = ["cpu", "cuda"]


@pytest.fixture(params=DEVICES)
def device(request):
    """The devices to test on."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device is here")
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
