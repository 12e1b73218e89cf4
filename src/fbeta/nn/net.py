"""Networks as scikit-learn estimators: any body, one of the heads, the exact decode."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from fbeta._array import optional_import
from fbeta._validation import check_choice, check_count, check_number
from fbeta.estimators.base import views
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Learner, Names, Weight
from fbeta.nn.modules import CardinalityHead, JointHead
from fbeta.statistics.codes import JointCode

__all__ = ["FBetaNet"]

HEADS = {"cardinality": CardinalityHead, "joint": JointHead}
# rows that are predicted at once
ROWS = 4096


class Network(nn.Module):
    """A body and a head."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.body(X))
        return logits


@dataclass(frozen=True)
class NetModel:
    """Networks whose statistics are averaged."""

    networks: list[Network]
    epochs: list[int]
    device: str

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the mean of the statistics, as the components of the code: (n, 1 + K s)."""
        parts = [self._code(X[start : start + ROWS]) for start in range(0, X.shape[0] or 1, ROWS)]
        return np.concatenate(parts)

    def _code(self, X: Any) -> NDArray[np.float64]:
        rows = torch.from_numpy(_single(X)).to(self.device)
        total: Any = 0.0
        with torch.no_grad():
            for network in self.networks:
                q = network.eval().head.statistics(network(rows))  # type: ignore[operator]
                code = torch.cat([q.empty[:, None], q.joint.flatten(1)], dim=1)
                total = total + code.double()
        out: NDArray[np.float64] = (total / len(self.networks)).cpu().numpy()
        return out


@dataclass(frozen=True)
class NetCode(JointCode):
    """The paper's code, for a model that takes the labels themselves as its targets."""

    def targets(self, Y: Indicator) -> NetTargets:
        """Return the labels, and the sizes that they have."""
        return NetTargets(Y, tuple(self.cardinalities.tolist()))


@dataclass(frozen=True)
class NetTargets:
    """Targets of :class:`NetCode`."""

    labels: Indicator
    cardinalities: tuple[int, ...]


@dataclass(frozen=True)
class NetLearner(Learner):
    """Networks that differ in their seeds; the fields are those of :class:`FBetaNet`."""

    body: Any
    head: str
    hidden: int
    dropout: float
    n_seeds: int
    random_state: Any
    schedule: dict[str, Any]

    def fit(
        self, X: Any, targets: NetTargets, weight: Weight, alpha: Any = None, name: Names = str
    ) -> NetModel:
        """Train a network for each seed."""
        optional_import("skorch", "torch", "FBetaNet")
        from fbeta.nn.training import Schedule, train

        plan = Schedule(**self.schedule)
        X, Y = _single(X), targets.labels.toarray().astype(np.float32)
        random = check_random_state(self.random_state)
        networks, epochs = [], []
        on_device = torch.device(plan.device)
        for seed in random.randint(2**31 - 1, size=self.n_seeds):
            # the state of PyTorch's generators is given back
            devices = [on_device] if on_device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(int(seed))
                network = self._make(X.shape[1], Y.shape[1], targets.cardinalities)
                epochs.append(train(network, X, Y, weight, plan, int(seed)))
            networks.append(network.eval())
        return NetModel(networks, epochs, plan.device)

    def _make(self, d: int, s: int, cardinalities: tuple[int, ...]) -> Network:
        """Make an untrained network."""
        if self.body is None:
            body: nn.Module = two_layers(d, self.hidden, self.dropout)
        elif isinstance(self.body, nn.Module):
            body = deepcopy(self.body)
        else:
            body = self.body(d)
        parameter = next(body.parameters(), None)
        device = None if parameter is None else parameter.device
        with torch.no_grad():
            width = body.eval()(torch.zeros(1, d, device=device)).shape[-1]
        return Network(body.train(), HEADS[self.head](width, s, cardinalities))


