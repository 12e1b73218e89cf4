"""Losses and heads as modules: what to put at the end of a network in place of BCE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fbeta._array import check_count
from fbeta.estimators.decoder import LARGEST_LOGIT, FBetaDecoder
from fbeta.nn import _inputs
from fbeta.nn import functional as F
from fbeta.nn._inputs import Limit, Sizes, Statistics, widest
from fbeta.nn._law import logits_and_sizes
from fbeta.nn.decoding import least_labels

# arrays of a fitted decoder's model that a DecoderHead keeps
DECODER_NUMBERS = ("knots", "values", "slope", "offset", "potential")


class JointLoss(nn.Module):
    """The paper's surrogate, :func:`fbeta.nn.functional.joint_loss`, as a module.

    Parameters
    ----------
    cardinalities, reduction, **options
        Of every call: see :func:`fbeta.nn.functional.joint_loss`.

    Examples
    --------
    >>> import torch
    >>> round(JointLoss(2)(torch.zeros(1, 5), torch.tensor([[1, 0]])).item(), 4)
    3.4657
    """

    _function = staticmethod(F.joint_loss)

    def __init__(self, cardinalities: Sizes, reduction: str = "mean", **options: Any) -> None:
        super().__init__()
        self.cardinalities, self.reduction, self.options = cardinalities, reduction, options

    def forward(self, logits: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Return the loss of logits for labels of shape (..., s); options are of this call."""
        options = {"reduction": self.reduction, **self.options, **options}
        return self._function(logits, target, self.cardinalities, **options)

    def extra_repr(self) -> str:
        """Say which sizes the logits are for."""
        return f"cardinalities={self.cardinalities}, reduction={self.reduction!r}"


class CardinalityLoss(JointLoss):
    """The likelihood :func:`fbeta.nn.functional.cardinality_loss` as a module, with its options.

    Examples
    --------
    >>> import torch
    >>> round(CardinalityLoss(2)(torch.zeros(1, 5), torch.tensor([[1, 0]])).item(), 4)
    1.3863
    """

    _function = staticmethod(F.cardinality_loss)


