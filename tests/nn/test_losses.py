"""Each loss by one skeleton: values, gradients, compiled, as a module, extremes, half precision."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")

from fbeta.nn import CardinalityLoss, JointLoss  # noqa: E402
from fbeta.nn import functional as F  # noqa: E402
from fbeta.statistics import surrogate  # noqa: E402


def all_sets(s):
    return list(product((0, 1), repeat=s))


class Joint:
    """The surrogate; its oracle is that of NumPy, on dense targets."""

    function, module = staticmethod(F.joint_loss), JointLoss
    oracle = "NumPy's surrogate"

    @staticmethod
    def width(s, sizes):
        return 1 + len(sizes) * s

    @staticmethod
    def reference(logits, Y, sizes):
        return surrogate.psi(Y, logits, sizes)


class Cardinality:
    """The likelihood; its oracle enumerates all label sets, scaled by the largest."""

    function, module = staticmethod(F.cardinality_loss), CardinalityLoss
    oracle = "2^s label sets"

    @staticmethod
    def width(s, sizes):
        return s + 1 + len(sizes)

    @staticmethod
    def reference(logits, Y, sizes):
        s, places = Y.shape[1], {k: i for i, k in enumerate((0, *sizes))}
        out = []
        for row, y in zip(logits, Y, strict=True):
            value = {
                t: float(np.dot(t, row[:s])) + row[s + places[sum(t)]]
                for t in all_sets(s)
                if sum(t) in places
            }
            top = max(value.values())
            total = top + log(sum(exp(v - top) for v in value.values()))
            out.append(total - value.get(tuple(int(j) for j in y), -np.inf))
        return np.array(out)


SKELETON = pytest.mark.parametrize("kind", [Joint, Cardinality], ids=["joint", "cardinality"])
# on the host a compiler would take long; what it gets is the same
BACKENDS = {"cpu": "aot_eager", "cuda": "inductor"}
CASES = [(1, (1,)), (4, (1, 2, 3, 4)), (5, (1, 3)), (6, (2, 5, 6)), (3, ())]


def draw(kind, s, sizes, n=8, scale=2.0, seed=0):
    """Return logits in double precision and label sets of the sizes, the empty one included."""
    rng = np.random.default_rng(seed)
    allowed = [y for y in all_sets(s) if sum(y) in (0, *sizes)]
    Y = np.array([allowed[i] for i in rng.integers(len(allowed), size=n)])
    Y[0] = 0
    return rng.normal(0, scale, size=(n, kind.width(s, sizes))), Y


@SKELETON
@pytest.mark.parametrize(("s", "sizes"), CASES)
def test_values(kind, s, sizes, device):
    logits, Y = draw(kind, s, sizes)
    expected = kind.reference(logits, Y, sizes)
    z, y = torch.tensor(logits, device=device), torch.tensor(Y, device=device)
    for target in (y, y.float(), y.bool()):
        loss = kind.function(z, target, sizes, reduction="none")
        np.testing.assert_allclose(loss.cpu(), expected, rtol=1e-12, atol=1e-14)
    for reduction in ("mean", "sum"):
        value = float(kind.function(z, y, sizes, reduction=reduction))
        assert value == pytest.approx(getattr(expected, reduction)(), rel=1e-12)
    assert kind.function(z.float(), y, sizes).dtype == torch.float32


@SKELETON
@pytest.mark.parametrize(("s", "sizes"), CASES)
def test_gradients(kind, s, sizes, device):
    logits, Y = draw(kind, s, sizes, n=4)
    z = torch.tensor(logits, device=device, requires_grad=True)
    y = torch.tensor(Y, device=device)
    for reduction in ("none", "mean"):
        assert torch.autograd.gradcheck(
            lambda z, r=reduction: kind.function(z, y, sizes, reduction=r), (z,)
        )


@SKELETON
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled(kind, device):
    s, sizes = 5, (1, 2, 4)
    logits, Y = draw(kind, s, sizes)
    z = torch.tensor(logits, device=device, requires_grad=True)
    y = torch.tensor(Y, device=device)
    loss = kind.function(z, y, sizes)
    (gradient,) = torch.autograd.grad(loss, z)
    compiled = torch.compile(kind.function, fullgraph=True, backend=BACKENDS[device.type])
    value = compiled(z, y, sizes)
    np.testing.assert_allclose(value.item(), loss.item(), rtol=1e-12)
    (found,) = torch.autograd.grad(value, z)
    np.testing.assert_allclose(found.cpu(), gradient.cpu(), rtol=1e-9, atol=1e-12)


@SKELETON
def test_module(kind):
    s, sizes = 4, (1, 3)
    logits, Y = draw(kind, s, sizes)
    z, y = torch.tensor(logits), torch.tensor(Y)
    for reduction in ("mean", "sum", "none"):
        module = kind.module(sizes, reduction)
        assert torch.equal(module(z, y), kind.function(z, y, sizes, reduction=reduction))
    assert "cardinalities=(1, 3)" in repr(kind.module(sizes))
    whole = kind.module(4)(torch.zeros(2, kind.width(s, range(4))), torch.zeros(2, s))
    assert torch.isfinite(whole)


@SKELETON
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_extremes(kind, dtype, device):
    s, sizes = 6, (1, 2, 3, 5)
    rng = np.random.default_rng(1)
    _, Y = draw(kind, s, sizes, n=40)
    logits = rng.choice([-80.0, 0.0, 80.0], size=(40, kind.width(s, sizes)))
    z = torch.tensor(logits, dtype=dtype, device=device, requires_grad=True)
    loss = kind.function(z, torch.tensor(Y, device=device), sizes, reduction="none")
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    expected = kind.reference(logits, Y, sizes)
    np.testing.assert_allclose(loss.detach().cpu(), expected, rtol=tolerance, atol=tolerance)
    loss.sum().backward()
    assert torch.isfinite(z.grad).all()
    assert z.grad.abs().max() <= 1 + tolerance


@SKELETON
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(kind, dtype, device):
    s, sizes = 6, (1, 2, 3, 5)
    logits, Y = draw(kind, s, sizes, n=20)
    z = torch.tensor(logits, device=device, dtype=dtype, requires_grad=True)
    y = torch.tensor(Y, device=device)
    exact = kind.reference(z.detach().double().cpu().numpy(), Y, sizes).mean()
    loss = kind.function(z, y, sizes)
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(exact, rel=torch.finfo(dtype).eps)
    loss.backward()
    assert z.grad.dtype == dtype
    with torch.autocast(device.type, dtype=torch.bfloat16):
        wide = kind.function(z, y, sizes)
    assert wide.dtype == torch.float32
    assert wide.item() == pytest.approx(exact, rel=1e-6)


@SKELETON
def test_what_is_refused(kind):
    z, y = torch.zeros(2, kind.width(3, (1, 2))), torch.zeros(2, 3)
    for match, call in {
        "logits must have shape": lambda: kind.function(z[:, 1:], y, 2),
        "target must have shape": lambda: kind.function(z, y[:1], 2),
        "cardinalities must be increasing sizes in 1..3": lambda: kind.function(z, y, [2, 1]),
        "reduction": lambda: kind.function(z, y, 2, reduction="median"),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()


def test_a_size_without_logits():
    alone = F.cardinality_loss(torch.zeros(1, 3), torch.tensor([[1, 0]]), [], reduction="none")
    assert torch.isinf(alone).all()
    z = torch.zeros(2, 5, requires_grad=True)
    y = torch.tensor([[1, 1, 0], [1, 0, 0]])
    loss = F.cardinality_loss(z, y, [1], reduction="none")
    assert torch.isinf(loss[0])
    assert torch.isfinite(loss[1])
    loss.sum().backward()
    np.testing.assert_allclose(z.grad[0], [-0.75, -0.75, 0.25, 0.25, 0.75], rtol=1e-6)
    joint = F.joint_loss(torch.zeros(2, 4), y, [1], reduction="none")
    np.testing.assert_allclose(joint, 4 * log(2), rtol=1e-6)


@pytest.mark.parametrize("move", [0.0, -40.0, 25.0])
def test_likelihood_of_a_thousand_labels(move, device):
    """Against the recurrence over labels in exact logarithms; potentials may undo any move."""
    s, largest, n = 1000, 30, 3
    rng = np.random.default_rng(2)
    scores = rng.normal(-4, 2, size=(n, s))
    potentials = rng.normal(0, 3, size=(n, largest + 1))
    Y = np.zeros((n, s), dtype=int)
    Y[1, :7], Y[2, 100:130] = 1, 1
    log_e = np.full((n, largest + 1), -np.inf)
    log_e[:, 0] = 0.0
    for j in range(s):
        log_e[:, 1:] = np.logaddexp(log_e[:, 1:], log_e[:, :-1] + scores[:, j : j + 1])
    total = np.logaddexp.reduce(log_e + potentials, axis=1)
    own = (scores * Y).sum(1) + potentials[np.arange(n), Y.sum(1)]
    logits = np.hstack([scores + move, potentials - move * np.arange(largest + 1)])
    z = torch.tensor(logits, device=device, requires_grad=True)
    loss = F.cardinality_loss(z, torch.tensor(Y, device=device), largest, reduction="none")
    np.testing.assert_allclose(loss.detach().cpu(), total - own, rtol=1e-10)
    loss.sum().backward()
    expected_sizes = z.grad[:, s:].cpu().numpy() + np.eye(largest + 1)[Y.sum(1)]
    np.testing.assert_allclose(
        expected_sizes, np.exp(log_e + potentials - total[:, None]), rtol=1e-8, atol=1e-14
    )
    expected_labels = (z.grad[:, :s].cpu().numpy() + Y).sum(1)
    np.testing.assert_allclose(
        expected_labels, expected_sizes @ np.arange(largest + 1.0), rtol=1e-10
    )
