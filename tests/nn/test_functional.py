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

from ..cases import slow  # noqa: E402


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
@pytest.mark.parametrize("dtype", [slow(torch.float16), torch.bfloat16])
def test_half_precision(kind, dtype, device):
    s, sizes = 6, (1, 2, 3, 5)
    logits, Y = draw(kind, s, sizes, n=20)
    z = torch.tensor(logits, device=device, dtype=dtype, requires_grad=True)
    y = torch.tensor(Y, device=device)
    exact = kind.reference(z.detach().double().cpu().numpy(), Y, sizes).mean()
    loss = kind.function(z, y, sizes)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact, rel=1e-6)
    assert torch.isfinite(
        kind.function(z.repeat(20000, 1), y.repeat(20000, 1), sizes, reduction="sum")
    )
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


def subsets(y, sizes):
    """Return the random set that a row of another size counts as: sets and probabilities."""
    k = max(k for k in (0, *sizes) if k <= sum(y))
    some = [
        t
        for t in all_sets(len(y))
        if sum(t) == k and all(a <= b for a, b in zip(t, y, strict=True))
    ]
    return {t: 1 / len(some) for t in some}


def independent(p, sizes):
    """Return independent labels given that their number is known: sets and probabilities."""
    chance = {
        t: np.prod([q if b else 1 - q for q, b in zip(p, t, strict=True)])
        for t in all_sets(len(p))
        if sum(t) in (0, *sizes)
    }
    total = sum(chance.values())
    return {t: value / total for t, value in chance.items()}


def expected_loss(kind, logits, laws, sizes):
    """Return the mean loss of random label sets, one law for each row."""
    out = []
    for row, law in zip(logits, laws, strict=True):
        losses = kind.reference(np.tile(row, (len(law), 1)), np.array(list(law)), sizes)
        out.append(np.dot(losses, list(law.values())))
    return np.array(out)


