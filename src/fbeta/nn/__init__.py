"""PyTorch: losses, heads, the exact decode on the device, a metric and an estimator.

It needs the extra ``fbeta[torch]``; nothing else of the library imports it.
"""

from typing import Any

from fbeta._array import optional_import

optional_import("torch", "torch", "fbeta.nn")

from fbeta.nn import functional  # noqa: E402
from fbeta.nn.functional import Statistics, decode  # noqa: E402
from fbeta.nn.heads import (  # noqa: E402
    CardinalityHead,
    CardinalityLoss,
    DecoderHead,
    JointHead,
    JointLoss,
)
from fbeta.nn.net import FBetaNet  # noqa: E402

__all__ = [
    "CardinalityHead",
    "CardinalityLoss",
    "DecoderHead",
    "FBetaNet",
    "FBetaScore",
    "JointHead",
    "JointLoss",
    "Statistics",
    "decode",
    "functional",
]


def __getattr__(name: str) -> Any:
    """Import the metric when it is asked for: nothing else here needs torchmetrics."""
    if name == "FBetaScore":
        from fbeta.nn.metric import FBetaScore

        return FBetaScore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
