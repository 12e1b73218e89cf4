"""``fbeta export``: the graph predicts what the command line predicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from .toys import LABELS, TEST, TRAIN, Run, write_csv

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")
pytest.importorskip("onnx", reason="the export needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="graphs are run by onnxruntime")


@pytest.mark.parametrize("single", [False, True])
def test_the_graph_predicts_the_same(run: Run, model: Path, tmp_path: Path, single: bool) -> None:
    graph, test = tmp_path / "model.onnx", write_csv(tmp_path / "test.csv", TEST[0])
    code, out, err = run("export", model, "-o", graph, *(["--float32"] if single else []))
    assert (code, out, err) == (0, "", f"wrote {graph}: 3 labels\n")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options)
    names = session.get_modelmeta().custom_metadata_map
    assert json.loads(names["label_names"]) == [f"is_{name}" for name in LABELS]
    assert json.loads(names["feature_names"]) == [f"x{j}" for j in range(4)]
    for beta in (1.0, 3.0):
        _, out, _ = run("predict", model, test, "--beta", beta, "--json")
        predicted = [[row[f"is_{name}"] for name in LABELS] for row in json.loads(out)]
        X = TEST[0].astype(np.float32 if single else np.float64)
        (labels,) = session.run(["labels"], {"X": X, "beta": np.array(beta)})
        assert labels.tolist() == predicted


def test_what_has_no_graph(run: Run, tmp_path: Path) -> None:
    train, model = write_csv(tmp_path / "train.csv", *TRAIN), tmp_path / "limo.skops"
    assert run("fit", train, "--label-prefix", "is_", "--method", "limo", "-o", model)[0] == 0
    code, _, err = run("export", model, "-o", tmp_path / "model.onnx")
    assert code == 2
    assert "Limo cannot be exported" in err
    assert not (tmp_path / "model.onnx").exists()
    assert run("export", tmp_path / "nothing.skops", "-o", tmp_path / "model.onnx")[0] == 2