class _Head(nn.Module):
    """A linear layer to logits, the loss of these, their statistics and the decode."""

    sizes: Tensor
    beta = 1.0  # of a decode that is not told another
    _joint: bool  # whether the logits are those of the paper's code
    _loss: Callable[..., Tensor]
    _statistics: Callable[..., Statistics]
    # logits of the frequencies of labels and sizes in Y, of shape (n_logits,)
    _initial_bias: Callable[[Tensor], Tensor]

    def __init__(
        self, in_features: int, n_labels: int, cardinalities: Sizes, **options: Any
    ) -> None:
        super().__init__()
        self.n_labels = check_count("n_labels", n_labels)
        self.cardinalities = _inputs.read_sizes(cardinalities, n_labels)
        self.options = options
        self.linear = nn.Linear(in_features, self.n_logits)
        self.register_buffer("sizes", torch.tensor(self.cardinalities, dtype=torch.int64))

    @classmethod
    def from_targets(
        cls, in_features: int, Y: Any, *, coverage: float = 0.999, **options: Any
    ) -> Self:
        """Make a head that, at features of 0, has the frequencies of labels and sizes in Y.

        Parameters
        ----------
        in_features : int
            Width of what comes in.
        Y : 0/1 tensor, array or sparse matrix of shape (n, s)
            Labels of the training rows.
        coverage : float in (0, 1]
            Share of the rows whose number of labels gets logits: the sizes are 1..K. Larger rows
            are taken as random subsets of their labels (``overflow=True``).
        **options
            Of the loss: see :mod:`fbeta.nn.functional`.
        """
        target = torch.as_tensor(Y.toarray() if sp.issparse(Y) else Y)
        if target.ndim != 2 or not len(target):
            raise ValueError(f"Y must have shape (n, s) with n > 0, got {tuple(target.shape)}")
        _inputs.check_rows(target, (), overflow=True, soft=False)
        count = target.to(torch.int64).sum(1).cpu().numpy()
        largest = int(np.quantile(count, coverage, method="higher"))
        head = cls(in_features, target.shape[1], max(1, largest), **{"overflow": True, **options})
        return head.start_at(target)

    @torch.no_grad()
    def start_at(self, Y: Tensor) -> Self:
        """Set the biases to the frequencies in labels Y, of shape (n, s), and return the head."""
        _inputs.check_rows(Y, (), overflow=True, soft=False)
        self.linear.bias.copy_(self._initial_bias(Y.detach().cpu().double()))
        return self

    @property
    def n_logits(self) -> int:
        """How many logits an instance has."""
        return _inputs.n_logits(self.n_labels, len(self.cardinalities), self._joint)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of features of shape (..., in_features)."""
        logits: Tensor = self.linear(features)
        return logits

    def loss(
        self, logits: Tensor, target: Tensor, reduction: str = "mean", **options: Any
    ) -> Tensor:
        """Return the loss of logits for labels of shape (..., s); options are of this call."""
        options = {"reduction": reduction, **self.options, **options}
        return self._loss(logits, target, self.cardinalities, **options)

    def statistics(self, logits: Tensor, label_mask: Tensor | None = None) -> Statistics:
        """Return the label statistics of logits of shape (n, n_logits)."""
        z = self._forbid(logits, label_mask)
        q = self._statistics(z, self.n_labels, self.cardinalities)
        if label_mask is None:
            return q
        allowed = label_mask.expand(z.shape[0], self.n_labels)[:, None]
        return q._replace(joint=torch.where(allowed, q.joint, 0.0))

    def _forbid(self, logits: Tensor, label_mask: Tensor | None) -> Tensor:
        """Return logits under which no other labels than those of a mask occur."""
        if label_mask is None:
            return logits
        z, sizes = _inputs.read_code(logits, self.n_labels, self.cardinalities, joint=self._joint)
        return _inputs.forbid(z, label_mask, sizes, joint=self._joint, lowest_logit=-torch.inf)

    def decode(
        self,
        logits: Tensor | Statistics,
        beta: float | Tensor | None = None,
        *,
        min_labels: Limit = 0,
        max_labels: Limit = None,
        label_mask: Tensor | None = None,
        return_expected: bool = False,
    ) -> Any:
        """Find the label set with the highest expected F_beta for each instance.

        Parameters
        ----------
        logits : tensor of shape (..., n_logits), or Statistics
        beta, min_labels, max_labels, return_expected
            As for :func:`fbeta.nn.functional.decode`; beta is 1 by default, and that of the decoder
            for :class:`DecoderHead`.
        label_mask : bool tensor that broadcasts to (..., s), optional
            Labels that may be predicted; only with logits. A row with fewer of them than
            ``min_labels`` gets all; where compiled, its expected value is that of more labels.

        Returns
        -------
        labels : int8 tensor of shape (..., s)
        expected : tensor of shape (...,)
            Only with ``return_expected=True``. The statistics of :class:`JointHead` are separate
            estimates, under which it may exceed 1: it is cut there.
        """
        given: Any = (self.beta if beta is None else beta, min_labels, max_labels)
        # of shape (...,) where each instance has its own
        beta, low, high = (p.reshape(-1) if isinstance(p, Tensor) and p.ndim else p for p in given)
        limits: dict[str, Any] = {"min_labels": low, "max_labels": high}
        if isinstance(logits, Tensor):
            leading = logits.shape[:-1]
            if label_mask is not None:
                label_mask = label_mask.expand(*leading, self.n_labels).flatten(0, -2)
                limits["min_labels"] = least_labels(low, label_mask)
            rows = logits.reshape(-1, logits.shape[-1])
            labels, expected = self._decode(rows, label_mask, beta, **limits)
            if label_mask is not None:
                labels = _inputs.only_allowed(labels, label_mask)
            labels, expected = labels.reshape(*leading, self.n_labels), expected.reshape(leading)
        else:
            labels, expected = F.decode(logits, beta, return_expected=True, **limits)
        return (labels, expected.clamp(max=1.0)) if return_expected else labels

    def _decode(self, logits: Tensor, label_mask: Tensor | None, beta: Any, **limits: Any) -> Any:
        """Return label sets, (n, s), and expected values, (n,), of logits (n, n_logits)."""
        q = self.statistics(logits, label_mask)
        return F.decode(q, beta, return_expected=True, **limits)

    def _load_from_state_dict(self, state: Any, prefix: str, *others: Any) -> None:
        """Refuse the weights of a head for other sizes; older states have no sizes."""
        errors, found = others[-1], state.get(f"{prefix}sizes", self.sizes)
        if found.tolist() != list(self.cardinalities):
            errors.append(
                f"{prefix}sizes: the state is of a head with cardinalities="
                f"{tuple(found.tolist())}, this one has {self.cardinalities}"
            )
        state[f"{prefix}sizes"] = self.sizes
        super()._load_from_state_dict(state, prefix, *others)

    def extra_repr(self) -> str:
        """Say how many labels there are, and which sizes."""
        return f"n_labels={self.n_labels}, cardinalities={self.cardinalities}"


class JointHead(_Head):
    """The last layer of a network for the paper's surrogate: ``1 + K s`` logits.

    Parameters
    ----------
    in_features : int
        Width of what comes in.
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        Sizes of label sets that get logits; a number K stands for 1..K.
    **options
        Of the loss, such as ``overflow=True``: see :mod:`fbeta.nn.functional`.

    Examples
    --------
    >>> import torch
    >>> head = JointHead(8, n_labels=5, cardinalities=3)
    >>> logits = head(torch.zeros(2, 8))
    >>> logits.shape, head.loss(logits, torch.zeros(2, 5)).shape
    (torch.Size([2, 16]), torch.Size([]))
    >>> head.decode(logits, beta=2.0).shape
    torch.Size([2, 5])
    """

    _joint = True
    _loss = staticmethod(F.joint_loss)
    _statistics = staticmethod(F.joint_statistics)

    def _initial_bias(self, Y: Tensor) -> Tensor:
        labels, law = _inputs.hard_moments(Y, self.cardinalities, Y.dtype)
        counts = [law[:, 0].sum()[None], (law[:, 1:].T @ labels).flatten()]
        return torch.logit((torch.cat(counts) + 0.5) / (len(Y) + 1))


class CardinalityHead(_Head):
    """The last layer of a network for the cardinality model: ``s + 1 + K`` logits.

    It has hardly more weights than a layer for BCE, and gives the law of whole label sets.

    Parameters
    ----------
    cardinalities : int or sequence of K int
        Sizes that label sets may have beside 0; a number K stands for 1..K.
    in_features, n_labels, **options
        As for :class:`JointHead`.

    Examples
    --------
    >>> import torch
    >>> head = CardinalityHead(8, n_labels=5, cardinalities=3)
    >>> logits = head(torch.zeros(2, 8))
    >>> logits.shape, head.statistics(logits).joint.shape
    (torch.Size([2, 9]), torch.Size([2, 3, 5]))

    With the sizes and frequencies of the training labels:

    >>> CardinalityHead.from_targets(8, torch.tensor([[1, 1, 0], [0, 1, 0]])).cardinalities
    (1, 2)
    """

    _joint = False
    _loss = staticmethod(F.cardinality_loss)
    _statistics = staticmethod(F.cardinality_statistics)

    def _initial_bias(self, Y: Tensor) -> Tensor:
        scores, sizes = torch.logit((Y.sum(0) + 0.5) / (len(Y) + 1)), self.cardinalities
        zeros = torch.zeros(1 + len(sizes), dtype=Y.dtype)
        independent = logits_and_sizes(torch.cat([scores, zeros])[None], sizes)[1]
        place = _inputs.place_sizes(Y, sizes)[1]
        seen = torch.bincount(place, minlength=len(zeros)) + 0.5
        # the law of the size is that of independent labels times the exponential of these
        known = torch.from_numpy(independent).to(Y.dtype)[0, [0, *sizes]]
        return torch.cat([scores, torch.log(seen / seen.sum()) - torch.log(known)])

    def _decode(self, logits: Tensor, label_mask: Tensor | None, beta: Any, **limits: Any) -> Any:
        z, limits = self._forbid(logits, label_mask), {"return_expected": True, **limits}
        return F.decode_cardinality(z, self.n_labels, self.cardinalities, beta, **limits)


class DecoderHead(CardinalityHead):
    """The decoder of a network that was trained with BCE, on the device of its logits.

    ``head(outputs)`` recalibrates the outputs of the network as the fitted decoder does, to logits
    of the cardinality model; ``head.decode(head(outputs))`` finds the same label sets. It has no
    parameters to train.

    Parameters
    ----------
    decoder : FBetaDecoder, or state_dict of a DecoderHead
        Fitted to the outputs of the network on rows that it was not trained on.

    Attributes
    ----------
    n_labels : int
    cardinalities : tuple of int
        Sizes that label sets may have beside 0.
    beta : float
        That of the decoder.

    Notes
    -----
    ``torch.export`` and ``torch.onnx.export`` take it, with beta and limits as inputs where they
    are tensors. It computes in double precision; ``module.half()`` would round its numbers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(200, 3)); Y = (rng.random((200, 3)) < 0.5).astype(int)
    >>> decoder = FBetaDecoder(inputs="logits").fit(logits, Y)
    >>> head = DecoderHead(decoder)
    >>> labels = head.decode(head(torch.tensor(logits)))
    >>> bool((labels.numpy() == decoder.predict(logits)).all())
    True
    >>> DecoderHead(head.state_dict()).cardinalities == head.cardinalities
    True
    """

    def __init__(self, decoder: FBetaDecoder | Mapping[str, Tensor]) -> None:
        nn.Module.__init__(self)  # there is no linear layer
        state: Any = decoder
        if isinstance(decoder, FBetaDecoder):
            check_is_fitted(decoder)
            model, of_logits = decoder.model, decoder.inputs_ != "probabilities"
            if model.list_length is not None:
                raise TypeError("decoder was fitted to sparse lists: expected one of dense scores")
            arrays = {name: np.array(getattr(model, name)) for name in DECODER_NUMBERS}
            arrays["sizes"] = model.sizes[model.sizes > 0]
            least = 0.0 if of_logits else decoder.probability_floor
            numbers = [decoder.beta, least, model.rest, model.centre, model.scale]
            arrays["settings"] = np.array(numbers)
            state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for name in (*DECODER_NUMBERS, "sizes", "settings"):
            self.register_buffer(name, state[name].detach().clone())
        self.n_labels, self.options = len(state["slope"]), {}
        self.cardinalities = tuple(state["sizes"].tolist())
        self._read_settings()

    def _read_settings(self) -> None:
        settings: Tensor = self.get_buffer("settings")
        self.beta, floor = settings[:2].tolist()
        # logits have no least probability
        self.probability_floor = floor if floor > 0 else None

    def _load_from_state_dict(self, state: Any, prefix: str, *others: Any) -> None:
        super()._load_from_state_dict(state, prefix, *others)
        self._read_settings()

    def forward(self, outputs: Tensor) -> Tensor:
        """Return logits of the cardinality model, (..., s + 1 + K), for outputs of the network.

        ``outputs`` has shape (..., s): logits, or probabilities if the decoder was fitted to these.
        Logits beyond 30 or -30, infinite ones too, are taken for these.
        """
        x = _inputs.read_logits(outputs, self.n_labels, "one for each label")
        x = x.to(widest(x.device))
        knots, values, slope, offset, potential, settings = (
            getattr(self, name).to(x.dtype) for name in (*DECODER_NUMBERS, "settings")
        )
        if self.probability_floor is None:
            z = x.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
        else:
            wrong = ~((x >= 0) & (x <= 1)).all(-1)
            _inputs.refuse_rows(x, "outputs", {"probabilities must be in [0, 1]": wrong})
            z = torch.logit(x.clamp(self.probability_floor, 1 - self.probability_floor))
        inner, within = knots[1:-1], z.clamp(min=knots[0]).minimum(knots[-1])
        if _inputs.is_exporting():  # sums over axis -1 of 0 rows are wrong in onnxruntime
            place = (within[..., None] > inner).sum(x.ndim)
        else:
            place = torch.bucketize(within.contiguous(), inner.contiguous())
        share = (within - knots[place]) / (knots[place + 1] - knots[place])
        curve = values[place] + share * (values[place + 1] - values[place])
        _, _, rest, centre, scale = settings.unbind()
        beyond = torch.where(rest < 0, (z - within).clamp(-1, 1), z - within)
        scores = curve * slope + rest * (within - curve + beyond) + offset
        number = (torch.sigmoid(curve).sum(x.ndim - 1, keepdim=True) - centre) / scale
        potentials = potential[0] + number * potential[1]
        if potentials.shape[-1] == len(self.cardinalities):
            never = torch.full_like(potentials[..., :1], -torch.inf)
            potentials = torch.cat([never, potentials], dim=-1)
        return torch.cat([scores, potentials], dim=-1)
