"""A fitted :class:`fbeta.FBetaDecoder` as a module: from frozen logits to label sets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fbeta.estimators.decoder import LARGEST_LOGIT, FBetaDecoder
from fbeta.nn._sizes import read_logits, widest
from fbeta.nn._tracing import is_exporting
from fbeta.nn.modules import CardinalityHead

__all__ = ["DecoderHead"]


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

    knots: Tensor
    values: Tensor
    slope: Tensor
    offset: Tensor
    potential: Tensor
    settings: Tensor

    def __init__(self, decoder: FBetaDecoder | Mapping[str, Tensor]) -> None:
        nn.Module.__init__(self)  # there is no linear layer
        state = decoder if isinstance(decoder, Mapping) else _state_of(decoder)
        for name in ("knots", "values", "slope", "offset", "potential", "sizes", "settings"):
            self.register_buffer(name, state[name].detach().clone())
        self.n_labels, self.options = len(self.slope), {}
        self.cardinalities = tuple(state["sizes"].tolist())
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


def _state_of(decoder: FBetaDecoder) -> dict[str, Tensor]:
    """Return the numbers of a fitted decoder."""
    check_is_fitted(decoder)
    model = decoder.model
    floor = decoder.probability_floor if decoder.inputs_ == "probabilities" else 0.0
    settings = [decoder.beta, floor, model.rest, model.centre, model.scale]
    names = ("knots", "values", "slope", "offset", "potential", "sizes")
    arrays = {name: torch.from_numpy(np.array(getattr(model, name))) for name in names}
    arrays["sizes"] = arrays["sizes"][arrays["sizes"] > 0]
    return {**arrays, "settings": torch.tensor(settings, dtype=torch.float64)}
