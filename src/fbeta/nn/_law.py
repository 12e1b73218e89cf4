"""The law of a cardinality model on tensors: its likelihood and its expectations.

``p(y) = exp(sum_j y_j z_j + v_|y|) / Z``, as in :mod:`fbeta.statistics.cardinality_law`, whose
operations serve any finite numbers; a tree of products serves most rows faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from fbeta._array import Array
from fbeta._threads import map_rows, row_tasks
from fbeta.nn._inputs import is_tracing, size_tensor, widest
from fbeta.statistics.cardinality_law import (
    expected_labels,
    given_number,
    law_of_sizes,
    log_likelihood,
)
from fbeta.statistics.conditional_bernoulli import INFINITE_LOG_ODDS

# halvings of the interval in which the shift of the scores is searched: it need not be exact
SHIFT_HALVINGS = 8
# what products of probabilities are accurate for: the least P(k labels), and the largest logit
MIN_LAW, MAX_LOGIT = 1e-280, 1e4
MAX_LOG_WEIGHT = 700.0  # the exponential of more overflows


def expectations(
    logits: Tensor, sizes: Sequence[int], target: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``-ln P(y)``, (n,), ``ln Z``, (n,), and expected labels and sizes, (n, s + 1 + K).

    ``logits`` are (n, s + 1 + K). Labels y, (n, s), are 0/1, all 0 by default; the loss of another
    size is infinite. On the host NumPy serves the rows for which products are not accurate.
    """
    dtype, s = widest(logits.device), logits.shape[1] - 1 - len(sizes)
    z = logits.detach().to(dtype)
    y = torch.zeros_like(z[:, :s]) if target is None else target.detach().to(dtype)
    if is_tracing() or logits.device.type != "cpu":
        return _careful_expectations(torch, sizes, z, y)
    *found, accurate = _tree_expectations(sizes, z, y)
    if not bool(accurate.all()):
        rows = torch.nonzero(~accurate)[:, 0]
        arrays = z[rows].numpy(), y[rows].numpy()
        exact = map_rows(
            np,
            lambda some: _careful_expectations(np, sizes, *(part[some] for part in arrays)),
            row_tasks((np, None), len(rows), _row_bytes(s, sizes)),
        )
        for part, right in zip(found, exact, strict=True):
            part[rows] = torch.from_numpy(right)
    loss, log_partition, means = found
    return loss, log_partition, means


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


def _tree_expectations(sizes: Sequence[int], logits: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """Return as :func:`expectations` by a tree of products, and where (n,) they are accurate."""
    largest, (n, s) = max(sizes, default=0), target.shape
    levels, log_partition, weights, law, accurate = _grow_tree(sizes, logits[:, :s], logits[:, s:])
    outside = torch.cat([weights, weights.new_zeros((levels[-1].shape[0] - len(weights), n))])
    mean = (levels[0][1, :s] * _pull_back(levels, outside)[:s]).clamp(max=1.0).T
    number = target.sum(1).to(torch.int64).clamp(min=0)
    own = _by_size(torch, logits[:, s:].T, sizes).gather(0, number.clamp(max=largest)[None])[0]
    loss = log_partition - (target * logits[:, :s]).sum(1) - own
    loss = torch.where(number <= largest, loss.clamp(min=0.0), torch.inf)
    return loss, log_partition, torch.cat([mean, law[[0, *sizes]].T], dim=1), accurate


def _grow_tree(
    sizes: Sequence[int], scores: Tensor, potentials: Tensor
) -> tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor]:
    """Return products over labels with the scores (n, s), and what they say of the sizes.

    These are ``ln Z``, (n,), for the sizes 0, 1, ... weights of the products, and probabilities,
    (1 + largest, n) each, and whether all that is accurate, (n,). A constant c added to all scores,
    and c k taken from the potential of each size k, leave the law as it is. So the scores are
    shifted until independent labels with these odds would be about half the largest size in
    number: for most logits ``P(k labels)`` of these is then in range.
    """
    largest = max(sizes, default=0)
    shift = _find_shift(scores, max(largest, 1) / 2)
    z = (scores + shift[:, None]).T.contiguous()
    levels = product_tree(torch.sigmoid(-z), torch.sigmoid(z), largest)
    products = levels[-1][: largest + 1, 0]
    k = torch.arange(largest + 1, dtype=z.dtype, device=z.device)[:, None]
    log_weights = _by_size(torch, potentials.T, sizes) - shift * k
    finite = torch.where(torch.isneginf(potentials), 0.0, potentials)
    size = torch.maximum(scores.abs().amax(1), finite.abs().amax(1))
    accurate = (products.amin(0) > MIN_LAW) & (size < MAX_LOGIT)
    log_sizes = log_weights + torch.log(products)
    log_total = torch.logsumexp(log_sizes, 0)
    weights = torch.exp((log_weights - log_total).clamp(max=MAX_LOG_WEIGHT))
    log_partition = log_total - logsigmoid(-z).sum(0)
    return levels, log_partition, weights, torch.exp(log_sizes - log_total), accurate


