"""Networks as scikit-learn estimators: any body, one of the heads, the exact decode."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from fbeta._array import (
    check_beta,
    check_choice,
    check_count,
    check_number,
    is_tensor,
    optional_import,
    to_numpy,
)
from fbeta.estimators.base import all_or_nothing, views
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight, drop_weightless
from fbeta.nn._inputs import Statistics
from fbeta.nn.decoding import decode
from fbeta.nn.heads import CardinalityHead, JointHead
from fbeta.nn.training import make_trainer, train, two_layers, with_weights
from fbeta.statistics.codes import JointCode

HEADS = {"cardinality": CardinalityHead, "joint": JointHead}
PREDICTED_ROWS = 4096  # rows that are predicted at once


class NetworkModel(nn.Module):
    """Trained networks, each a body and a head, whose statistics are averaged."""

    def __init__(
        self,
        networks: Iterable[nn.Module],
        input_type: str,
        trainers: Sequence[Any] = (),  # of skorch, where partial_fit may go on
        epochs: Sequence[int] = (),
        history: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks).eval()
        self.input_type, self.trainers = input_type, trainers
        self.epochs, self.history = epochs, history

    def statistics(self, X: Tensor) -> Statistics:
        """Return the mean of the statistics of all networks."""
        every = [network.head.statistics(network(X)) for network in self.networks]  # type: ignore[operator,union-attr]
        empty, joint = (
            torch.stack([part.double() for part in parts]).mean(0)
            for parts in zip(*(q[:2] for q in every), strict=True)
        )
        return Statistics(empty, joint, every[0].cardinalities)

    def forward(self, X: Tensor, beta: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, ...]:
        """Return label sets of features, their expected F_beta, and marginals."""
        q = self.statistics(X)
        labels, value = decode(q, beta, min_labels=low, max_labels=high, return_expected=True)
        return labels, value.clamp(max=1.0), q.marginals().clamp(max=1.0)

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the mean of the statistics, as the components of the code: (n, 1 + K s)."""
        parts, device = [], next(self.parameters()).device
        for start in range(0, X.shape[0] or 1, PREDICTED_ROWS):
            rows = torch.from_numpy(_dense(X[start : start + PREDICTED_ROWS], self.input_type))
            with torch.no_grad():
                q = self.statistics(rows.to(device))
            parts.append(torch.cat([q.empty[:, None], q.joint.flatten(1)], dim=1).cpu().numpy())
        return np.concatenate(parts)


