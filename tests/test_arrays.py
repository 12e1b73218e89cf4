"""Statistics, decode, surrogate and losses on arrays of any library, on any device.

What comes out is of the library and on the device that went in, and equal to NumPy's result.
array-api-strict allows nothing that the standard does not promise, and moves no array from one of
its devices to another.
"""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest

from fbeta import LabelStatistics, decode
from fbeta._array import is_tensor, namespace_and_device, spread_rows, widest_float
from fbeta.decoding.expected import expected_fbeta, expected_measure
from fbeta.decoding.measures import MEASURES, Measure
from fbeta.losses import LOSSES
from fbeta.rivals import decode_independent
from fbeta.statistics.surrogate import psi, psi_gradient, psi_regret

from . import reference
from .cases import slow, slow_but
from .places import TENSORS, fetch, put

BETAS = (0.3, 1.0, 4.0)
MEASURE_NAMES = ("fbeta", *MEASURES)
ELSEWHERE = pytest.mark.parametrize("place", TENSORS)


@pytest.fixture(autouse=True)
def _oldest_standard():
    """Keep to what the standard of 2023 has."""
    with strict.ArrayAPIStrictFlags(api_version="2023.12"):
        yield


def make(kind, place, n=7, s=5, seed=0):
    """Return statistics of a kind in a place; the numbers are the same everywhere."""
    rng = np.random.default_rng(seed)
    P, sizes = rng.uniform(size=(n, s)), rng.dirichlet(np.ones(s), size=n)
    P[0] = [0.0, 1.0, 0.5, 0.5, 1e-300][:s]
    law = rng.dirichlet(np.full(2**s, 0.1), size=n)
    sets = np.array(reference.label_sets(s))
    if kind == "independent":
        return LabelStatistics.from_marginals(put(P, place))
    if kind == "sized":
        return LabelStatistics.from_marginals(put(P, place), put(sizes, place))
    if kind == "dense":
        return LabelStatistics.from_distribution(put(law, place), put(sets, place))
    parts = [make(part, place, n, s, seed) for part in ("independent", "sized", "dense")]
    return LabelStatistics.mixture(parts, [1, 2, 3])


KINDS = pytest.mark.parametrize("kind", ["independent", "sized", "dense", "mixture"])


@ELSEWHERE
@KINDS
def test_statistics(kind, place):
    here, there = make(kind, "numpy"), make(kind, place)
    assert (len(there), there.n_labels) == (len(here), here.n_labels)
    assert np.array_equal(there.cardinalities, here.cardinalities)
    for name in ("empty", "joint"):
        np.testing.assert_allclose(fetch(getattr(there, name), place), getattr(here, name), 1e-13)
    for name in ("marginals", "cardinality_distribution", "to_code"):
        np.testing.assert_allclose(
            fetch(getattr(there, name)(), place), getattr(here, name)(), rtol=1e-13, atol=1e-18
        )
    again = LabelStatistics.from_code(there.to_code(), there.cardinalities, there.n_labels)
    np.testing.assert_array_equal(fetch(again.joint, place), fetch(there.joint, place))


@ELSEWHERE
@KINDS
@pytest.mark.parametrize("beta", BETAS)
def test_decode(kind, place, beta):
    here, there = make(kind, "numpy"), make(kind, place)
    labels, expected = decode(here, beta, return_expected=True)
    found, value = decode(there, beta, return_expected=True)
    np.testing.assert_array_equal(fetch(found, place), labels)
    np.testing.assert_allclose(fetch(value, place), expected, rtol=1e-13)
    assert fetch(found, place).dtype == np.int8
    for i in range(len(here)):
        best = reference.best_value(here.empty[i], here.joint[i], here.cardinalities, beta)
        assert expected[i] == pytest.approx(best, rel=1e-12)
    np.testing.assert_allclose(
        fetch(expected_fbeta(there, found, beta), place), expected, rtol=1e-13
    )
    np.testing.assert_allclose(
        fetch(expected_fbeta(there, labels, beta), place), expected, rtol=1e-13
    )


@pytest.mark.parametrize("place", slow_but(("strict on device1", "torch"), TENSORS))
# the mixture is one of the others
@pytest.mark.parametrize("kind", [slow("independent"), slow("sized"), slow("dense"), "mixture"])
@pytest.mark.parametrize("measure", MEASURE_NAMES)
def test_measures_and_limits(kind, place, measure):
    here, there = make(kind, "numpy"), make(kind, place)
    for limits in ({}, {"min_labels": 1}, {"min_labels": 2, "max_labels": 3}, {"max_labels": 0}):
        arguments = {"measure": measure, "return_expected": True, **limits}
        labels, expected = decode(here, **arguments)
        found, value = decode(there, **arguments)
        np.testing.assert_array_equal(fetch(found, place), labels)
        np.testing.assert_allclose(fetch(value, place), expected, rtol=1e-12, atol=1e-15)
        again = expected_measure(there, found, measure=measure)
        np.testing.assert_allclose(fetch(again, place), expected, rtol=1e-12, atol=1e-15)