def _find_shift(scores: Tensor, number: float) -> Tensor:
    """Return what to add to scores, (n,), for about so many independent labels; not exactly."""
    share = number / scores.shape[1]
    logit = log(share) - log(1 - share) if share < 1 else 0.0
    z = scores.float()
    low, high = logit - z.amax(1), logit - z.amin(1)
    for _ in range(SHIFT_HALVINGS):
        middle = (low + high) / 2
        above = torch.sigmoid(z + middle[:, None]).sum(1) > number
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return ((low + high) / 2).to(scores.dtype)


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
    levels, _, weights, law, accurate = _grow_tree(sizes, descending.T, potentials)
    if not bool(accurate.all()):
        return sorted_joint(descending, potentials, sizes)
    s, own = len(descending), size_tensor((0, *sizes), descending.device)
    others = without_each(levels, max(max(sizes, default=0) - 1, 0))[:, :s]
    joint = weights[own][1:, None] * others[own[1:] - 1] * levels[0][1, :s]
    return law[own], joint


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
    """Return scores of shape (n, s) in falling order, (s, n), and where they were, (n, s).

    Infinite ones are replaced by finite ones beyond all others.
    """
    if isinstance(scores, Tensor):
        # not clamp, which the exporter to ONNX fuses wrongly with a permutation
        scores = torch.where(scores < -INFINITE_LOG_ODDS, -INFINITE_LOG_ODDS, scores)
        scores = torch.where(scores > INFINITE_LOG_ODDS, INFINITE_LOG_ODDS, scores)
        values, order = scores.sort(1, descending=True)
        return values.T, order
    scores = np.clip(scores, -INFINITE_LOG_ODDS, INFINITE_LOG_ODDS)
    places = np.argsort(-scores, axis=1)
    return np.ascontiguousarray(_gather(scores, places).T), places


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


def product_tree(absent: Tensor, present: Tensor, largest: int) -> list[Tensor]:
    """Return the products of ``absent + present x`` over ever more labels, all in the last.

    The coefficients of the last are ``P(k labels)``. Only sums of non-negative numbers occur, so
    that nothing cancels. Shapes: ``absent, present`` (s, n); returns (1 + degree, nodes, n).
    """
    levels = [torch.stack([absent, present])]
    while levels[-1].shape[1] > 1:
        level = levels[-1]
        if level.shape[1] % 2:  # the last node is the polynomial 1
            one = [torch.ones_like(level[:1, :1]), torch.zeros_like(level[1:, :1])]
            level = levels[-1] = torch.cat([level, torch.cat(one)], dim=1)
        half = level.shape[1] // 2
        levels.append(multiply(level[:, :half], level[:, half:], largest))
    return levels


def multiply(a: Tensor, b: Tensor, largest: int) -> Tensor:
    """Return the products of pairs of polynomials, without the powers above the largest.

    Shapes: ``a, b`` (1 + degree, ...); returns (1 + degree, ...).
    """
    if a.shape[0] > b.shape[0]:
        a, b = b, a
    length = min(a.shape[0] + b.shape[0] - 2, largest) + 1
    if _in_place(a):
        out = _zeros(length, a, b)
        for i in range(min(a.shape[0], length)):
            width = min(b.shape[0], length - i)
            out[i : i + width].addcmul_(a[i], b[:width])
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
        siblings = _siblings(level)
        others = multiply(_parents(others, siblings), siblings, largest).flatten(1, 2)
    return others


def _pull_back(levels: list[Tensor], weights: Tensor) -> Tensor:
    """Return the derivatives of ``sum_k weights_k P(k labels)`` in the single labels, on the host.

    Shapes: ``weights`` (1 + degree, n); returns (nodes, n). All levels but the first are taken off
    the list, which frees their memory.
    """
    outside = weights[:, None]
    if len(levels) == 1:
        return outside[1]
    levels.pop()
    while len(levels) > 1:
        siblings = _siblings(levels.pop())
        outside = _correlate(siblings, _parents(outside, siblings), len(siblings)).flatten(1, 2)
    siblings = _siblings(levels[0])
    return _correlate(siblings, _parents(outside, siblings)[1:], 1).flatten(0, 2)


def _correlate(a: Tensor, b: Tensor, length: int) -> Tensor:
    """Return ``sum_i a_i b_{c + i}`` for c below a length: the transpose of :func:`multiply`.

    Shapes: ``a, b`` (1 + degree, ...); returns (length, ...).
    """
    out = a[0] * b[:length] if b.shape[0] >= length else _zeros(length, a, b)
    for i in range(int(b.shape[0] >= length), min(a.shape[0], b.shape[0])):
        width = min(length, b.shape[0] - i)
        out[:width].addcmul_(a[i], b[i : i + width])
    return out


def _siblings(level: Tensor) -> Tensor:
    """Return for each node the other one of its pair, of shape (1 + degree, 2, pairs, n)."""
    return level.reshape(level.shape[0], 2, -1, level.shape[2]).flip(1)


def _parents(values: Tensor, siblings: Tensor) -> Tensor:
    """Return the values of the pairs, for both nodes, without that of a factor of 1."""
    return values[:, None, : siblings.shape[2]]


def _in_place(a: Tensor) -> bool:
    """Tell whether a loop over the powers is better than one operation with a larger memory."""
    return a.device.type == "cpu" and not torch.compiler.is_compiling()


def _zeros(length: int, a: Tensor, b: Tensor) -> Tensor:
    shape: torch.Size = torch.broadcast_shapes(a.shape[1:], b.shape[1:])  # type: ignore[no-untyped-call]
    return a.new_zeros((length, *shape))