@SKELETON
@pytest.mark.parametrize("sizes", [(1,), (1, 2), (2, 3), ()])
def test_rows_of_other_sizes_count_as_random_subsets(kind, sizes, device):
    s = 4
    Y = np.array([(1, 1, 1, 1), (1, 1, 0, 1), (0, 0, 1, 0), (0, 0, 0, 0)])
    logits = np.random.default_rng(0).normal(size=(4, kind.width(s, sizes)))
    exact = expected_loss(kind, logits, [subsets(y, sizes) for y in Y], sizes)
    z = torch.tensor(logits, device=device, requires_grad=True)
    y = torch.tensor(Y, device=device)
    for options in ({"overflow": True}, {"check": False}):
        loss = kind.function(z, y, sizes, reduction="none", **options)
        np.testing.assert_allclose(loss.detach().cpu(), exact, rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradcheck(lambda z: kind.function(z, y, sizes, overflow=True), (z,))
    with pytest.raises(ValueError, match="row 0 of target: the number of labels"):
        kind.function(z, y, sizes)


@SKELETON
@pytest.mark.parametrize("sizes", [(1, 2), slow((1, 2, 3, 4)), slow((2,))])
def test_soft_targets_have_the_expected_loss(kind, sizes, device):
    s = 4
    smooth = np.array([(1, 1, 0, 0), (0, 0, 1, 0), (1, 1, 1, 1)]) * 0.9 + 0.05
    mixup = [(1.0, 0.3, 0.0, 0.7), (0.5, 0.5, 0.0, 0.0)]
    P = np.vstack([smooth, mixup])
    logits = np.random.default_rng(0).normal(size=(len(P) + 1, kind.width(s, sizes)))
    laws = [independent(p, sizes) for p in P] + [subsets((0, 1, 1, 0), sizes)]
    exact = expected_loss(kind, logits, laws, sizes)
    z = torch.tensor(logits, device=device, requires_grad=True)
    y = torch.tensor(np.vstack([P, [(0, 1, 1, 0)]]), device=device)
    loss = kind.function(z, y, sizes, reduction="none")
    np.testing.assert_allclose(loss.detach().cpu(), exact, rtol=1e-9)
    assert torch.autograd.gradcheck(lambda z: kind.function(z, y, sizes), (z,))
    with pytest.raises(ValueError, match="row 0 of target: values must be 0 or 1"):
        kind.function(z, y, sizes, soft=False)


@SKELETON
@pytest.mark.parametrize("value", [-1.0, 2.0, 255.0, -100.0, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_targets_that_are_none_are_refused_by_row(kind, value, dtype, device):
    if dtype == torch.int64 and value != value:
        pytest.skip("integers are never NaN")
    z = torch.zeros(3, kind.width(3, (1, 2)), device=device)
    y = torch.zeros(3, 3, device=device, dtype=dtype)
    y[1, 2] = value
    with pytest.raises(ValueError, match="row 1 of target: values must be"):
        kind.function(z, y, 2)
    kind.function(z, y, 2, check=False)


@SKELETON
def test_forbidden_labels_do_not_occur(kind, device):
    """Against the loss without these labels."""
    s, sizes, allowed = 5, (1, 2, 4), [0, 2, 3]
    logits, _ = draw(kind, s, sizes, n=3)
    Y = np.array([(1, 0, 1, 0, 0), (0, 0, 0, 1, 0), (0, 0, 0, 0, 0)])
    few = (1, 2)
    if kind is Joint:
        whole = logits[:, 1:].reshape(3, 3, s)[:, :2, allowed].reshape(3, -1)
        fewer = np.hstack([logits[:, :1], whole])
    else:
        fewer = np.hstack([logits[:, allowed], logits[:, s : s + 3]])
    exact = kind.reference(fewer, Y[:, allowed], few)
    mask = torch.zeros(s, dtype=torch.bool, device=device)
    mask[allowed] = True
    z = torch.tensor(logits, device=device, requires_grad=True)
    y = torch.tensor(Y, device=device)
    for given in (mask, mask.expand(3, s)):
        loss = kind.function(z, y, sizes, label_mask=given, reduction="none")
        np.testing.assert_allclose(loss.detach().cpu(), exact, rtol=1e-10)
    loss.sum().backward()
    assert torch.isfinite(z.grad).all()
    y[2, 1] = 1
    with pytest.raises(ValueError, match="row 2 of target: a label is present that label_mask"):
        kind.function(z, y, sizes, label_mask=mask)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_forbidden_labels_are_not_free_where_labels_are_not_observed(scale, device):
    """The loss over the allowed labels alone, with the sizes that they can have."""
    s, sizes, allowed = 4, (1, 2, 3), [0, 2, 3]
    rng = np.random.default_rng(0)
    logits = scale * rng.normal(size=(40, s + 4))
    mask = torch.zeros(s, dtype=torch.bool, device=device)
    mask[allowed] = True
    seen = torch.tensor(rng.random((40, s)) < 0.4, device=device)
    y = torch.tensor((rng.random((40, s)) < 0.5) & mask.cpu().numpy(), device=device) & seen
    y = y.double()
    z = torch.tensor(logits, device=device)
    options = {"observed": seen, "reduction": "none"}
    loss = F.cardinality_loss(z, y, sizes, label_mask=mask, **options)
    few = torch.cat([z[:, allowed], z[:, s:]], dim=1)
    options["observed"] = seen[:, allowed]
    exact = F.cardinality_loss(few, y[:, allowed], sizes, **options)
    np.testing.assert_allclose(loss.cpu(), exact.cpu(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forbidden_labels_beside_very_low_logits(dtype, device):
    z = torch.tensor([[0.0, -1e10, 0.0, -2e10, 0.0]], dtype=dtype, device=device)
    mask = torch.tensor([False, True, True], device=device)
    target = torch.tensor([[0, 1, 1]], device=device)
    assert float(F.cardinality_loss(z, target, [2], label_mask=mask)) == 0  # the only set


@pytest.mark.parametrize("place", [0, 4, 5, 6])
def test_what_is_no_number_has_no_loss_and_no_label_set(place):
    z = torch.zeros(2, 4 + 1 + 3)
    z[1, place] = torch.nan
    target = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1]])
    loss = F.cardinality_loss(z, target, 3, reduction="none")
    assert torch.isnan(loss).tolist() == [False, True]
    with pytest.raises(ValueError, match="NaN"):
        F.decode_cardinality(z, 4, 3)


@SKELETON
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "kept", [{}, {"soft": True}, {"label_mask": torch.ones(3, dtype=torch.bool)}]
)
def test_infinite_logits_of_sizes_are_refused_by_row(kind, kept, device):
    kept = {name: part.to(device) if name == "label_mask" else part for name, part in kept.items()}
    y = torch.tensor([[0.0, 1, 0], [1, 1, 0]], device=device)
    for place in (0, 4) if kind is Joint else (3, 4, 5):
        z = torch.zeros(2, kind.width(3, (1, 2)), device=device)
        z[1, place] = torch.inf
        with pytest.raises(ValueError, match="row 1 of logits: those of sizes must not be inf"):
            kind.function(z, y, 2, **kept)
    z = torch.zeros(2, kind.width(3, (1, 2)), device=device)
    if kind is Cardinality:  # sizes that cannot be, and a label that is certain
        z[:, 3], z[0, 1] = -torch.inf, torch.inf
    assert torch.isfinite(kind.function(z, y, 2, **kept))


def test_sizes_and_goals_of_wrong_kinds_are_named():
    z = torch.zeros(5, 8)
    with pytest.raises(ValueError, match=r"cardinalities must be whole numbers, got \[1.5, 2.7\]"):
        F.decode_cardinality(z, 5, [1.5, 2.7])
    with pytest.raises(ValueError, match=r"beta must have shape \(5,\), got \(4,\)"):
        F.decode(z, torch.ones(4))


def test_labels_that_are_not_observed_are_summed_over(device):
    s, sizes = 5, (1, 2, 4)
    logits, _ = draw(Cardinality, s, sizes, n=4)
    Y = np.array([(1, 0, 0, 0, 0), (0, 1, 1, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 0)])
    known = np.array([(1, 1, 0, 0, 1), (1, 1, 1, 0, 1), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1)], bool)
    exact = []
    for row, y, seen in zip(logits, Y, known, strict=True):
        fits = [
            t for t in all_sets(s)
            if sum(t) in (0, *sizes) and all(t[j] == y[j] for j in np.flatnonzero(seen))
        ]  # fmt: skip
        losses = Cardinality.reference(np.tile(row, (len(fits), 1)), np.array(fits), sizes)
        exact.append(-np.logaddexp.reduce(-losses))
    z = torch.tensor(logits, device=device, requires_grad=True)
    y = torch.tensor(Y, dtype=torch.float64, device=device)
    mask = torch.tensor(known, device=device)
    y[~mask] = torch.nan
    loss = F.cardinality_loss(z, y, sizes, observed=mask, reduction="none")
    np.testing.assert_allclose(loss.detach().cpu(), exact, rtol=1e-9, atol=1e-12)
    assert torch.autograd.gradcheck(lambda z: F.cardinality_loss(z, y, sizes, observed=mask), (z,))


