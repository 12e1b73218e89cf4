"""The law of a cardinality model on tensors: its likelihood and its expectations.

``p(y) = exp(sum_j y_j z_j + v_|y|) / Z``, as in :mod:`fbeta.statistics.cardinality_law`, whose
operations serve any finite numbers; a tree of products serves most rows faster.
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
MIN_LAW, MAX_LOGIT = {torch.float64: 1e-280, torch.float32: 1e-30}, 1e4
MAX_SINGLE_SPREAD = 24.0  # of the scores of a row that single precision is tried for


def expectations(
    logits: Tensor, sizes: Sequence[int], target: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``-ln P(y)``, (n,), ``ln Z``, (n,), and expected labels and sizes, (n, s + 1 + K).

    ``logits`` are (n, s + 1 + K). Labels y, (n, s), are 0/1, all 0 by default; the loss of another
    size is infinite. On the host, logits in single precision are served in that, the rows for which
    it does not suffice in double precision, and those for which products do not suffice by NumPy.
    """
    dtype, s = widest(logits.device), logits.shape[1] - 1 - len(sizes)
    z = logits.detach()
    y = torch.zeros_like(z[:, :s]) if target is None else target.detach()
    if is_tracing() or logits.device.type != "cpu":
        return _careful_expectations(torch, sizes, z.to(dtype), y.to(dtype))
    if z.dtype != dtype and _spread(z[:, :s].T).median() >= MAX_SINGLE_SPREAD:
        loss, log_partition, means = expectations(z.to(dtype), sizes, y.to(dtype))
        return loss, log_partition, means.to(z.dtype)
    *found, accurate = _tree_expectations(sizes, z, y)
    if not bool(accurate.all()):
        rows = torch.nonzero(~accurate)[:, 0]
        wide, own = z[rows].to(dtype), y[rows].to(dtype)
        exact: Sequence[Any]
        if z.dtype != dtype:
            exact = expectations(wide, sizes, own)
        else:
            exact = map_rows(
                np,
                lambda at: _careful_expectations(np, sizes, wide[at].numpy(), own[at].numpy()),
                row_tasks((np, None), len(rows), _row_bytes(s, sizes)),
            )
        for part, right in zip(found, exact, strict=True):
            part[rows] = torch.as_tensor(right).to(part.dtype)
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
    largest, s = max(sizes, default=0), target.shape[1]
    levels, log_partition, weights, law, accurate = _grow_tree(sizes, logits[:, :s], logits[:, s:])
    below = levels[-1].shape[0] - len(weights)
    mean = levels[0][1, :s] * _pull_back(levels, pad(weights, (0, 0, 0, below)))[:s]
    number = target.sum(1).to(torch.int64).clamp(min=0)
    own = _by_size(torch, logits[:, s:].T, sizes).gather(0, number.clamp(max=largest)[None])[0]
    score = (target * logits[:, :s]).sum(1, dtype=torch.float64) + own
    loss = torch.where(number <= largest, (log_partition - score).clamp(min=0.0), torch.inf)
    means = torch.cat([mean.clamp_(max=1.0), law[[0, *sizes]].to(mean.dtype)]).T.contiguous()
    return loss, log_partition, means, accurate


def _grow_tree(
    sizes: Sequence[int], scores: Tensor, potentials: Tensor
) -> tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor]:
    """Return products over labels, ``ln Z``, weights and law of the sizes, and which are accurate.

    Shapes: ``scores`` (n, s); ``ln Z`` and accuracy (n,), weights and law (1 + largest, n).
    """
    # a constant c added to all scores, and c k taken from the potential of each size k, leave the
    # law as it is: for about half the largest size of independent labels P(k labels) is in range
    largest, z = max(sizes, default=0), scores.T.contiguous()
    shift = _find_shift(z.float(), max(largest, 1) / 2)
    x = z + shift.to(z.dtype)
    narrow = torch.ones_like(shift, dtype=torch.bool)
    if z.dtype == torch.float32:
        narrow = _spread(z) < MAX_SINGLE_SPREAD
        if not bool(narrow.all()):
            x = torch.where(narrow, x, 0.0)  # numbers that underflow are slow
    first = x.new_empty((2, *x.shape))
    torch.sigmoid(x, out=first[1])
    torch.sigmoid(x.neg_(), out=first[0])
    levels = product_tree(first, largest)
    products = levels[-1][: largest + 1, 0].double()
    k = torch.arange(largest + 1, dtype=torch.float64, device=z.device)[:, None]
    log_weights = _by_size(torch, potentials.T.double(), sizes) - shift.double() * k
    finite = torch.nan_to_num(potentials, neginf=0.0)
    size = torch.maximum(z.abs().amax(0), finite.abs().amax(1))
    accurate = (products.amin(0) > MIN_LAW[z.dtype]) & (size < MAX_LOGIT) & narrow
    log_sizes = log_weights + torch.log(products)
    log_total = torch.logsumexp(log_sizes, 0)
    # where they are not accurate weights may overflow; the first product is P(no labels)
    weights = torch.exp(log_weights - log_total).to(z.dtype)
    log_partition = log_total - torch.log(products[0])
    return levels, log_partition, weights, torch.exp(log_sizes - log_total), accurate


def _spread(scores: Tensor) -> Tensor:
    """Return the largest difference of the scores of each row, (s, n) -> (n,)."""
    return scores.amax(0) - scores.amin(0)


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
        out = _zeros(length, a, b)
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
        siblings = _siblings(level)
        others = multiply(_parents(others, siblings), siblings, largest).flatten(1, 2)
    return others


def _pull_back(levels: list[Tensor], weights: Tensor) -> Tensor:
    """Return the derivatives of ``sum_k weights_k P(k labels)`` in the single labels, (nodes, n).

    All levels but the first are taken off the list, which frees their memory.
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
    """Return ``sum_i a_i b_{c + i}`` for c below a length: the transpose of :func:`multiply`."""
    out = _zeros(length, a, b)
    for i, factor in enumerate(a.unbind()[: b.shape[0]]):
        width = min(length, b.shape[0] - i)
        part = out if width == length else out[:width]
        part.addcmul_(factor, b[i : i + width])
    return out


def _siblings(level: Tensor) -> Tensor:
    """Return for each node the other one of its pair, of shape (1 + degree, 2, pairs, n)."""
    degree, nodes, n = level.shape
    return level.reshape(degree, 2, nodes // 2, n).flip(1)


def _parents(values: Tensor, siblings: Tensor) -> Tensor:
    """Return the values of the pairs, for both nodes, without that of a factor of 1."""
    return values[:, None, : siblings.shape[2]]


def _in_place(a: Tensor) -> bool:
    """Tell whether a loop over the powers is better than one operation with a larger memory."""
    return a.device.type == "cpu" and not torch.compiler.is_compiling()


def _zeros(length: int, a: Tensor, b: Tensor) -> Tensor:
    shape: torch.Size = torch.broadcast_shapes(a.shape[1:], b.shape[1:])  # type: ignore[no-untyped-call]
    return a.new_zeros((length, *shape))
