"""The law of a cardinality model on tensors: its likelihood and its expectations.

``p(y) = exp(sum_j y_j z_j + v_|y|) / Z``, as in :mod:`fbeta.statistics.cardinality_law`, whose
operations serve any finite numbers; compiled sweeps, and products on devices, serve most faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from fbeta._array import Array
from fbeta._threads import map_rows, row_tasks
from fbeta.linear.cardinality import Cardinality
from fbeta.nn._inputs import is_tracing, size_tensor, widest
from fbeta.statistics.cardinality_law import (
    expected_labels,
    given_number,
    law_of_sizes,
    log_likelihood,
)
from fbeta.statistics.conditional_bernoulli import INFINITE_LOG_ODDS

SHIFT_STEPS, MAX_FACTOR = 3, 1e30  # of the search for the shift of scores, which need not be exact
# what products of probabilities are accurate for: the least P(k labels), and the largest logit
MIN_LAW, MAX_LOGIT = 1e-280, 1e4


def expectations(
    logits: Tensor, sizes: Sequence[int], target: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``-ln P(y)``, (n,), ``ln Z``, (n,), and expected labels and sizes, (n, s + 1 + K).

    ``logits`` are (n, s + 1 + K). Labels y, (n, s), are 0/1, all 0 by default; the loss of another
    size is infinite. On the host compiled sweeps serve the rows whose numbers are in their range.
    """
    z, s = logits.detach().to(widest(logits.device)), logits.shape[1] - 1 - len(sizes)
    y = torch.zeros_like(z[:, :s]) if target is None else target.detach()
    if is_tracing() or logits.device.type != "cpu":
        return _careful_expectations(torch, sizes, z, y.to(z.dtype))
    log_partition, means = _sweep(z, sizes)
    largest, number = max(sizes, default=0), y.sum(1).to(torch.int64).clamp(min=0)
    own = _by_size(torch, z[:, s:].T, sizes).gather(0, number.clamp(max=largest)[None])[0]
    score = (y * z[:, :s]).sum(1) + own
    loss = torch.where(number <= largest, (log_partition - score).clamp(min=0.0), torch.inf)
    scale = torch.nan_to_num(logits.detach(), nan=torch.nan, neginf=0.0).abs_().amax(1)
    found = loss, log_partition, means
    rows = torch.nonzero(~(torch.isfinite(log_partition) & (scale < MAX_LOGIT)))[:, 0]
    if len(rows):
        wide, labels = z[rows].numpy(), y[rows].to(z.dtype).numpy()
        exact = map_rows(
            np,
            lambda at: _careful_expectations(np, sizes, wide[at], labels[at]),
            row_tasks((np, None), len(rows), _row_bytes(s, sizes)),
        )
        for part, right in zip(found, exact, strict=True):
            part[rows] = torch.from_numpy(right)
    return found


