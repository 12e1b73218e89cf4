"""The decode on tensors finds the sets of NumPy's, ties included, however it is run."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import fbeta  # noqa: E402
from fbeta import LabelStatistics  # noqa: E402
from fbeta.decoding import measures  # noqa: E402
from fbeta.nn import CardinalityHead, JointHead, Statistics, decode, decoding  # noqa: E402
from fbeta.nn import functional as F  # noqa: E402

from .. import reference  # noqa: E402
from ..children import child  # noqa: E402

BACKENDS = {"cpu": "aot_eager", "cuda": "inductor"}


@pytest.fixture(params=["as it runs", "as it is traced"])
def traced(request, monkeypatch):
    """Run the operations that are traced for a compiler or an export, where asked for."""
    if request.param == "as it is traced":
        monkeypatch.setattr(decoding, "is_tracing", lambda: True)
        monkeypatch.setattr(decoding, "is_exporting", lambda: True)
    return request.param


def draw(rng, n=6, most=7):
    """Statistics with many ties, and limits."""
    s = int(rng.integers(1, most + 1))
    K = int(rng.integers(0, s + 1))
    sizes = tuple(sorted(rng.choice(np.arange(1, s + 1), K, replace=False).tolist()))
    joint = rng.integers(0, 4, size=(n, K, s)) / 4
    empty = rng.integers(0, 3, size=n) / 3
    low = int(rng.integers(0, s + 1))
    limits = {"min_labels": low, "max_labels": int(rng.integers(low, s + 1))}
    return empty, joint, sizes, limits


def tensors(values, device):
    return {name: torch.tensor(value, device=device) for name, value in values.items()}


@pytest.mark.parametrize("seed", range(25))
def test_any_statistics(seed, device, traced):
    rng = np.random.default_rng(seed)
    empty, joint, sizes, limits = draw(rng)
    here = LabelStatistics(empty, joint, sizes)
    there = Statistics(
        torch.tensor(empty, device=device), torch.tensor(joint, device=device), sizes
    )
    for beta in (0.3, 1.0, 2.0):
        labels, expected = fbeta.decode(here, beta, return_expected=True)
        found, value = decode(there, beta, return_expected=True)
        assert (found.dtype, found.device.type) == (torch.int8, device.type)
        np.testing.assert_array_equal(found.cpu(), labels)
        np.testing.assert_allclose(value.cpu(), expected, rtol=1e-12)
        within = fbeta.decode(here, beta, **limits)
        np.testing.assert_array_equal(decode(there, beta, **limits).cpu(), within)
        on_device = torch.tensor(beta, dtype=torch.float64, device=device)
        found = decode(there, on_device, **tensors(limits, device))
        np.testing.assert_array_equal(found.cpu(), within)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_no_set_is_better(seed):
    rng = np.random.default_rng(seed)
    empty, joint, sizes, _ = draw(rng, n=1, most=5)
    q = Statistics(torch.tensor(empty), torch.tensor(joint), sizes)
    labels = decode(q, 1.5)[0].tolist()
    assert labels == list(reference.best_set(empty[0], joint[0], sizes, 1.5))


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_independent_logits(beta, device, traced):
    logits = torch.randint(-4, 4, (40, 9)).double() / 2
    here = LabelStatistics.from_marginals(torch.sigmoid(logits).numpy())
    labels, expected = fbeta.decode(here, beta, return_expected=True)
    found, value = decode(logits.to(device), beta, return_expected=True)
    np.testing.assert_array_equal(found.cpu(), labels)
    np.testing.assert_allclose(value.cpu(), expected, rtol=1e-12)


@pytest.mark.parametrize("sizes", [(1, 2, 3), (2, 5), (1, 2, 3, 4, 5, 6), ()])
def test_cardinality_model(sizes, device, traced):
    """Against the decode of the statistics, which has no notion of an order of labels."""
    s = 6
    logits = torch.randn(50, s + 1 + len(sizes), dtype=torch.float64) * 2
    statistics = F.cardinality_statistics(logits, s, sizes)
    for beta in (0.5, 2.0):
        labels, expected = fbeta.decode(
            LabelStatistics(statistics.empty.numpy(), statistics.joint.numpy(), sizes),
            beta, return_expected=True,
        )  # fmt: skip
        found, value = F.decode_cardinality(logits.to(device), s, sizes, beta, return_expected=True)
        np.testing.assert_array_equal(found.cpu(), labels)
        np.testing.assert_allclose(value.cpu(), expected, rtol=1e-10)


def test_equal_scores_go_to_the_first_label(device, traced):
    logits = torch.zeros(1, 7 + 4, device=device)
    logits[0, 7 + 2] = 9.0
    found = F.decode_cardinality(logits, 7, 3, max_labels=3)
    assert found.tolist() == [[1, 1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("kind", ["statistics", "cardinality"])
def test_many_rows_are_decoded_in_parts(kind, device, traced, monkeypatch):
    logits = torch.randn(30, 5 + 1 + 3, dtype=torch.float64, device=device)

    def run():
        if kind == "cardinality":
            return F.decode_cardinality(logits, 5, 3, return_expected=True)
        return decode(F.cardinality_statistics(logits, 5, 3), return_expected=True)

    whole = run()
    monkeypatch.setattr(decoding, "CHUNK_NUMBERS", 100)
    for part, all_ in zip(run(), whole, strict=True):
        assert torch.equal(part, all_)


@pytest.mark.parametrize("beta", [1e-200, 1e200])
def test_extreme_beta(beta, device, traced):
    rng = np.random.default_rng(0)
    joint = rng.uniform(size=(5, 3, 4)) / 12
    here = LabelStatistics(np.full(5, 0.01), joint, (1, 2, 3))
    q = Statistics(
        torch.full((5,), 0.01, dtype=torch.float64, device=device),
        torch.tensor(joint, device=device), (1, 2, 3),
    )  # fmt: skip
    there = torch.tensor(beta, dtype=torch.float64, device=device)
    for given_as in (beta, there):
        np.testing.assert_array_equal(decode(q, given_as).cpu(), fbeta.decode(here, beta))


def test_padded_short_lists(device, traced):
    """Logits of -inf stand for places of a list that are not used."""
    logits = torch.tensor([[2.0, -0.5, -torch.inf], [0.3, 0.2, 0.1]], device=device)
    labels, value = decode(logits, return_expected=True)
    short, expected = decode(logits[:1, :2], return_expected=True)
    assert labels[0].tolist() == [*short[0].tolist(), 0]
    np.testing.assert_allclose(value[:1].cpu(), expected.cpu(), rtol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_listed_labels(seed, device, traced):
    """Lists in any order, with unused places, have the sets of NumPy's, ties included."""
    rng = np.random.default_rng(seed)
    n, listed, s = 40, 6, 20
    indices = np.stack([rng.permutation(s)[:listed] for _ in range(n)])
    values = rng.integers(0, 5, size=(n, listed)) / 5 if seed % 2 else rng.random((n, listed))
    indices[rng.random((n, listed)) < 0.3] = -1
    here = LabelStatistics.from_listed(indices, values, s)
    there = tensors({"statistics": values, "indices": indices}, device)
    logits = torch.logit(there.pop("statistics"))
    for goal in ({}, {"beta": 0.5, "max_labels": 2}, {"beta": 2.0, "min_labels": 3}):
        right, expected = fbeta.decode(here, return_expected=True, **goal)
        found, value = decode(logits, return_expected=True, **there, **goal)
        own = found.cpu().numpy().astype(bool)
        sets = [sorted(row[taken].tolist()) for row, taken in zip(indices, own, strict=True)]
        assert sets == [row.tolist() for row in np.split(right.indices, right.indptr[1:-1])]
        if "min_labels" not in goal or traced == "as it runs":
            np.testing.assert_allclose(value.cpu(), expected, rtol=1e-12)


