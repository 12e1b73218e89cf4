"""The libraries and devices that arrays may be of, and the way there and back."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest

TENSORS = ["strict", "strict on device1", "torch", "torch on cuda"]


def put(array, place, dtype=None):
    """Return an array of the library, on the device."""
    array = np.array(array, dtype=dtype)
    if place == "numpy":
        return array
    if place.startswith("torch"):
        torch = pytest.importorskip("torch")
        if "cuda" in place and not torch.cuda.is_available():
            pytest.skip("no CUDA device is here")
        return torch.asarray(array, device="cuda" if "cuda" in place else "cpu")
    return strict.asarray(array, device=_device(place))


def fetch(array, place):
    """Return the numbers of an array, which has to be in its place."""
    if place == "numpy":
        assert isinstance(array, np.ndarray)
        return array
    if place.startswith("torch"):
        assert isinstance(array, pytest.importorskip("torch").Tensor)
        assert array.device.type == ("cuda" if "cuda" in place else "cpu")
        return array.cpu().numpy()
    assert array.device == _device(place)
    return np.asarray(array.to_device(strict.Device("CPU_DEVICE")))


def _device(place):
    return strict.Device(place.removeprefix("strict on ") if " on " in place else "CPU_DEVICE")