def _sweep(logits: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return ``ln Z``, (n,), NaN where it is not known, and expected labels and sizes, compiled."""
    n, width = logits.shape
    s = width - 1 - len(sizes)
    log_partition, kept = np.full(n, np.nan), np.empty((n, width + 2 * s + len(sizes) + 1))
    law = Cardinality(s, np.array([0, *sizes]))
    law.sweep("evaluate", logits.numpy(), log_partition, kept)
    return torch.from_numpy(log_partition), torch.from_numpy(kept[:, -width:])


def _careful_expectations(
    xp: Any, sizes: Sequence[int], logits: Array, target: Array
) -> tuple[Array, Array, Array]:
    """Return as :func:`expectations`, at any finite logits."""
    s = target.shape[1]
    descending, order = sort_scores(logits[:, :s])
    law = law_of_sizes(xp, descending, _by_size(xp, logits[:, s:].T, sizes))
    loss = -log_likelihood(xp, descending, _gather(target, order).T, law)
    mean = expected_labels(xp, descending, law, traced=xp is not np)
    back = np.argsort(order, axis=1) if xp is np else torch.argsort(order, dim=1)
    marginals = xp.clip(_gather(mean.T, back), 0.0, 1.0)
    z = law.probabilities(xp)
    own = xp.stack([z[k, :] for k in (0, *sizes)], axis=1)
    return xp.clip(loss, 0.0, None), law.log_partition, xp.concat([marginals, own], axis=1)


def _find_shift(scores: Tensor, number: float) -> Tensor:
    """Return what to add to scores, (s, n), for about so many independent labels: (n,)."""
    # Newton's method, from below, for a factor f of the odds w with sum_j min(f w_j, 1) = number
    top = scores.amax(0)
    odds = (scores - top).exp_()
    factor = number / odds.sum(0)
    for _ in range(SHIFT_STEPS):
        share = (odds * factor).clamp_(max=1.0)
        total, uncertain = share.sum(0), share.frac_().sum(0)
        left = number - (total - uncertain)
        factor = factor * left.clamp(min=number / 8) / uncertain.clamp(min=1e-30)
    return torch.log(factor.clamp(max=MAX_FACTOR)) - top


def leave_one_out(logits: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return ``P(|y| = k)``, 0 included, and ``P(|y| = k, y_j = 1)``, with gradients.

    Shapes: ``logits`` (n, s + 1 + K); returns (1 + K, n), (K, s, n).
    """
    z, s = logits.to(widest(logits.device)), logits.shape[1] - 1 - len(sizes)
    descending, order = sort_scores(z[:, :s])
    probabilities, joint = sorted_joint(descending, z[:, s:], sizes)
    back = torch.argsort(order, dim=1).T
    return probabilities, joint.gather(1, back.expand(joint.shape))


def sorted_joint(
    descending: Tensor, potentials: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return as :func:`leave_one_out` for scores of shape (s, n) in falling order."""
    law = law_of_sizes(torch, descending, _by_size(torch, potentials.T, sizes))
    z = law.probabilities(torch)
    conditional = given_number(torch, descending, law, traced=True)
    joint = descending.new_zeros((len(sizes), *descending.shape))
    for _, q in conditional.joint(descending, max(1, *sizes)) if sizes else ():
        joint = joint + torch.stack([q[:, k - 1, :] for k in sizes])
    return torch.stack([z[k] for k in (0, *sizes)]), joint


def joint_by_tree(
    descending: Tensor, potentials: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return as :func:`sorted_joint`, by a tree of products if all rows are accurate: one wait."""
    if descending.dtype != torch.float64:
        return sorted_joint(descending, potentials, sizes)
    # a constant c added to all scores, and c k taken from the potential of each size k, leave the
    # law as it is: for about half the largest size of independent labels P(k labels) is in range
    largest, s, z = max(sizes, default=0), len(descending), descending.contiguous()
    shift = _find_shift(z.float(), max(largest, 1) / 2).double()
    levels = product_tree(torch.sigmoid(torch.stack([-z - shift, z + shift])), largest)
    products = levels[-1][: largest + 1, 0]
    k = torch.arange(largest + 1, dtype=z.dtype, device=z.device)[:, None]
    log_weights = _by_size(torch, potentials.T, sizes) - shift * k
    finite = torch.nan_to_num(potentials, nan=torch.nan, neginf=0.0)
    scale = torch.maximum(z.abs().amax(0), finite.abs().amax(1))
    if not bool(((products.amin(0) > MIN_LAW) & (scale < MAX_LOGIT)).all()):
        return sorted_joint(descending, potentials, sizes)
    log_sizes = log_weights + torch.log(products)
    log_total, own = torch.logsumexp(log_sizes, 0), size_tensor((0, *sizes), z.device)
    weights = torch.exp(log_weights - log_total)[own]
    others = without_each(levels, max(largest - 1, 0))[:, :s]
    joint = weights[1:, None] * others[own[1:] - 1] * levels[0][1, :s]
    return torch.exp(log_sizes - log_total)[own], joint


def logits_and_sizes(
    logits: Tensor, sizes: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log-odds, (n, s), and the law of the number, as ``LabelStatistics.from_logits`` takes.

    ``logits`` are (n, s + 1 + K) on the host; the law is of shape (n, 1 + largest).
    """
    z, s = logits.detach().double().numpy(), logits.shape[1] - 1 - len(sizes)

    def work(rows: slice) -> tuple[Array]:
        descending, own = sort_scores(z[rows, :s])[0], _by_size(np, z[rows, s:].T, sizes)
        law = law_of_sizes(np, descending, own, only_sizes=True)
        return (np.ascontiguousarray(law.probabilities(np).T),)

    tasks = row_tasks((np, None), len(z), _row_bytes(s, sizes))
    return z[:, :s], map_rows(np, work, tasks)[0]


def _row_bytes(s: int, sizes: Sequence[int]) -> int:
    return 32 * (s + max(sizes, default=0))


def sort_scores(scores: Array) -> tuple[Array, Array]:
    """Return scores (n, s), finite and in falling order, (s, n), and where they were, (n, s)."""
    scores = finite_scores(scores)
    if isinstance(scores, Tensor):
        values, order = scores.sort(1, descending=True)
        return values.T, order
    places = np.argsort(-scores, axis=1)
    return np.ascontiguousarray(_gather(scores, places).T), places


def finite_scores(scores: Array) -> Array:
    """Return scores with finite ones beyond all others in place of infinite ones."""
    # not clamp, which the exporter to ONNX fuses wrongly with a permutation
    where = torch.where if isinstance(scores, Tensor) else np.where
    scores = where(scores < -INFINITE_LOG_ODDS, -INFINITE_LOG_ODDS, scores)
    return where(scores > INFINITE_LOG_ODDS, INFINITE_LOG_ODDS, scores)


def _gather(values: Array, places: Array) -> Array:
    """Return the numbers of each row at the places given for it."""
    if isinstance(values, Tensor):
        return values.gather(1, places)
    return np.take_along_axis(values, places, axis=1)


def _by_size(xp: Any, values: Array, sizes: Sequence[int]) -> Array:
    """Return potentials for 0 and some sizes as potentials for 0, 1, ..., -inf for the others."""
    if len(sizes) == max(sizes, default=0):
        return values
    place = {k: i for i, k in enumerate((0, *sizes))}
    none = xp.full_like(values[0, :], -xp.inf)
    rows = [values[place[k], :] if k in place else none for k in range(max(sizes) + 1)]
    return xp.stack(rows, axis=0)


def product_tree(first: Tensor, largest: int) -> list[Tensor]:
    """Return the products of ``absent + present x`` over ever more labels, all in the last.

    ``first`` are these two numbers for each label, (2, s, n). The coefficients of the last are
    ``P(k labels)``. Only sums of non-negative numbers occur, so that nothing cancels. Shapes of the
    products: (1 + degree, nodes, n).
    """
    levels = [first]
    while levels[-1].shape[1] > 1:
        level = levels[-1]
        if level.shape[1] % 2:  # the last node is the polynomial 1
            one = [torch.ones_like(level[:1, :1]), torch.zeros_like(level[1:, :1])]
            level = levels[-1] = torch.cat([level, torch.cat(one)], dim=1)
        half = level.shape[1] // 2
        levels.append(multiply(level[:, :half], level[:, half:], largest))
    return levels


def multiply(a: Tensor, b: Tensor, largest: int) -> Tensor:
    """Return the products of pairs of polynomials, (1 + degree, ...), up to the largest power."""
    if a.shape[0] > b.shape[0]:
        a, b = b, a
    length = min(a.shape[0] + b.shape[0] - 2, largest) + 1
    if _in_place(a):
        shape: Any = torch.broadcast_shapes(a.shape[1:], b.shape[1:])  # type: ignore[no-untyped-call]
        out = a.new_zeros((length, *shape))
        for i, factor in enumerate(a.unbind()[:length]):
            width = min(b.shape[0], length - i)
            out[i : i + width].addcmul_(factor, b if width == b.shape[0] else b[:width])
        return out
    before = a.shape[0] - 1
    after = max(0, length - b.shape[0])
    widened = pad(b, (0, 0) * (b.ndim - 1) + (before, after))
    powers = torch.arange(length, device=b.device)[:, None]
    places = before + powers - torch.arange(a.shape[0], device=b.device)
    return (widened[places] * a).sum(1)


def without_each(levels: list[Tensor], largest: int) -> Tensor:
    """Return, for every label, the product over all the others: (1 + degree, nodes, n)."""
    others = torch.ones_like(levels[-1][:1])
    for level in reversed(levels[:-1]):
        pairs = level.reshape(len(level), 2, -1, level.shape[2]).flip(1)  # siblings of the nodes
        others = multiply(others[:, None, : pairs.shape[2]], pairs, largest).flatten(1, 2)
    return others


def _in_place(a: Tensor) -> bool:
    """Tell whether a loop over the powers is better than one operation with a larger memory."""
    return a.device.type == "cpu" and not torch.compiler.is_compiling()