@dataclass(eq=False, repr=False)
class FBetaNet(StatisticsClassifier):
    """A neural network that is optimal for the F_beta-measure.

    Any body with a head of this library, trained by AdamW until the F_beta of held-out rows, after
    the exact decode, no longer rises; the statistics of several seeds are averaged and decoded
    once. Scale the features first.

    Parameters
    ----------
    body : Module or callable, optional
        Takes features of shape (n, d), single precision, and returns (n, width). A module is
        copied for each seed, with the weights that it has; a callable is called with d for each
        seed and returns a module. Two layers with ReLU and dropout by default.
    beta : float > 0
        The measure to be optimal for; it decides when to stop, and the networks serve every
        other.
    head : {"cardinality", "joint"}
        The cardinality model, or the paper's surrogate.
    hidden : int
        Width of the two layers.
    dropout : float in [0, 1)
        After each of the two layers.
    lr, weight_decay : float
        Of AdamW.
    batch_size, max_epochs : int
        Rows in a step; most passes.
    patience : int
        Passes without a better F_beta of the held-out rows after which to stop. With few rows a
        pass has few steps, and F_beta rises late: give it time.
    validation_fraction : float in [0, 1)
        Share of the rows that is held out; with 0, or too few rows for it, all ``max_epochs`` are
        run.
    n_seeds : int
        Networks to be averaged.
    device : str
        Where to train and to predict, such as ``"cuda"``.
    random_state : int, RandomState or None
        For weights, splits and the order of the rows.
    verbose : int
        Whether skorch prints a line for each epoch.

    Attributes
    ----------
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.
    networks_ : list of Module
        The trained networks, each with a ``body`` and a ``head``.
    n_epochs_ : list of int
        After how many epochs each was best.

    Notes
    -----
    A sparse X is made dense.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]] * 5
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]] * 5
    >>> clf = FBetaNet(hidden=8, lr=0.1, dropout=0.0, random_state=0).fit(X, Y)
    >>> clf.predict([[0.0], [3.0]])
    [['sea'], ['sea', 'sky']]
    """

    body: nn.Module | Callable[[int], nn.Module] | None = None
    beta: float = 1.0
    _: KW_ONLY
    head: str = "cardinality"
    hidden: int = 256
    dropout: float = 0.4
    lr: float = 1e-3
    weight_decay: float = 1e-2
    batch_size: int = 32
    max_epochs: int = 200
    patience: int = 20
    validation_fraction: float = 0.15
    n_seeds: int = 1
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    networks_, n_epochs_ = views("_model", "networks", "epochs")

    def _make_code(self, Y: Indicator) -> NetCode:
        return NetCode.of(Y)  # type: ignore[return-value]

    def _make_learner(self) -> NetLearner:
        check_choice("head", self.head, tuple(HEADS))
        for name in ("hidden", "batch_size", "max_epochs", "patience", "n_seeds"):
            check_count(name, getattr(self, name))
        check_number("lr", self.lr, strict=True)
        check_number("weight_decay", self.weight_decay)
        for name in ("dropout", "validation_fraction"):
            if check_number(name, getattr(self, name)) >= 1:
                raise ValueError(f"{name} must be below 1, got {getattr(self, name)!r}")
        names = ("beta", "lr", "weight_decay", "batch_size", "max_epochs", "patience",
                 "validation_fraction", "device", "verbose")  # fmt: skip
        schedule = {name: getattr(self, name) for name in names}
        return NetLearner(
            self.body, self.head, self.hidden, self.dropout, self.n_seeds, self.random_state,
            schedule,
        )  # fmt: skip


def two_layers(d: int, hidden: int, dropout: float) -> nn.Sequential:
    """Return two layers with ReLU and dropout.

    Examples
    --------
    >>> two_layers(3, 8, 0.5)(torch.zeros(2, 3)).shape
    torch.Size([2, 8])
    """
    layers: list[nn.Module] = []
    for width in (d, hidden):
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def _single(X: Any) -> NDArray[np.float32]:
    """Return features as a dense array in single precision."""
    dense = X.toarray() if sp.issparse(X) else X
    return np.ascontiguousarray(dense, dtype=np.float32)
