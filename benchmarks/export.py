"""Graphs written by hand against those that PyTorch traces: ``python -m benchmarks.export``.

A linear model of 30 features, 1,000 rows, one thread of onnxruntime, the best of some runs. It
needs the extras ``onnx`` and ``torch``, onnxruntime and onnxscript.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from fbeta import CardinalityClassifier, FBetaClassifier
from fbeta.nn import functional
from fbeta.rivals import BinaryRelevance
from fbeta.storage.onnx_export import to_onnx

ROWS, FEATURES, REPEATS = 1000, 30, 7
MODELS = {
    "cardinality": CardinalityClassifier(max_iter=3),
    "joint": FBetaClassifier(max_iter=3),
    "independent": BinaryRelevance(decode="independent", max_iter=3),
}


class Traced(torch.nn.Module):
    """A linear layer and the decode of its outputs, in double precision."""

    def __init__(self, kind: str, s: int, sizes: int) -> None:
        super().__init__()
        outputs = {"cardinality": s + 1 + sizes, "joint": 1 + s * sizes, "independent": s}[kind]
        self.kind, self.s, self.sizes = kind, s, sizes
        self.scores = torch.nn.Linear(FEATURES, outputs, dtype=torch.float64)

    def forward(self, X: Any) -> Any:
        """Return label sets and their expected F_1."""
        u = self.scores(X)
        if self.kind == "cardinality":
            return functional.decode_cardinality(u, self.s, self.sizes, return_expected=True)
        if self.kind == "joint":
            u = functional.joint_statistics(u, self.s, self.sizes)
        return functional.decode(u, return_expected=True)


def draw_labels(rng: np.random.Generator, s: int, sizes: int) -> Any:
    """Draw rows with 1 to ``sizes`` labels, every size among them."""
    size = 1 + np.arange(ROWS) % sizes
    rank = np.argsort(np.argsort(rng.random((ROWS, s)), axis=1), axis=1)
    return (rank < size[:, None]).astype(np.int8)


def milliseconds(path: Path, X: Any) -> float:
    """Return the best time of a graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options)
    name, times = session.get_inputs()[0].name, []
    for _ in range(REPEATS):
        start = time.perf_counter()
        session.run(None, {name: X})
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print("| labels, sizes | model | by hand: bytes, ms | traced: bytes, ms |")
    print("| --- | --- | --- | --- |")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES))
    for s, sizes in ((14, 8), (100, 15)):
        Y = draw_labels(rng, s, sizes)
        for kind, model in MODELS.items():
            with tempfile.TemporaryDirectory() as folder:
                ours, traced = Path(folder) / "ours.onnx", Path(folder) / "traced.onnx"
                ours.write_bytes(to_onnx(model.fit(X, Y)).SerializeToString())
                module, example = Traced(kind, s, sizes).eval(), (torch.as_tensor(X),)
                torch.onnx.export(module, example, dynamo=True, verbose=False).save(traced)
                cells = [f"{p.stat().st_size:,}, {milliseconds(p, X):.0f}" for p in (ours, traced)]
            print(f"| {s}, {sizes} | {kind} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
