"""The experiment on networks: every method runs, results resume, the rivals' losses are right."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the experiment needs the extra torch")
pytest.importorskip("skorch", reason="the experiment needs the extra torch")

from fbeta.datasets import CalibratedLaw, Dataset, join_split  # noqa: E402
from fbeta.experiments.cells import Cell, Record, ResultStore, grid, run_cells  # noqa: E402
from fbeta.experiments.networks import (  # noqa: E402
    CutHead,
    asymmetric_loss,
    binary_loss,
    compute_network,
    soft_f1_loss,
)
from fbeta.experiments.tables import NETWORKS, network_rows  # noqa: E402

SHORT = {"batch": 128, "epochs": 12, "patience": 12}


@pytest.fixture(scope="module")
def data():
    law = CalibratedLaw(n_labels=3, n_features=10, random_state=0)
    parts = []
    for n, seed in ((600, 1), (400, 2)):
        sample = law.sample(n, random_state=seed)
        parts.append(Dataset(sample.X, sample.Y, ("a", "b", "c"), name="toy"))
    return join_split(*parts)


@pytest.mark.slow
def test_every_network_runs_and_the_decode_pays(data, tmp_path):
    cells = grid("networks", ["toy"], list(NETWORKS), [0], **SHORT)
    records, _, failures = run_cells(
        cells, lambda cell: compute_network(cell, data), ResultStore(tmp_path)
    )
    assert failures == {}
    head, *rows = network_rows(records)
    scores = {row[1]: row[3] for row in rows}
    assert list(scores) == list(NETWORKS)
    assert head[3] == "mean F_1"
    for ours in ("joint", "cardinality"):
        assert scores[ours] > scores["bce-half"]
    assert run_cells(cells, lambda cell: 1 / 0, ResultStore(tmp_path))[1] == 0


def test_seeds_differ_and_repeat(data):
    short = {"batch": 64, "epochs": 6, "patience": 6}
    first, same, other = (
        compute_network(Cell("networks", "toy", "bce-half", {"seed": s, **short}), data)
        for s in (0, 0, 1)
    )
    assert first == same != other
    cells = [Cell("networks", "yeast", "joint", {"seed": seed}) for seed in (0, 1)]
    records = [Record(cell, {"score": 0.5 + i / 10}, 1.0, "", {}) for i, cell in enumerate(cells)]
    assert network_rows(records)[1:] == [["yeast", "joint", 2, 0.55, pytest.approx(0.05)]]
    assert network_rows([])[1:] == []


def test_losses_of_rivals():
    """Against plain loops over rows and labels."""
    z = np.array([[0.3, -2.0, 4.0], [-1.0, 0.0, 0.5]])
    Y = np.array([[1, 0, 1], [0, 0, 1]])
    p = 1 / (1 + np.exp(-z))
    soft, hard, asymmetric = [], [], []
    for q, y in zip(p, Y, strict=True):
        soft.append(1 - 2 * sum(a * b for a, b in zip(q, y, strict=True)) / (sum(q) + sum(y)))
        hard.append(sum(-np.log(a if b else 1 - a) for a, b in zip(q, y, strict=True)))
        low = [max(a - 0.05, 0) for a in q]
        asymmetric.append(
            sum(
                -np.log(a) if b else -(m**4) * np.log(1 - m)
                for a, b, m in zip(q, y, low, strict=True)
            )
        )
    logits, target = torch.tensor(z), torch.tensor(Y, dtype=torch.float64)
    losses = ((soft_f1_loss, soft), (binary_loss, hard), (asymmetric_loss, asymmetric))
    for loss, expected in losses:
        head = CutHead(2, 3, loss)
        np.testing.assert_allclose(head.loss(logits, target, "none"), expected, rtol=1e-6)
        assert head.loss(logits, target).item() == pytest.approx(np.mean(expected), rel=1e-6)


def test_the_threshold_is_the_best():
    head = CutHead(2, 3)
    logits = torch.tensor([[-1.0, -3.0, -3.0], [-1.0, -1.0, -3.0]])
    head.tune(logits, torch.tensor([[1.0, 0, 0], [1, 1, 0]]))
    assert head.decode(logits).tolist() == [[1, 0, 0], [1, 1, 0]]


def test_command(tmp_path, capsys, mulan):
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    from fbeta.cli import main

    capsys.readouterr()
    arguments = [
        "reproduce",
        "networks",
        "--data",
        mulan,
        "--datasets",
        "yeast",
        "--seeds",
        1,
        "--methods",
        "bce-half,cardinality",
        "--epochs",
        1,
        "-o",
        tmp_path,
    ]
    assert main([*map(str, arguments), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["network"] for row in found["rows"]] == ["bce-half", "cardinality"]
    assert (tmp_path / "networks.csv").read_text().startswith("data set,network,seeds")
    assert main([*map(str, arguments[:-4]), "--methods", "deep", "-o", str(tmp_path)]) == 2