@dataclass(eq=False, repr=False)
class FBetaNet(StatisticsClassifier):
    """A neural network that is optimal for the F_beta-measure.

    Any body with a head of this library, trained by AdamW until the F_beta of held-out rows, after
    the exact decode, no longer rises; the statistics of several seeds are averaged and decoded
    once. Scale the features first.

    Parameters
    ----------
    body : Module or callable, optional
        Takes X as it is given to ``fit``, and returns (n, width). A module is copied for each seed,
        with the weights that it has; a callable is called with d, or with the shape of a row where
        that has several axes, for each seed and returns a module. Two layers with ReLU and dropout
        by default, for X of shape (n, d).
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
        Of AdamW. The learning rate is multiplied by 0.3 after a third of the patience without a
        better F_beta of the held-out rows, unless ``callbacks`` has a scheduler.
    batch_size : int or "auto"
        Rows in a step; "auto" makes about 60 steps of a pass, of 32 to 256 rows.
    max_epochs : int
        Most passes.
    patience : int
        Passes without a better F_beta of the held-out rows after which to stop. With few rows a
        pass has few steps, and F_beta rises late: give it time.
    validation_fraction : float in [0, 1)
        Share of the rows that is held out; with 0, or too few rows for it, all ``max_epochs`` are
        run.
    validation_data : tuple (X, y), optional
        Rows to be held out in place of a share of those in ``fit``.
    callbacks : list of skorch callbacks, optional
        Such as ``skorch.callbacks.LRScheduler``; copied for each seed.
    n_seeds : int
        Networks to be averaged.
    device : str
        Where to train and to predict, such as ``"cuda"``.
    input_type : {"float32", "int64", ...}
        Type of X that the body gets; "int64" for token numbers.
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
    history_ : list of skorch.history.History
        What each epoch of each network gave.

    Notes
    -----
    A sparse X is made dense. X may have more than two axes, such as images of shape (n, channels,
    height, width), and be a tensor.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]] * 5
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]] * 5
    >>> clf = FBetaNet(hidden=8, lr=0.1, dropout=0.0, random_state=0).fit(X, Y)
    >>> clf.predict([[0.0], [3.0]])
    [['sea'], ['sea', 'sky']]
    """

    body: nn.Module | Callable[..., nn.Module] | None = None
    beta: float = 1.0
    _: KW_ONLY
    head: str = "cardinality"
    hidden: int = 512
    dropout: float = 0.2
    lr: float = 1e-3
    weight_decay: float = 1e-2
    batch_size: int | str = "auto"
    max_epochs: int = 200
    patience: int = 20
    validation_fraction: float = 0.15
    validation_data: Any = None
    callbacks: Any = None
    n_seeds: int = 1
    device: str = "cpu"
    input_type: str = "float32"
    random_state: Any = None
    verbose: int = 0

    networks_ = property(lambda self: list(self._model.networks))
    n_epochs_, history_ = views("_model", "epochs", "history")

    def _validate_X(self, X: Any, *, reset: bool, weight: Weight = None) -> Any:
        X = to_numpy(X) if is_tensor(X) else X
        kind = [np.float64, np.float32] if self.input_type.startswith("float") else "numeric"
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=kind, allow_nd=True)
        if reset:
            self._row_shape = X.shape[1:]
        if X.shape[1:] != self._row_shape:
            raise ValueError(f"rows of X have shape {X.shape[1:]}, in fit {self._row_shape}")
        return X

    def _make_code(self, Y: Indicator) -> JointCode:
        return JointCode.of(Y)

    def _check_parameters(self) -> None:
        check_choice("head", self.head, tuple(HEADS))
        for name in ("hidden", "max_epochs", "patience", "n_seeds"):
            check_count(name, getattr(self, name))
        if self.batch_size != "auto":
            check_count("batch_size", self.batch_size)
        check_number("lr", self.lr, strict=True)
        check_number("weight_decay", self.weight_decay)
        for name in ("dropout", "validation_fraction"):
            if check_number(name, getattr(self, name)) >= 1:
                raise ValueError(f"{name} must be below 1, got {getattr(self, name)!r}")

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        self._check_parameters()
        code, held_out = self._make_code(Y), None
        if self.validation_data is not None:
            held_X, held_y = self.validation_data
            held_Y = self._label_form.read(held_y, "validation_data").toarray()
            held_X = _dense(self._read_features(held_X), self.input_type)
            held_out = (held_X, with_weights(held_Y, None))
        X, labels = _dense(X, self.input_type), Y.toarray().astype(np.float32)
        networks, runs = [], []
        for seed in self._seeds():
            with _seeded(seed, self.device):
                networks.append(self._make_network(code, X, labels))
                runs.append(train(self, networks[-1], X, labels, weight, seed, held_out))
        epochs, history = ([run[i] for run in runs] for i in (0, 1))
        self._code = code
        self._model = NetworkModel(networks, self.input_type, [], epochs, history)

    def _seeds(self) -> list[int]:
        random = check_random_state(self.random_state)
        return [int(seed) for seed in random.randint(2**31 - 1, size=self.n_seeds)]

    def _make_network(self, code: JointCode, X: NDArray[Any], Y: NDArray[Any]) -> nn.Module:
        """Return an untrained network, whose head starts at the frequencies in Y."""
        shape = X.shape[1:]
        if self.body is None:
            if len(shape) > 1:
                raise ValueError(f"rows of X have shape {shape}: give a body for them")
            body: nn.Module = two_layers(shape[0], self.hidden, self.dropout)
        elif isinstance(self.body, nn.Module):
            body = deepcopy(self.body)
        else:
            body = self.body(shape[0] if len(shape) == 1 else shape)
        parameter = next(body.parameters(), None)
        device = None if parameter is None else parameter.device
        with torch.no_grad():
            width = body.eval()(torch.from_numpy(X[:1]).to(device)).shape[-1]
        sizes = tuple(code.cardinalities.tolist())
        head = HEADS[self.head](width, Y.shape[1], sizes, overflow=True, check=False)
        head.start_at(torch.from_numpy(Y))
        return nn.Sequential(OrderedDict(body=body.train(), head=head))

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train for one pass over more rows; nothing is held out.

        The first call fixes the labels, and the sizes of label sets: those that it sees. Rows of
        other sizes count as random subsets of their labels, of the largest size below.

        Parameters
        ----------
        X : array-like or tensor of shape (n, ...)
        y, classes, sample_weight
            As for :meth:`fbeta.FBetaReduction.partial_fit`.
        """
        with all_or_nothing(self) as draft:
            draft._add_rows(X, y, classes, sample_weight)
        return self

    def _add_rows(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        first = not hasattr(self, "_model")
        rows = self._read_training(X, y, sample_weight, first=first, classes=classes)
        X, Y, weight = drop_weightless(*rows)
        if first:
            self._code = self._make_code(Y)
        X, labels = _dense(X, self.input_type), Y.toarray().astype(np.float32)
        self._check_parameters()
        trainers = [] if first else deepcopy(list(cast(NetworkModel, self._model).trainers))
        for at, seed in enumerate(self._seeds()):
            with _seeded(seed, self.device):
                if len(trainers) == at:
                    network = (
                        self._make_network(cast(JointCode, self._code), X, labels)
                        if first
                        else deepcopy(self.networks_[at])
                    )
                    trainers.append(make_trainer(self, network, len(X), None))
                trainers[at].partial_fit(X, with_weights(labels, weight), epochs=1)
        history = [trainer.history for trainer in trainers]
        own = trainers, [len(run) for run in history], history
        self._model = NetworkModel([t.module_ for t in trainers], self.input_type, *own)

    def to_onnx(self) -> Any:
        """Return the networks, the average of their statistics and the decode as an ONNX graph.

        Inputs and outputs are those of :func:`fbeta.storage.onnx_export.to_onnx`; X has the type
        ``input_type``.
        """
        check_is_fitted(self)
        onnx = optional_import("onnx", "onnx", "the export to ONNX")
        optional_import("onnxscript", "onnx", "the export of networks to ONNX")
        whole = NetworkModel(deepcopy(self.networks_), self.input_type).cpu()
        example = torch.zeros((2, *self._row_shape), dtype=getattr(torch, self.input_type))
        defaults = {
            "beta": torch.tensor(check_beta(self.beta), dtype=torch.float64),
            "min_labels": torch.tensor(0),
            "max_labels": torch.tensor(self.n_labels_),
        }
        program = torch.onnx.export(
            whole,
            (example, *defaults.values()),
            dynamo=True,
            verbose=False,
            input_names=["X", *defaults],
            output_names=["labels", "expected_fbeta", "probabilities"],
            dynamic_shapes=({0: torch.export.Dim("n")}, None, None, None),
        )
        model = program.model_proto  # type: ignore[union-attr]
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(value.numpy(), name) for name, value in defaults.items()
        )
        return model


def _dense(X: Any, input_type: str) -> NDArray[Any]:
    """Return X as a dense array of a type; raise where a type of integers cannot hold a number."""
    given = X.toarray() if sp.issparse(X) else X
    found = np.ascontiguousarray(given, dtype=input_type)
    if not input_type.startswith("float") and (found != given).any():
        raise ValueError(f"X has {given[found != given][0]}, which {input_type=} cannot hold")
    return found


@contextmanager
def _seeded(seed: int, device: str) -> Iterator[None]:
    """Seed PyTorch's generators, and give their state back at the end."""
    on_device = torch.device(device)
    with torch.random.fork_rng(devices=[on_device] if on_device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
