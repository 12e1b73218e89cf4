"""Data that some tests need and that is not part of the project."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from fbeta.linear import compiled

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # make test-core: the modules that need it are left out
    pass
else:
    # a busy machine is not a failure; and the same change gets the same verdict twice
    settings.register_profile(
        "fbeta",
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("fbeta")

# nothing that collection makes is garbage
gc.disable()
PLACES = [Path(p) for p in [os.environ.get("FBETA_DATA", "")] if p]
PLACES.append(Path(__file__).resolve().parents[2] / "shared" / "data" / "mulan")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that have a form for CUDA: ``make test-gpu`` runs them."""
    for item in items:
        reasons = (mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif"))
        if "cuda" in item.name or any("CUDA" in reason for reason in reasons):
            item.add_marker("gpu")


def pytest_collection_finish():
    """Spare the garbage collector what is there to stay: it takes a tenth of the time of tests."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _array_api(request, monkeypatch):
    """Have scikit-learn check arrays of other libraries, which it skips without the variable."""
    if "check_array_api" in request.node.name:
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")


@pytest.fixture(scope="session")
def mulan():
    """Folder with the Mulan data sets."""
    for place in PLACES:
        if (place / "yeast-train.arff").exists():
            return place
    pytest.skip("the Mulan data sets are not here: set FBETA_DATA to their folder")


@pytest.fixture(params=["compiled", "arrays"])
def stage(request, monkeypatch):
    """Run a test of a solver with its compiled part, however small the data, and without it."""
    if request.param == "arrays":
        monkeypatch.setattr(compiled, "_engine", None)
    elif not compiled.is_compiled():
        pytest.skip("fbeta was built without a compiler")
    monkeypatch.setattr(compiled, "SMALLEST", 0)
    return request.param


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A Chromium for all tests of a run, or of one of its processes."""
    if os.name == "nt":
        pytest.skip("Chromium is driven by the pipes of POSIX")
    from .browser import CHROMIUM, Browser

    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    chromium = Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()
