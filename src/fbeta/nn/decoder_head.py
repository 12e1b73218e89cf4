"""A fitted :class:`fbeta.FBetaDecoder` as a module: from frozen logits to label sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fbeta.estimators.decoder import LARGEST_LOGIT, FBetaDecoder
from fbeta.nn._sizes import read_logits, widest
from fbeta.nn._targets import forbid
from fbeta.nn._tracing import is_exporting
from fbeta.nn.decoding import Limit, decode_cardinality
from fbeta.nn.statistics import Statistics, cardinality_statistics

__all__ = ["DecoderHead"]


class DecoderHead(nn.Module):
    """The decoder of a network that was trained with BCE, on the device of its logits.

    It recalibrates the logits as the fitted decoder does, and finds the same label sets. It has no
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
    >>> bool((head.decode(torch.tensor(logits)).numpy() == decoder.predict(logits)).all())
    True
    >>> DecoderHead(head.state_dict()).cardinalities == head.cardinalities
    True
    """

    knots: Tensor
    values: Tensor
    slope: Tensor
    offset: Tensor
    potential: Tensor
    settings: Tensor

    def __init__(self, decoder: FBetaDecoder | Mapping[str, Tensor]) -> None:
        super().__init__()
        state = decoder if isinstance(decoder, Mapping) else _state_of(decoder)
        for name in ("knots", "values", "slope", "offset", "potential", "sizes", "settings"):
            self.register_buffer(name, state[name].detach().clone())
        self.n_labels = len(self.slope)
        self.cardinalities = tuple(k for k in state["sizes"].tolist() if k > 0)
        self.beta, floor = state["settings"][:2].tolist()
        # logits have no least probability
        self.probability_floor = floor if floor > 0 else None

    def forward(self, outputs: Tensor) -> Tensor:
        """Return logits of the cardinality model, (..., s + 1 + K), for outputs of the network.

        ``outputs`` has shape (..., s): logits, or probabilities if the decoder was fitted to these.
        """
        x = read_logits(outputs, self.n_labels, "one for each label")
        dtype = widest(x.device)
        x, knots, values = x.to(dtype), self.knots.to(dtype), self.values.to(dtype)
        if self.probability_floor is None:
            z = x.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
        else:
            z = torch.logit(x.clamp(self.probability_floor, 1 - self.probability_floor))
        inner, within = knots[1:-1], z.clamp(min=knots[0]).minimum(knots[-1])
        place = (
            (within[..., None] > inner).sum(-1)
            if is_exporting()
            else torch.bucketize(within.contiguous(), inner.contiguous())
        )
        share = (within - knots[place]) / (knots[place + 1] - knots[place])
        curve = values[place] + share * (values[place + 1] - values[place])
        _, _, rest, centre, scale = self.settings.to(dtype).unbind()
        scores = curve * self.slope.to(dtype) + rest * (z - curve) + self.offset.to(dtype)
        number = (torch.sigmoid(curve).sum(-1, keepdim=True) - centre) / scale
        potentials = self.potential[0].to(dtype) + number * self.potential[1].to(dtype)
        if potentials.shape[-1] == len(self.cardinalities):
            never = torch.full_like(potentials[..., :1], -torch.inf)
            potentials = torch.cat([never, potentials], dim=-1)
        return torch.cat([scores, potentials], dim=-1)

    def statistics(self, outputs: Tensor, label_mask: Tensor | None = None) -> Statistics:
        """Return the label statistics of outputs of shape (n, s)."""
        logits = self._masked(outputs, label_mask)
        return cardinality_statistics(logits, self.n_labels, self.cardinalities)

    def _masked(self, outputs: Tensor, label_mask: Tensor | None) -> Tensor:
        logits: Tensor = self(outputs)
        if label_mask is None:
            return logits
        return forbid(logits, label_mask.expand(outputs.shape), self.cardinalities)

    def decode(
        self,
        outputs: Tensor,
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
        outputs : tensor of shape (..., s)
            Of the network, as in ``fit`` of the decoder.
        beta, min_labels, max_labels, label_mask, return_expected
            As for :meth:`fbeta.nn.CardinalityHead.decode`; beta is that of the decoder by default.

        Returns
        -------
        labels : int8 tensor of shape (..., s)
        expected : tensor of shape (...,)
            Only with ``return_expected=True``.
        """
        logits = self._masked(outputs, label_mask)
        labels, expected = decode_cardinality(
            logits.reshape(-1, logits.shape[-1]),
            self.n_labels,
            self.cardinalities,
            self.beta if beta is None else beta,
            min_labels=min_labels,
            max_labels=max_labels,
            return_expected=True,
        )
        labels = labels.reshape(outputs.shape)
        return (labels, expected.reshape(outputs.shape[:-1])) if return_expected else labels

    def extra_repr(self) -> str:
        """Say how many labels there are, and which sizes."""
        return f"n_labels={self.n_labels}, cardinalities={self.cardinalities}"


def _state_of(decoder: FBetaDecoder) -> dict[str, Tensor]:
    """Return the numbers of a fitted decoder."""
    check_is_fitted(decoder)
    model = decoder.model
    floor = decoder.probability_floor if decoder.inputs_ == "probabilities" else 0.0
    settings = [decoder.beta, floor, model.rest, model.centre, model.scale]
    names = ("knots", "values", "slope", "offset", "potential", "sizes")
    arrays = {name: torch.from_numpy(np.array(getattr(model, name))) for name in names}
    return {**arrays, "settings": torch.tensor(settings, dtype=torch.float64)}