@ELSEWHERE
def test_ties_and_many_labels(place):
    """Enough labels for several pieces and for the bounds to matter; exact ties in most rows."""
    rng = np.random.default_rng(4)
    P = np.concatenate([rng.beta(0.3, 3.0, size=(20, 90)), rng.integers(0, 5, (20, 90)) / 4])
    joint = rng.integers(0, 3, size=(40, 6, 90)) * rng.gamma(0.1, size=(40, 6, 1))
    here = LabelStatistics(np.full(40, 0.01), joint, np.arange(2, 8))
    there = LabelStatistics(
        put(np.full(40, 0.01), place), put(joint, place), put(np.arange(2, 8), place)
    )
    for beta in BETAS:
        np.testing.assert_array_equal(fetch(decode(there, beta), place), decode(here, beta))
        np.testing.assert_array_equal(
            fetch(decode_independent(put(P, place), beta), place), decode_independent(P, beta)
        )


@ELSEWHERE
def test_rows(place):
    for kind in ("independent", "dense", "mixture"):
        here, there = make(kind, "numpy"), make(kind, place)
        mask = np.arange(7) % 2 == 0
        for rows in (slice(2, 5), [0, -1], mask, 3, put([5, 1], place), put(mask, place)):
            chosen = fetch(rows, place) if is_tensor(rows) else rows
            np.testing.assert_allclose(
                fetch(there[rows].joint, place), here[chosen].joint, rtol=1e-13, atol=1e-18
            )
    joined = LabelStatistics.concatenate([make("sized", place), make("dense", place)])
    np.testing.assert_allclose(
        fetch(joined.marginals(), place),
        np.concatenate([make(kind, "numpy").marginals() for kind in ("sized", "dense")]),
        rtol=1e-13,
    )


@ELSEWHERE
def test_from_labels_samples_and_lists(place):
    rng = np.random.default_rng(0)
    Y, S = rng.integers(0, 2, (6, 4)), rng.integers(0, 2, (6, 9, 4))
    P = rng.uniform(size=(6, 4))
    columns = [np.stack([1 - p, p], axis=1) for p in P.T]
    pairs = [
        (LabelStatistics.from_labels(put(Y, place)), LabelStatistics.from_labels(Y)),
        (LabelStatistics.from_samples(put(S, place)), LabelStatistics.from_samples(S)),
        (
            LabelStatistics.from_marginals([put(c, place) for c in columns]),
            LabelStatistics.from_marginals(columns),
        ),
        (
            LabelStatistics.from_distribution(put(P, place), Y[:4]),
            LabelStatistics.from_distribution(P, Y[:4]),
        ),
    ]
    for there, here in pairs:
        assert np.array_equal(there.cardinalities, here.cardinalities)
        np.testing.assert_allclose(fetch(there.to_code(), place), here.to_code(), rtol=1e-14)


@ELSEWHERE
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_surrogate(place, dtype):
    rng = np.random.default_rng(0)
    Y, U = rng.integers(0, 2, (5, 3)), rng.normal(size=(5, 10)).astype(dtype)
    statistics = make("dense", "numpy", 5, 3), make("dense", place, 5, 3)
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    for loss in LOSSES:
        for labels in (put(Y, place), Y):
            for function in (psi, psi_gradient):
                found = fetch(function(labels, put(U, place), loss=loss), place)
                np.testing.assert_allclose(found, function(Y, U, loss=loss), rtol=tolerance)
                assert found.dtype == dtype
        scores = U[:, : statistics[0].to_code().shape[1]]
        found = psi_regret(statistics[1], put(scores, place), loss=loss)
        here = psi_regret(statistics[0], scores, loss=loss)
        np.testing.assert_allclose(fetch(found, place), here, rtol=10 * tolerance)
        some = psi(put(Y, place), put(U[:, :7], place), put([1, 3], place), loss=loss)
        np.testing.assert_allclose(fetch(some, place), psi(Y, U[:, :7], [1, 3], loss=loss), 1e-5)


@ELSEWHERE
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_losses(place, loss):
    u, y = np.linspace(-600, 600, 41), np.tile([0.0, 0.25, 0.8, 1.0], 11)[:41]
    q = np.array([0.0, 0.2, 0.5, 1.0])
    for name in ("value", "derivative", "second_derivative", "evaluate"):
        found = getattr(loss, name)(put(y, place), put(u, place))
        here = getattr(loss, name)(y, u)
        pairs = zip(found, here, strict=True) if name == "evaluate" else [(found, here)]
        for one, other in pairs:
            np.testing.assert_allclose(fetch(one, place), other, rtol=1e-13, atol=1e-30)
    np.testing.assert_allclose(fetch(loss.link(put(q, place)), place), loss.link(q))
    np.testing.assert_allclose(fetch(loss.inverse_link(put(u, place)), place), loss.inverse_link(u))


