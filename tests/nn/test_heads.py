"""Heads: laws by enumeration, a network that learns one, and a fitted decoder as a head."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")

from fbeta import FBetaDecoder, LabelStatistics  # noqa: E402
from fbeta.datasets import CalibratedLaw  # noqa: E402
from fbeta.nn import CardinalityHead, DecoderHead, JointHead  # noqa: E402
from fbeta.nn import functional as F  # noqa: E402
from fbeta.nn._law import expectations, multiply  # noqa: E402

HEADS = pytest.mark.parametrize("kind", [JointHead, CardinalityHead])


@pytest.mark.parametrize(("s", "sizes"), [(1, (1,)), (1, ()), (5, (1, 2, 4)), (4, (1, 2, 3, 4))])
def test_statistics_of_the_cardinality_model(s, sizes, device):
    logits = torch.randn(6, s + 1 + len(sizes), dtype=torch.float64) * 3
    sets = [y for y in product((0, 1), repeat=s) if sum(y) in (0, *sizes)]
    value = torch.stack(
        [
            logits[:, :s] @ torch.tensor(y, dtype=torch.float64)
            + logits[:, s + (0, *sizes).index(sum(y))]
            for y in sets
        ],
        dim=1,
    )
    exact = LabelStatistics.from_distribution(torch.softmax(value, 1).numpy(), np.array(sets))
    found = F.cardinality_statistics(logits.to(device), s, sizes)
    np.testing.assert_allclose(found.empty.cpu(), exact.empty, rtol=1e-10)
    kept = [sizes.index(k) for k in exact.cardinalities]
    np.testing.assert_allclose(found.joint[:, kept].cpu(), exact.joint, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(found.marginals().cpu(), exact.marginals(), rtol=1e-10)
    means = expectations(logits, sizes)[2]
    np.testing.assert_allclose(means[:, :s], exact.marginals(), rtol=1e-10)


def test_statistics_of_independent_labels(device):
    logits = torch.randn(4, 6, dtype=torch.float64) * 4
    exact = LabelStatistics.from_marginals(torch.sigmoid(logits).numpy())
    found = F.independent_statistics(logits.to(device))
    np.testing.assert_allclose(found.empty.cpu(), exact.empty, rtol=1e-10)
    np.testing.assert_allclose(found.joint.cpu(), exact.joint, rtol=1e-10, atol=1e-20)


def test_joint_statistics_are_probabilities_of_the_code():
    logits = torch.randn(3, 1 + 2 * 4)
    q = F.joint_statistics(logits, 4, (1, 3))
    np.testing.assert_allclose(q.label_statistics().to_code(), torch.sigmoid(logits), rtol=1e-6)


@pytest.mark.parametrize("largest", [2, 9])
def test_polynomials(largest):
    a, b = torch.rand(3, 5, 2), torch.rand(5, 5, 2)
    x, y = a.numpy(), b.numpy()
    with_both = {}
    for mode in ("in place", "gathered"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fbeta.nn._law._in_place", lambda _, m=mode: m == "in place")
            with_both[mode] = multiply(a, b, largest)
    for i, j in product(range(5), range(2)):
        exact = np.convolve(x[:, i, j], y[:, i, j])[: largest + 1]
        for product_ in with_both.values():
            np.testing.assert_allclose(product_[:, i, j], exact, rtol=1e-5)


@HEADS
def test_state_and_shapes(kind):
    head = kind(8, 5, (1, 3))
    again = kind(8, 5, (1, 3))
    again.load_state_dict(head.state_dict())
    logits = head(torch.randn(7, 8))
    assert logits.shape == (7, head.n_logits)
    assert torch.equal(again.decode(logits), head.decode(logits))
    assert torch.equal(head.decode(head.statistics(logits.double())), head.decode(logits.double()))
    assert "n_labels=5, cardinalities=(1, 3)" in repr(head)
    with pytest.raises(ValueError, match="n_labels"):
        kind(8, 0, 1)


@HEADS
def test_states_of_other_sizes_are_refused(kind):
    state = kind(8, 5, (1, 3)).state_dict()
    with pytest.raises(RuntimeError, match=r"cardinalities=\(1, 3\), this one has \(1, 2\)"):
        kind(8, 5, (1, 2)).load_state_dict(state)
    del state["sizes"]  # as before version 0.2
    kind(8, 5, (1, 3)).load_state_dict(state)
    nested = torch.nn.Sequential(kind(8, 5, (1, 3)))
    again = torch.nn.Sequential(kind(8, 5, (1, 3)))
    again.load_state_dict(nested.state_dict())


@HEADS
def test_heads_start_at_the_frequencies(kind):
    rng = np.random.default_rng(0)
    Y = (rng.random((400, 6)) < [0.7, 0.4, 0.2, 0.1, 0.05, 0.0]).astype(int)
    share = 0.9 if kind is CardinalityHead else 1.0
    head = kind.from_targets(3, Y, coverage=share)
    assert head.cardinalities == tuple(range(1, int(np.quantile(Y.sum(1), share)) + 1))
    q = head.statistics(head(torch.zeros(1, 3)))
    np.testing.assert_allclose(q.empty.detach(), (Y.sum(1) == 0).mean(), atol=0.01)
    law = q.joint.sum(2)[0].detach().numpy() / np.array(head.cardinalities)
    seen = np.bincount(np.minimum(Y.sum(1), head.cardinalities[-1]))[1:] / len(Y)
    if kind is CardinalityHead:
        np.testing.assert_allclose(law, seen, atol=0.01)
    else:
        exact = [(Y * (Y.sum(1) == k)[:, None]).mean(0) for k in head.cardinalities]
        np.testing.assert_allclose(q.joint[0].detach(), exact, atol=0.01)
    assert torch.isfinite(head.loss(head(torch.randn(400, 3)), torch.tensor(Y)))
    with pytest.raises(ValueError, match="row 1 of target: values must be 0 or 1"):
        kind.from_targets(3, [[0, 1], [2, 0]])


@HEADS
def test_forbidden_labels_are_not_predicted(kind, device):
    head = kind(4, 6, 6).to(device)
    logits = head(torch.randn(20, 4, device=device)).detach() + 1
    mask = torch.rand(20, 6, device=device) < 0.5
    labels, expected = head.decode(logits, 2.0, label_mask=mask, return_expected=True)
    assert not labels[~mask].any()
    assert labels.any()
    assert (expected <= 1).all()
    q = head.statistics(logits, mask)
    assert (q.marginals()[~mask] < 1e-20).all()
    assert torch.equal(head.decode(q, 2.0), labels)


@HEADS
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_forbidden_labels_are_not_predicted_for_want_of_others(kind, scale, device):
    """At least so many labels as are allowed, whatever their probabilities."""
    head, rng = kind(2, 4, 4), torch.Generator().manual_seed(0)
    logits = scale * torch.randn(50, head.n_logits, generator=rng, dtype=torch.float64) - scale
    mask = torch.rand(50, 4, generator=rng) < 0.5
    logits, mask = logits.to(device), mask.to(device)
    for least in (0, 1, 3, torch.randint(0, 5, (50,), generator=rng).to(device)):
        labels = head.decode(logits, label_mask=mask, min_labels=least)
        assert not labels[~mask].any()
        reached = mask.sum(1).clamp(max=torch.as_tensor(least, device=device))
        assert (labels.sum(1) >= reached).all()
        for i in range(50):  # a law of the allowed labels alone
            q = head.statistics(logits[i : i + 1], mask[i])
            allowed = mask[i].nonzero()[:, 0]
            if len(allowed):
                few = q._replace(joint=q.joint[:, : len(allowed), allowed])
                few = few._replace(cardinalities=q.cardinalities[: len(allowed)])
                own = F.decode(few, min_labels=int(reached[i]))[0]
                assert torch.equal(labels[i, allowed], own)


@HEADS
def test_any_leading_axes(kind, device):
    head = kind(4, 6, (1, 2, 4)).to(device)
    logits = head(torch.randn(2, 3, 4, device=device)).detach()
    labels, expected = head.decode(logits, return_expected=True)
    assert labels.shape == (2, 3, 6)
    assert expected.shape == (2, 3)
    assert torch.equal(labels.reshape(-1, 6), head.decode(logits.reshape(6, -1)))
    assert torch.equal(head.decode(logits[0, 0]), labels[0, 0])


def test_separate_estimates_expect_no_more_than_one():
    head = JointHead(4, 6, 4)
    logits = torch.full((3, head.n_logits), 2.0)
    assert (head.decode(logits, return_expected=True)[1] == 1.0).all()


@HEADS
def test_a_linear_network_learns_the_law(kind):
    """It gets near the best possible F_beta of a law that is known."""
    law = CalibratedLaw(n_labels=4, n_features=20, random_state=0)
    train, test = law.sample(3000, random_state=1), law.sample(2000, random_state=2)
    head = kind(20, 4, 4)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=60)
    x, y = torch.tensor(train.X, dtype=torch.float32), torch.tensor(train.Y)

    def closure():
        optimiser.zero_grad()
        loss = head.loss(head(x), y)
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        labels = head.decode(head(torch.tensor(test.X, dtype=torch.float32)))
    assert 0 <= test.regret(labels.numpy()) < (0.01 if kind is JointHead else 0.03)


def draw_outputs(inputs, n=300, s=6, seed=0, empty=True):
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1, 1.5, size=(n, s))
    Y = (rng.random((n, s)) < 1 / (1 + np.exp(-1.5 * logits))).astype(int)
    if not empty:
        Y[Y.sum(1) == 0, 0] = 1
    return (logits if inputs == "logits" else 1 / (1 + np.exp(-logits))), Y


FORMS = pytest.mark.parametrize("inputs", ["logits", "probabilities"])


@FORMS
@pytest.mark.parametrize("empty", [True, False])
def test_same_sets_as_the_estimator(inputs, empty, device):
    X, Y = draw_outputs(inputs, empty=empty)
    decoder = FBetaDecoder(2.0, inputs=inputs).fit(X, Y)
    head = DecoderHead(decoder).to(device)
    X, _ = draw_outputs(inputs, seed=1)
    outputs = torch.tensor(X, device=device)
    logits = head(outputs)
    labels, expected = head.decode(logits, return_expected=True)
    np.testing.assert_array_equal(labels.cpu(), decoder.predict(X))
    np.testing.assert_allclose(expected.cpu(), decoder.expected_fbeta(X), rtol=1e-9)
    within = head.decode(logits, 0.5, min_labels=1, max_labels=2)
    np.testing.assert_array_equal(
        within.cpu(), decoder.predict(X, beta=0.5, min_labels=1, max_labels=2)
    )
    marginals = head.statistics(logits).marginals()
    np.testing.assert_allclose(marginals.cpu(), decoder.predict_proba(X), rtol=1e-9)
    again = DecoderHead(head.state_dict()).cpu()
    assert torch.equal(again.decode(again(outputs.cpu())), labels.cpu())
    assert head.decode(head(outputs.reshape(2, -1, 6))).shape == (2, 150, 6)
    if inputs == "probabilities":
        with pytest.raises(
            ValueError, match=r"row 0 of outputs: probabilities must be in \[0, 1\]"
        ):
            head(torch.logit(outputs))
    mask = torch.ones(6, dtype=torch.bool, device=device)
    mask[2] = False
    assert not head.decode(logits, 5.0, label_mask=mask)[:, 2].any()


def test_decoders_of_lists_are_refused():
    P, Y = draw_outputs("probabilities")
    with pytest.raises(TypeError, match="fitted to sparse lists"):
        DecoderHead(FBetaDecoder().fit(sp.csr_array(P), Y))


@FORMS
def test_certain_labels(inputs, device):
    """Infinite logits, and probabilities of 0 and 1, are what the decoder takes for extremes."""
    decoder = FBetaDecoder(inputs=inputs).fit(*draw_outputs(inputs))
    head, (X, _) = DecoderHead(decoder).to(device), draw_outputs(inputs, seed=1)
    ends = np.array([-np.inf, np.inf] if inputs == "logits" else [0.0, 1.0])
    X[:, :2] = ends[np.random.default_rng(0).integers(0, 2, size=(len(X), 2))]
    logits, finite = head(torch.tensor(X, device=device)), np.clip(X, -1e3, 1e3)
    np.testing.assert_array_equal(head.decode(logits).cpu(), decoder.predict(finite))
    P = head.statistics(logits).marginals().cpu()
    np.testing.assert_allclose(P, decoder.predict_proba(finite), rtol=1e-9)
    assert P[X[:, 0] == ends[0], 0].max() < 0.1 < 0.5 < P[X[:, 0] == ends[1], 0].min()
    X[3, 1] = np.nan
    if inputs == "probabilities":  # logits are not inspected
        with pytest.raises(ValueError, match="row 3 of outputs: probabilities must"):
            head(torch.tensor(X, device=device))


def test_a_state_brings_its_beta_and_the_kind_of_its_inputs(device):
    heads = {}
    for kind, beta in (("logits", 3.0), ("probabilities", 1.0)):
        X, Y = draw_outputs(kind)
        heads[kind] = DecoderHead(FBetaDecoder(beta, inputs=kind).fit(X, Y)).to(device)
        outputs = torch.tensor(draw_outputs(kind, seed=1)[0], device=device)
        state = heads[kind].state_dict()
        other = DecoderHead(state)
        other.beta, other.probability_floor = 7.0, 0.25
        other = torch.nn.Sequential(other).to(device)
        other.load_state_dict({f"0.{name}": values for name, values in state.items()})
        (own,) = other
        assert (own.beta, own.probability_floor) == (beta, heads[kind].probability_floor)
        assert torch.equal(own.decode(own(outputs)), heads[kind].decode(heads[kind](outputs)))


class Whole(torch.nn.Module):
    """Outputs to label sets, with beta and the limits as inputs."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x, beta, low, high):
        return self.head.decode(self.head(x), beta, min_labels=low, max_labels=high)


@FORMS
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_exported(inputs, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    X, Y = draw_outputs(inputs)
    decoder = FBetaDecoder(inputs=inputs).fit(X, Y)
    module = Whole(DecoderHead(decoder)).eval()
    example = (
        torch.tensor(X[:10]),
        torch.tensor(2.0, dtype=torch.float64),
        torch.tensor(1),
        torch.tensor(3),
    )
    program = torch.onnx.export(
        module,
        example,
        dynamo=True,
        verbose=False,
        input_names=["x", "beta", "low", "high"],
        dynamic_shapes=({0: torch.export.Dim("n")}, None, None, None),
    )
    program.save(tmp_path / "head.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "head.onnx")
    feeds = dict(zip(("x", "beta", "low", "high"), example, strict=True))
    feeds["x"] = torch.tensor(X)
    (found,) = session.run(None, {name: value.numpy() for name, value in feeds.items()})
    np.testing.assert_array_equal(found, decoder.predict(X, beta=2.0, min_labels=1, max_labels=3))
    feeds["x"] = torch.tensor(X[:0])
    (found,) = session.run(None, {name: value.numpy() for name, value in feeds.items()})
    assert found.shape == (0, 6)
