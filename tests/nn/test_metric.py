"""The metric equals the library's score, in batches, in two processes and at the edges."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")
pytest.importorskip("torchmetrics", reason="the metric needs the extra torch")

from fbeta import fbeta_score  # noqa: E402
from fbeta.nn import FBetaScore  # noqa: E402

from ..children import child  # noqa: E402


def draw(n=50, s=4, seed=0):
    rng = np.random.default_rng(seed)
    Y, predicted = (rng.random((n, s)) < 0.3 for _ in range(2))
    Y[:3] = predicted[:2] = False
    return predicted, Y


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 1e200, 1e-200])
def test_batches_make_the_score(beta, device):
    predicted, Y = draw()
    score = FBetaScore(beta).to(device)
    for rows in np.array_split(np.arange(len(Y)), 3):
        score.update(
            torch.tensor(predicted[rows], device=device),
            torch.tensor(Y[rows].astype(int), device=device),
        )
    assert score.compute().item() == pytest.approx(fbeta_score(Y, predicted, beta), rel=1e-6)
    score.reset()
    empty = torch.zeros(2, 3, device=device)
    score.update(empty, empty)
    assert score.compute().item() == 1.0


def test_forward_gives_the_batch():
    predicted, Y = (torch.tensor(part) for part in draw())
    score = FBetaScore()
    assert score(predicted, Y) == score.compute()


def test_collections_keep_betas_apart():
    torchmetrics = pytest.importorskip("torchmetrics")
    both = torchmetrics.MetricCollection({"f1": FBetaScore(1.0), "f2": FBetaScore(2.0)})
    perfect, (predicted, Y) = torch.tensor([[1, 0]]), (torch.tensor(part) for part in draw())
    both.update(perfect, perfect)
    both.update(predicted[:, :2], Y[:, :2])
    found = both.compute()
    assert found["f1"] != found["f2"]


def test_floats_are_probabilities_or_logits(device):
    target = torch.tensor([[1, 0, 0, 1, 0, 0]], device=device)
    p = torch.tensor([[0.9, 0.1, 0.2, 0.8, 0.1, 0.1]], device=device)
    for preds in (p, torch.logit(p), p.half(), target.float()):
        score = FBetaScore().to(device)
        score.update(preds, target)
        assert score.compute() == 1.0
    strict = FBetaScore(threshold=0.85).to(device)
    strict.update(p, target)
    assert strict.compute().item() == pytest.approx(2 / 3)


def test_what_is_not_a_label_set_is_refused():
    good, bad = torch.tensor([[1, 0], [0, 1]]), torch.tensor([[1, 0], [0, 2]])
    for what, pair in {"target": (good, bad), "preds": (bad, good)}.items():
        with pytest.raises(ValueError, match=f"row 1 of {what}: values must be 0 or 1"):
            FBetaScore().update(*pair)
        FBetaScore(validate_args=False).update(*pair)


def test_predictions_that_are_nan_are_refused(device):
    target = torch.tensor([[1, 0], [0, 1]], device=device)
    p = torch.tensor([[0.9, 0.1], [torch.nan, 0.8]], device=device)
    for preds in (p, torch.logit(p), p.half()):
        with pytest.raises(ValueError, match="row 1 of preds: values must not be NaN"):
            FBetaScore().to(device).update(preds, target)
        FBetaScore(validate_args=False).to(device).update(preds, target)
    certain = FBetaScore().to(device)
    certain.update(torch.logit(target.float()), target)  # infinite logits
    assert certain.compute() == 1.0


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        FBetaScore().update(torch.zeros(2, 3), torch.zeros(2, 4))


PROCESS = """
import json, sys
import torch
import torch.distributed as dist
from fbeta.nn import FBetaScore
rank, file, data = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
score = FBetaScore(beta=2.0)
# the parts differ in size: a mean of means would be wrong
rows = slice(0, 10) if rank == 0 else slice(10, None)
score.update(*(torch.tensor(part[rows]) for part in data))
print(score.compute().item(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_add_up(tmp_path):
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    predicted, Y = draw()
    arguments = (tmp_path / "meeting", json.dumps([predicted.tolist(), Y.tolist()]))
    with child("-c", PROCESS, 0, *arguments) as first, child("-c", PROCESS, 1, *arguments) as other:
        found = [float(process.stdout.read()) for process in (first, other)]
    assert found == pytest.approx([fbeta_score(Y, predicted, 2.0)] * 2, rel=1e-6)