@SKELETON
def test_weights_adjustment_and_leading_axes(kind, device):
    s, sizes = 4, (1, 2, 3, 4)
    logits, Y = draw(kind, s, sizes, n=6)
    z, y = torch.tensor(logits, device=device), torch.tensor(Y, device=device)
    plain = kind.function(z, y, sizes, reduction="none")
    weight = torch.tensor([0.0, 1.0, 2.0, 0.5, 3.0, 1.0], dtype=torch.float64, device=device)
    weighted = kind.function(z, y, sizes, weight=weight)
    torch.testing.assert_close(weighted, (plain * weight).mean())
    torch.testing.assert_close(
        kind.function(z.reshape(2, 3, -1), y.reshape(2, 3, -1), sizes, reduction="none"),
        plain.reshape(2, 3),
    )
    torch.testing.assert_close(kind.function(z[1], y[1], sizes), plain[1])
    added = torch.tensor([0.5, -1.0, 0.0, 2.0], dtype=torch.float64, device=device)
    moved = z.clone()
    if kind is Joint:
        moved[:, 1:] += added.repeat(4)
    else:
        moved[:, :s] += added
    torch.testing.assert_close(
        kind.function(z, y, sizes, logit_adjustment=added), kind.function(moved, y, sizes)
    )
    with pytest.raises(ValueError, match="weight must have shape"):
        kind.function(z, y, sizes, weight=weight[:2])


@SKELETON
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("floats", [False, True])
def test_function_transforms(kind, floats, device):
    s, sizes = 4, (1, 2, 3)
    logits, Y = draw(kind, s, sizes, n=5)
    z, y = torch.tensor(logits, device=device), torch.tensor(Y, device=device)
    y = y.double() if floats else y
    whole = z.clone().requires_grad_()
    kind.function(whole, y, sizes, reduction="sum").backward()

    def loss(z, y):
        return kind.function(z, y, sizes)

    each = torch.func.vmap(torch.func.grad(loss))(z, y)
    torch.testing.assert_close(each, whole.grad)
    jacobian = torch.func.jacrev(lambda z: kind.function(z, y, sizes, reduction="none"))(z)
    torch.testing.assert_close(jacobian.sum(1), whole.grad)


@SKELETON
def test_forms_of_logits_and_sizes(kind):
    s, width = 3, kind.width(3, (1, 2))
    y = torch.tensor([[1, 0, 0]])
    value = kind.function(torch.zeros(1, width), y, 2)
    assert kind.function(torch.zeros(1, width, dtype=torch.int64), y, np.int64(2)) == value
    assert kind.function(torch.zeros(1, width), y, np.array([1, 2])) == value
    with pytest.raises(TypeError, match="Tensor, got ndarray"):
        kind.function(np.zeros((1, width)), y, 2)
    empty = torch.zeros(0, width, requires_grad=True)
    loss = kind.function(empty, torch.zeros(0, s), 2)
    loss.backward()
    assert loss == 0
    assert kind.function(empty, torch.zeros(0, s), 2, reduction="none").shape == (0,)


def test_many_rows_are_worked_on_in_parts(monkeypatch):
    logits, Y = draw(Cardinality, 5, (1, 3), n=30)
    z, y = torch.tensor(logits, requires_grad=True), torch.tensor(Y)
    whole = F.cardinality_loss(z, y, (1, 3), reduction="none")
    monkeypatch.setattr(F, "SHORT_CHUNK_LABELS", 20)
    parts = F.cardinality_loss(z, y, (1, 3), reduction="none")
    torch.testing.assert_close(parts, whole, rtol=1e-14, atol=1e-14)


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
