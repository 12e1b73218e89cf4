"""The cardinality model on tensors at any finite logits, against enumeration in high precision."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")

from fbeta import LabelStatistics, decode  # noqa: E402
from fbeta.nn import CardinalityHead, _law, decoding  # noqa: E402
from fbeta.nn import functional as F  # noqa: E402

from ..cases import slow  # noqa: E402
from ..statistics.test_cardinality_law import draw, enumerate_law  # noqa: E402


@pytest.fixture(params=["as it runs", "as it is traced", slow("without the compiled part")])
def traced(request, monkeypatch):
    """Run the operations that are traced for a compiler or an export, where asked for."""
    if request.param == "without the compiled part":
        monkeypatch.setattr("fbeta.linear.cardinality.size_sweep", lambda *_: None)
    if request.param == "as it is traced":
        for module in (decoding, _law):
            monkeypatch.setattr(module, "is_tracing", lambda: True)
        monkeypatch.setattr(decoding, "is_exporting", lambda: True)
    return request.param


def cases(seeds, dtype=torch.float64):
    """Logits, sizes, and all label sets with the logarithms of their probabilities."""
    for seed in seeds:
        scores, potentials, sizes = draw(np.random.default_rng(seed))
        if 0 not in sizes:
            sizes, potentials = [0, *sizes], np.concatenate([[0.0], potentials])
        logits = torch.tensor(np.concatenate([scores, potentials])[None], dtype=dtype)
        exact = logits.double().numpy()[0]
        sets, logs = enumerate_law(exact[:4], exact[4:], sizes)
        yield logits, tuple(sizes[1:]), np.array(sets), logs


@pytest.mark.parametrize("dtype", [torch.float64, slow(torch.float32)])
def test_losses_and_gradients(device, traced, dtype):
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    for logits, sizes, sets, logs in cases(range(60), dtype):
        p = np.array([float(x.exp()) if x > -700 else 0.0 for x in logs])
        for y, log in list(zip(sets, logs, strict=True))[::3]:
            z = logits.clone().to(device).requires_grad_()
            target = torch.tensor(y[None], device=device)
            loss = F.cardinality_loss(z, target, sizes)
            loss.backward()
            limit = float(torch.finfo(loss.dtype).max)
            np.testing.assert_allclose(
                loss.item(), min(-float(log), limit), rtol=tolerance, atol=tolerance
            )
            size = [
                sum(q for q, v in zip(p, sets, strict=True) if v.sum() == k) for k in (0, *sizes)
            ]
            expected = np.concatenate([(p[:, None] * sets).sum(axis=0), size])
            own = [float(y.sum() == k) for k in (0, *sizes)]
            exact = expected - np.concatenate([y, own])
            np.testing.assert_allclose(z.grad[0].cpu(), exact, atol=tolerance)


def test_sets_and_expected_values(device, traced):
    for logits, sizes, sets, logs in cases(range(80)):
        p = np.array([float(x.exp()) if x > -700 else 0.0 for x in logs])
        exact = LabelStatistics.from_distribution(p[None], sets)
        best, highest = decode(exact, 1.0, return_expected=True)
        z = logits.to(device)
        labels, value = F.decode_cardinality(z, 4, sizes, return_expected=True)
        np.testing.assert_allclose(value.cpu(), highest, rtol=1e-9)
        np.testing.assert_array_equal(labels.cpu(), best)
        labels = F.decode(F.cardinality_statistics(z, 4, sizes))
        np.testing.assert_array_equal(labels.cpu(), best)


@pytest.mark.parametrize("mask", [-1e3, -1e4, -1e9, -65504.0, -torch.inf])
def test_labels_masked_by_large_negative_scores(mask, device, traced):
    z = torch.zeros(1, 13, device=device)
    z[0, :2] = torch.tensor([1.0, 0.5])
    z[0, 2:6] = mask
    z.requires_grad_()
    loss = F.cardinality_loss(z, torch.tensor([[1, 1, 0, 0, 0, 0]], device=device), 6)
    loss.backward()
    assert loss.item() == pytest.approx(0.78731, abs=1e-4)
    assert z.grad[0, 0].item() < -0.1
    assert z.grad[0, 2:6].abs().max().item() == 0


def test_limits_hold_where_labels_cannot_be(device, traced):
    """The first of the labels with infinite scores are taken where more labels are asked for."""
    z = torch.tensor([[1.0, -torch.inf, -torch.inf, 0.5, 0, 0, 0, 0, 0]], device=device)
    assert F.decode_cardinality(z, 4, 4, min_labels=3).tolist() == [[1, 1, 0, 1]]
    assert F.decode(z[:, :4], min_labels=3).tolist() == [[1, 1, 0, 1]]


def test_saturated_scores(device, traced):
    z = torch.zeros(1, 13, device=device)
    z[0, :2], z[0, 7] = torch.tensor([45.0, 40.0]), 60.0
    labels, expected = F.decode_cardinality(z, 6, 6, return_expected=True)
    assert labels.tolist() == [[1, 0, 0, 0, 0, 0]]
    assert expected.item() == pytest.approx(0.9933, abs=1e-4)


@pytest.mark.parametrize("options", [{"max_labels": 2}, {"min_labels": 3}, {}])
@pytest.mark.parametrize("sizes", [(6,), (1, 6), (2,), (1, 2, 3, 4, 5, 6)])
def test_ties_are_equal_however_the_decode_is_reached(sizes, options, device, traced):
    head = CardinalityHead(3, 6, sizes)
    logits = torch.randn(500, head.n_logits, dtype=torch.float64, device=device)
    logits[::3] = logits[::3].round()
    one = head.decode(logits, **options)
    other = head.decode(head.statistics(logits), **options)
    assert torch.equal(one, other)
    q = head.statistics(logits)
    here = LabelStatistics(q.empty.cpu().numpy(), q.joint.cpu().numpy(), sizes)
    assert np.array_equal(one.cpu(), decode(here, **options))


def test_gradients_of_statistics():
    logits = (torch.randn(3, 5 + 1 + 2, dtype=torch.float64) * 3).requires_grad_()

    def statistics(z):
        q = F.cardinality_statistics(z, 5, (1, 3))
        return q.empty, q.joint

    assert torch.autograd.gradcheck(statistics, logits)


@pytest.mark.parametrize(("s", "sizes"), [(1, (1,)), (7, (1, 2, 3)), (80, (2, 5, 9)), (33, ())])
@pytest.mark.parametrize("scale", [3.0, 1e6])
def test_products_and_ratios_give_the_same_joint_law(s, sizes, scale):
    draws = torch.Generator().manual_seed(s)
    scores = scale * torch.randn(5, s, generator=draws, dtype=torch.float64)
    potentials = torch.randn(5, 1 + len(sizes), generator=draws, dtype=torch.float64)
    descending = _law.sort_scores(scores)[0]
    expected = _law.sorted_joint(descending, potentials, sizes)
    for found, right in zip(
        _law.joint_by_tree(descending, potentials, sizes), expected, strict=True
    ):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=0.0)
