"""The solver's kernels in Triton, by its interpreter where no GPU is here, against the arrays."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="the kernels are written in Triton")

from ..children import child  # noqa: E402

PROGRAM = """
import itertools
import sys
import numpy as np
import scipy.sparse as sp
import torch
from fbeta._array import array_namespace
from fbeta.linear import Design, conjugate, objectives
from fbeta.linear.batch import ProblemBatch
from fbeta.linear.objectives import Binary
from fbeta.linear.preconditioners import Eliminating
from fbeta.losses import LogisticLoss

dev = "cuda" if torch.cuda.is_available() else "cpu"
rng = np.random.default_rng(0)

def kernels(on):
    for user in (conjugate, objectives):
        user.has_kernels = lambda array: on

objective, folds = Binary(LogisticLoss()), Binary(LogisticLoss(), rows=[])
cases = ((70, 5, "float32", 3), (1, 300, "float64", 80), (64, 1, "float32", 200))
for (n, m, dtype, scale), own in itertools.product(cases, (objective, folds)):
    u = torch.tensor(rng.normal(0, scale, size=(n, m)), device=dev).to(getattr(torch, dtype))
    y = torch.tensor(rng.integers(0, 2, size=(n, m)), device=dev).float()
    if own is folds:  # rows that a fold holds out
        y[torch.tensor(rng.random((n, m)) < 0.4, device=dev)] = torch.nan
    for cautious in (None, torch.tensor(rng.random(m) < 0.5, device=dev)):
        found = [kernels(on) or own.summed(y, u, cautious, None) for on in (True, False)]
        for one, other in zip(*found):
            assert one.dtype == other.dtype and one.shape == other.shape
            # an average curvature is a difference, divided by a score that may be small
            tolerance = 1e-10 if dtype == "float64" else 1e-4
            np.testing.assert_allclose(one.cpu(), other.cpu(), rtol=tolerance, atol=tolerance)
print("losses", flush=True)

for d, m in ((3, 5), (40, 7), (1, 1), (20, 1), (120, 33), (600, 3)):
    X = torch.tensor(rng.normal(size=(60 + d, d)), dtype=torch.float32, device=dev)
    design = Design.of(X).astype(torch.float32)
    y = torch.tensor(rng.integers(0, 2, size=(60 + d, m)), dtype=torch.float32, device=dev)
    states = []
    for on in (True, False):
        kernels(False)
        block = ProblemBatch(design, design, objective, y, 0.3, torch.float32)
        W = torch.zeros((d + 1, m), dtype=torch.float64, device=dev)
        point = block.evaluate(W)
        preconditioner = Eliminating.build(block, point, None, None)
        limit = 1e-6 * preconditioner.apply(-point.gradient)[1]
        kernels(on)
        at = conjugate.Iterates(block, point, preconditioner, limit, 3.0, 0.01)
        assert at.fused == on
        for _ in range(min(d, 3)):
            at.advance()
        states.append(at)
    one, other = states
    for name in ("x", "r", "p", "rz"):
        size = getattr(other, name).abs().max().item() + 0.1
        np.testing.assert_allclose(
            getattr(one, name).cpu(), getattr(other, name).cpu(), atol=3e-4 * size, rtol=1e-4
        )
    for name in ("lower", "upper"):
        np.testing.assert_allclose(
            getattr(one, name).cpu(), getattr(other, name).cpu(), rtol=1e-3
        )
    assert (one.active == other.active).float().mean() > 0.5
print("steps", flush=True)
"""


def test_kernels_agree_with_the_arrays():
    environment = dict(os.environ, SCIPY_ARRAY_API="1")
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    with child("-W", "ignore", "-c", PROGRAM, timeout=300, env=environment) as process:
        assert process.stdout.read().decode().split() == ["losses", "steps"]