def test_a_device_without_double_precision():
    """Everything is computed in single precision then, and ties are wider."""
    place = "strict on no_float64"
    rng = np.random.default_rng(0)
    P, sizes = rng.uniform(size=(30, 8)), rng.dirichlet(np.ones(5), size=30)
    P[0, :4] = [0, 1, 1e-30, 1]
    single = [put(a, place, np.float32) for a in (P, sizes)]
    for there, here in (
        (LabelStatistics.from_marginals(single[0]), LabelStatistics.from_marginals(P)),
        (LabelStatistics.from_marginals(*single), LabelStatistics.from_marginals(P, sizes)),
    ):
        labels, expected = decode(there, return_expected=True)
        best = decode(here, return_expected=True)[1]
        np.testing.assert_allclose(fetch(expected, place), best, rtol=1e-5)
        got = expected_fbeta(here, fetch(labels, place))
        np.testing.assert_allclose(got, best, rtol=1e-5)
        assert fetch(there.joint, place).dtype == np.float32
        np.testing.assert_allclose(fetch(there.joint, place), here.joint, rtol=1e-4, atol=1e-7)


def test_nothing_is_moved_unasked():
    numpy, strict_, other = (
        put([[0.5, 0.2]], place) for place in ("numpy", "strict", "strict on device1")
    )
    for one, two in ((strict_, other), (strict_, numpy)):
        with pytest.raises(ValueError, match="one library on one device"):
            LabelStatistics.from_marginals(one, two)
        with pytest.raises(ValueError, match="one library on one device"):
            namespace_and_device(one=one, two=two)
    q = LabelStatistics.from_marginals(other)
    with pytest.raises(ValueError, match="of the library and on the device"):
        expected_fbeta(q, strict_)
    with pytest.raises(ValueError, match="of the library and on the device"):
        expected_fbeta(LabelStatistics.from_marginals(numpy), strict_)
    with pytest.raises(ValueError, match="another library or on another device"):
        LabelStatistics.mixture([q, LabelStatistics.from_marginals(strict_)])
    with pytest.raises(ValueError, match="one library on one device"):
        psi(put([[1, 0]], "strict"), put(np.zeros((1, 5)), "strict on device1"))


def test_bad_tensors_are_named():
    for make_, message in (
        (lambda: LabelStatistics.from_marginals(put([[1.5]], "strict")), r"\[0, 1\]"),
        (lambda: LabelStatistics.from_labels(put([[2]], "strict")), "only 0 and 1"),
        (lambda: LabelStatistics.from_labels(put([1], "strict")), "shape"),
        (lambda: psi(put([[1, 0]], "strict"), put(np.zeros((1, 4)), "strict")), "U must have"),
    ):
        with pytest.raises(ValueError, match=message):
            make_()


@ELSEWHERE
def test_a_measure_of_ones_own(place):
    """Neither separable nor bounded: every size is tried."""
    mine = Measure("mine", lambda k, size, s: 1 / (k + size) ** 2, lambda k, size, s: -size * k / 9)
    here, there = make("dense", "numpy"), make("dense", place)
    labels, expected = decode(here, measure=mine, return_expected=True)
    found, value = decode(there, measure=mine, return_expected=True)
    np.testing.assert_array_equal(fetch(found, place), labels)
    np.testing.assert_allclose(fetch(value, place), expected, rtol=1e-13, atol=1e-16)


def test_gradients_of_torch():
    """They flow through the surrogate and the expected value; a decision has none."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    Y, U = rng.integers(0, 2, (5, 3)), rng.normal(size=(5, 10))
    for loss in LOSSES:
        scores = torch.asarray(U.copy()).requires_grad_()
        psi(Y, scores, loss=loss).sum().backward()
        np.testing.assert_allclose(scores.grad.numpy(), psi_gradient(Y, U, loss=loss), rtol=1e-12)
    logits = torch.asarray(U).requires_grad_()
    q = LabelStatistics.from_marginals(torch.sigmoid(logits))
    labels, expected = decode(q, return_expected=True)
    assert not expected.requires_grad
    code = torch.sigmoid(torch.asarray(U[:, :7]).requires_grad_())
    dense = LabelStatistics.from_code(code, [1, 3], 3)
    assert not decode(dense).requires_grad
    assert expected_fbeta(dense, labels[:, :3]).requires_grad


def test_helpers():
    assert not is_tensor(np.zeros(1))
    assert not is_tensor([1.0])
    assert is_tensor(put([1.0], "strict"))
    assert widest_float(np, None) is np.float64
    rows, values = put([0, 2, 5], "strict on device1"), put([1.0, 2.0, 3.0], "strict on device1")
    out = fetch(spread_rows(strict, values, rows, 7, -1.0), "strict on device1")
    assert out.tolist() == [1.0, -1.0, 2.0, -1.0, -1.0, 3.0, -1.0]