def test_what_lists_refuse():
    logits, indices = torch.tensor([[2.0, 1.0]]), torch.tensor([[1, 2]])
    nan = torch.tensor([[2.0, torch.nan]])
    for match, given_logits, wrong in (
        ("NaN", nan, indices),
        ("twice", logits, torch.tensor([[1, 1]])),
        ("integers of shape", logits, indices.double()),
        ("integers of shape", logits, indices > 1),
        (
            r"shape \(1, 2\).* got Tensor torch.int64 torch.Size\(\[1, 3\]",
            logits,
            indices[:, [0, 1, 1]],
        ),
        ("got ndarray int64", logits, indices.numpy()),
        ("for logits", F.joint_statistics(torch.zeros(1, 5), 2, 2), indices),
    ):
        with pytest.raises(ValueError, match=match):
            decode(given_logits, indices=wrong)
    # what is not used may be anything
    assert decode(nan, indices=torch.tensor([[127, -1]], dtype=torch.int8)).tolist() == [[1, 0]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_onnx_runtime_decodes_lists(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    class Lists(torch.nn.Module):
        def forward(self, logits, indices):
            return decode(logits, indices=indices)

    torch.manual_seed(0)
    logits = torch.randn(8, 5, dtype=torch.float64)
    example = logits, torch.stack([torch.randperm(9)[:5] for _ in range(8)])
    program = torch.onnx.export(Lists().eval(), example, dynamo=True, verbose=False)
    program.save(tmp_path / "lists.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "lists.onnx")
    feeds = dict(zip((i.name for i in session.get_inputs()), example, strict=True))
    (found,) = session.run(None, {name: value.numpy() for name, value in feeds.items()})
    np.testing.assert_array_equal(found, decode(logits, indices=example[1]))


@pytest.mark.parametrize("kind", ["statistics", "logits", "cardinality"])
def test_beta_and_limits_by_row(kind, device):
    logits = torch.randn(12, 5 + 1 + 3, dtype=torch.float64, device=device)
    beta = torch.tensor([0.5, 1.0, 3.0] * 4, dtype=torch.float64, device=device)
    high = torch.tensor([1, 5] * 6, device=device)

    def run(rows, **goal):
        if kind == "cardinality":
            return F.decode_cardinality(logits[rows], 5, 3, return_expected=True, **goal)
        q = F.cardinality_statistics(logits[rows], 5, 3)
        return decode(q if kind == "statistics" else logits[rows], return_expected=True, **goal)

    labels, expected = run(slice(None), beta=beta, max_labels=high)
    for i in range(12):
        one, value = run(slice(i, i + 1), beta=float(beta[i]), max_labels=int(high[i]))
        assert torch.equal(labels[i : i + 1], one)
        torch.testing.assert_close(expected[i : i + 1], value)
    head = CardinalityHead(2, 5, 3).to(device).double()
    nested = head.decode(
        logits.reshape(3, 4, -1), beta.reshape(3, 4), max_labels=high.reshape(3, 4)
    )
    flat = F.decode_cardinality(logits, 5, 3, beta, max_labels=high)
    assert torch.equal(nested.reshape(12, 5), flat)


def test_forms_of_logits():
    integers = torch.tensor([[2, -1, -3]])
    assert decode(integers).tolist() == decode(integers.float()).tolist()
    with pytest.raises(TypeError, match="Tensor, got ndarray"):
        decode(np.zeros((2, 3)))
    assert decode(torch.zeros(0, 3)).shape == (0, 3)
    assert F.decode_cardinality(torch.zeros(0, 6), 3, 2).shape == (0, 3)


def test_label_statistics_are_decoded(device):
    q = LabelStatistics.from_marginals(torch.tensor([[0.9, 0.5, 0.1]], device=device))
    assert torch.equal(decode(q, 2.0), torch.as_tensor(fbeta.decode(q, 2.0)))
    on_host = LabelStatistics.from_marginals([[0.9, 0.5, 0.1], [0.2, 0.3, 0.1]])
    labels, expected = decode(on_host, 2.0, return_expected=True)
    right, value = fbeta.decode(on_host, 2.0, return_expected=True)
    np.testing.assert_array_equal(labels, right)
    np.testing.assert_allclose(expected, value)


def test_label_statistics_on_a_device_are_decoded_by_the_registered_search(monkeypatch):
    asked = []
    monkeypatch.setitem(measures._SEARCHES, "cpu", lambda *args: asked.append(args) or (1, 2))
    q = LabelStatistics(torch.zeros(1), torch.zeros(1, 1, 2), [1])
    assert fbeta.decode(q, 2.0, max_labels=1) == 1
    ((form, beta, goal),) = asked
    assert (form, beta, goal.low, goal.high) == (q.form, 2.0, 0, 1)
    assert "cuda" in measures._SEARCHES


@pytest.mark.slow
def test_the_search_of_a_device_needs_no_torchmetrics():
    program = """
import sys
sys.modules["torchmetrics"] = None
import fbeta
from fbeta import LabelStatistics, decode
from fbeta.decoding import measures
assert "torch" not in sys.modules
search = measures._SEARCHES["cuda"]
import torch
q = LabelStatistics(torch.full((1,), 0.2), torch.full((1, 1, 2), 0.4), [1])
labels, _ = search(q.form, 1.0, measures.Goal(None, 0, 2, 2))
assert labels.tolist() == decode(q).tolist()
assert measures._SEARCHES["cuda"] is not search  # that of fbeta.nn has taken its place
"""
    with child("-W", "ignore", "-c", program, timeout=120) as process:
        assert process.wait() == 0


def test_what_is_refused():
    q = F.joint_statistics(torch.zeros(2, 5), 2, 2)
    for match, options in {
        "min_labels is 3": {"min_labels": 3},
        "min_labels must not be above": {"min_labels": 2, "max_labels": 1},
        "beta": {"beta": -1.0},
    }.items():
        with pytest.raises(ValueError, match=match):
            decode(q, **options)
        with pytest.raises(ValueError, match=match):
            decode(q, **{"beta": torch.tensor([1.0, 2.0]), **options})
    with pytest.raises(ValueError, match="logits must have shape"):
        F.decode_cardinality(torch.zeros(2, 5), 2, 1)


class Whole(torch.nn.Module):
    """From features to label sets, with beta and the limits as inputs."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x, beta, low, high, mask=None):
        options = {"min_labels": low, "max_labels": high, "label_mask": mask}
        return self.head.decode(self.head(x), beta, **options)


HEADS = pytest.mark.parametrize("kind", [JointHead, CardinalityHead])


def inputs(device="cpu", n=12):
    x = torch.randn(n, 4, device=device)
    beta = torch.tensor(1.5, dtype=torch.float64, device=device)
    return x, beta, torch.tensor(1, device=device), torch.tensor(3, device=device)


@HEADS
@pytest.mark.slow
def test_compiled_whole(kind, device):
    module = Whole(kind(4, 6, (1, 2, 4))).to(device)
    compiled = torch.compile(module, fullgraph=True, backend=BACKENDS[device.type])
    given_inputs = inputs(device)
    with torch.no_grad():
        assert torch.equal(compiled(*given_inputs), module(*given_inputs))


@HEADS
@pytest.mark.filterwarnings("ignore")  # of the tracer
def test_tracing_is_refused(kind):
    with pytest.raises(RuntimeError, match="use torch"):
        torch.jit.trace(Whole(kind(4, 6, (1, 2, 4))), inputs())


@HEADS
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize("masked", [False, True])
def test_onnx_runtime_finds_the_same_sets(kind, masked, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    names, rows = ["x", "beta", "low", "high", "mask"][: 4 + masked], {0: torch.export.Dim("n")}

    def draw(n):
        return *inputs(n=n), *([torch.arange(6) < 2 + torch.arange(n)[:, None] % 4] * masked)

    module = Whole(kind(4, 6, (1, 2, 4))).eval()
    program = torch.onnx.export(
        module, draw(12), dynamo=True, verbose=False, input_names=names,
        dynamic_shapes=(rows, None, None, None, rows)[: 4 + masked],
    )  # fmt: skip
    program.save(tmp_path / "whole.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "whole.onnx")
    for n in (12, 30, 0):
        feeds = dict(zip(names, draw(n), strict=True))
        (found,) = session.run(None, {name: value.numpy() for name, value in feeds.items()})
        np.testing.assert_array_equal(found, module(*feeds.values()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
@HEADS
# PyTorch says that this mode is a prototype
@pytest.mark.filterwarnings("ignore:.*[Ss]ynchronization debug mode:UserWarning")
def test_nothing_waits_for_the_device(kind):
    """Scores of a cardinality head are inspected once, so its eager decode waits once."""
    module = Whole(kind(4, 6, (1, 2, 4))).cuda()
    given_inputs = inputs("cuda")
    labels = torch.ones(12, 6, device="cuda")
    labels[:, 2:] = 0
    module(*given_inputs)
    module.head.loss(module.head(given_inputs[0]), labels, check=False).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        if kind is JointHead:
            module(*given_inputs)
            module.head.decode(module.head(given_inputs[0]), 2.0, max_labels=3)
        module.head.loss(module.head(given_inputs[0]), labels, check=False).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
