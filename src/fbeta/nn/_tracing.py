"""What is traced and what runs: the decode on the host, as one operation of a compiled graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fbeta.decoding.exact import decode
from fbeta.statistics.label_statistics import LabelStatistics


def is_exporting() -> bool:
    """Tell whether the operations are recorded for another runtime."""
    # PyTorch 2.6 knows the second only
    exporting = getattr(torch.compiler, "is_exporting", torch.onnx.is_in_onnx_export)
    return bool(exporting()) or torch.onnx.is_in_onnx_export()


def is_tracing() -> bool:
    """Tell whether the operations are recorded, and not carried out."""
    if torch._C._get_tracing_state() is not None and not is_exporting():
        raise RuntimeError(
            "torch.jit.trace would keep the label sets of the example: use torch.export"
        )
    return torch.compiler.is_compiling() or is_exporting()


def host_decode(
    statistics: LabelStatistics, beta: Any, min_labels: Any, max_labels: Any
) -> tuple[Tensor, Tensor]:
    """Decode statistics on the host; what is given as a tensor is cut to what is possible."""
    s = statistics.n_labels
    cut = isinstance(min_labels, Tensor) or isinstance(max_labels, Tensor)
    low, high = int(min_labels), None if max_labels is None else int(max_labels)
    if cut:
        low = min(max(low, 0), s)
        high = s if high is None else max(high, low)
    labels, expected = decode(
        statistics, float(beta), min_labels=low, max_labels=high, return_expected=True
    )
    return torch.from_numpy(labels), torch.from_numpy(expected)
