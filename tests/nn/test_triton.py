"""The kernels in Triton, by its interpreter where no GPU is here, against the plain operations.

On a GPU all other tests of losses and decode run on the kernels as well.
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")
pytest.importorskip("triton", reason="the kernels are written in Triton")

from ..children import child  # noqa: E402

PROGRAM = """
import numpy as np
import torch
import fbeta
from fbeta.nn import _inputs, decoding, functional as F, Statistics

rng = np.random.default_rng(0)
dev = "cuda" if torch.cuda.is_available() else "cpu"
_inputs.fuses = lambda *_: True
n = 6 if dev == "cuda" else 2  # the interpreter is slow
for trial in range(10 * n):
    s = int(rng.integers(1, 9))
    K = int(rng.integers(1, s + 1))
    sizes = tuple(sorted(rng.choice(np.arange(1, s + 1), K, replace=False).tolist()))
    joint = rng.integers(0, 4, size=(n, K, s)) / 4
    if trial % 2:
        joint = rng.dirichlet(np.full(K * s, 0.2), size=n).reshape(n, K, s)
    empty = rng.integers(0, 3, size=n) / 3
    low = int(rng.integers(0, s + 1))
    beta, high = float(rng.choice([0.3, 1, 2, 5])), int(rng.integers(low, s + 1))
    here = fbeta.LabelStatistics(empty, joint, sizes)
    there = Statistics(torch.tensor(empty, device=dev), torch.tensor(joint, device=dev), sizes)
    for limits in ((0, s), (low, high)):
        options = {"min_labels": limits[0], "max_labels": limits[1]}
        labels, expected = fbeta.decode(here, beta, return_expected=True, **options)
        weights = decoding._weights(sizes, s, beta, torch.float64, there.joint.device)
        bounds = (torch.tensor(float(limit), dtype=torch.float64, device=dev) for limit in limits)
        found, value = _inputs.fused_search(there.empty, there.joint, weights, *bounds)
        np.testing.assert_array_equal(found.cpu(), labels)
        np.testing.assert_allclose(value.cpu(), expected, rtol=1e-12)
print("decode", flush=True)
for s, sizes, scale in (
    (1, (1,), 1), (5, (1, 2, 3), 2), (6, (2, 5), 80), (3, (), 3), (5, (1, 2, 3, 4, 5), 30),
    (9, (1, 3), 40), (40, tuple(range(1, 11)), 3), (40, tuple(range(1, 11)), 80),
    (6, (1, 2, 3, 6), 1e3), (6, (1, 2, 4), 1e30), (9, (2, 3, 9), 1e6), (40, (1, 5, 40), 300),
):
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-6)):
        logits = rng.normal(0, scale, size=(n, s + 1 + len(sizes)))
        if scale == 80:
            logits = rng.choice([-80.0, 0.0, 80.0], size=logits.shape)
        if scale in (1e30, 300):  # labels that are masked by large negative scores
            logits[:, : s // 2] = np.where(logits[:, : s // 2] > 0, -scale, 1.0)
        z = torch.tensor(logits, dtype=dtype, device=dev)
        y = torch.zeros(n, s, dtype=torch.bool, device=dev)
        for i in range(n):
            y[i, torch.randperm(s)[: int(rng.choice((0, *sizes)))]] = True
        _inputs.fuses = lambda *_: False
        loss, residual = F._loss_and_residual(z, y, None, (sizes, False, True))
        _inputs.fuses = lambda *_: True
        for target in (y, y.float(), y.long())[: n // 2]:
            value, gradient = _inputs.fused_loss(z, target, sizes)
            np.testing.assert_allclose(value.cpu(), loss.cpu(), rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(gradient.cpu(), residual.cpu(), atol=tolerance)
            assert gradient.dtype == residual.dtype
        # rows of other sizes, and targets between 0 and 1
        other = torch.rand(n, s, device=dev)
        for target, options in ((other < 0.8, {"overflow": True}), (other, {"soft": True})):
            value = F.cardinality_loss(z, target, sizes, reduction="none", **options)
            _inputs.fuses = lambda *_: False
            plain = F.cardinality_loss(z, target, sizes, reduction="none", **options)
            _inputs.fuses = lambda *_: True
            np.testing.assert_allclose(value.cpu(), plain.cpu(), rtol=tolerance, atol=tolerance)
print("loss", flush=True)
"""


@pytest.mark.slow
def test_kernels_agree_with_the_plain_operations():
    environment = dict(os.environ)
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    with child("-W", "ignore", "-c", PROGRAM, timeout=300, env=environment) as process:
        assert process.stdout.read().decode().split() == ["decode", "loss"]
