"""A fitted decoder as a module finds the sets of NumPy's, on any device and exported."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")

from fbeta import FBetaDecoder  # noqa: E402
from fbeta.nn import DecoderHead  # noqa: E402


def draw(inputs, n=300, s=6, seed=0, empty=True):
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
    X, Y = draw(inputs, empty=empty)
    decoder = FBetaDecoder(2.0, inputs=inputs).fit(X, Y)
    head = DecoderHead(decoder).to(device)
    X, _ = draw(inputs, seed=1)
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
    mask = torch.ones(6, dtype=torch.bool, device=device)
    mask[2] = False
    assert not head.decode(logits, 5.0, label_mask=mask)[:, 2].any()


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
    X, Y = draw(inputs)
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
