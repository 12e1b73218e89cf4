"""The law of a cardinality model on tensors: its likelihood and its expectations.

``p(y) = exp(sum_j y_j z_j + v_|y|) / Z`` for any finite scores z and potentials v, as in
:mod:`fbeta.statistics.cardinality_law`, whose operations are used here on tensors, without a
decision that depends on their numbers. On the host there is nothing to wait for: products of
probabilities serve most rows, and NumPy does the work for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from fbeta._array import Array
from fbeta._threads import map_rows, row_tasks
from fbeta.nn._polynomials import product_tree, pull_back, without_each
from fbeta.nn._sizes import size_tensor, widest
from fbeta.nn._tracing import is_tracing
from fbeta.statistics.cardinality_law import (
    expected_labels,
    given_number,
    law_of_sizes,
    log_likelihood,
)
from fbeta.statistics.conditional_bernoulli import INFINITE_LOG_ODDS

# halvings of the interval in which the move of the scores is looked for: it need not be exact
MOVE_HALVINGS = 8
# what products of probabilities are accurate for: the least P(k labels), and the largest logit
MIN_LAW, MAX_LOGIT = 1e-280, 1e4
MAX_LOG_WEIGHT = 700.0  # the exponential of more overflows


class Expectations(NamedTuple):
    """What the gradient of a cardinality model needs, of n instances, in double precision."""

    log_partition: Tensor  # (n,)
    marginals: Tensor  # (n, s)
    sizes: Tensor  # (n, 1 + K), of "no labels" and of the K sizes


def expectations(scores: Tensor, potentials: Tensor, sizes: Sequence[int]) -> Expectations:
    """Return the partition function and the expectations of a cardinality model.

    Shapes: ``scores`` (n, s), ``potentials`` (n, 1 + K).
    """
    return loss_and_expectations(scores, potentials, torch.zeros_like(scores), sizes)[1]


def loss_and_expectations(
    scores: Tensor, potentials: Tensor, target: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, Expectations]:
    """Return ``-ln P(y)`` of 0/1 labels of shape (n, s) too, infinite for another size."""
    dtype = widest(scores.device)
    parts = tuple(part.detach().to(dtype) for part in (scores, potentials, target))
    if is_tracing() or scores.device.type != "cpu":
        values = _expectations(torch, sizes, *parts)
        return values[0], Expectations(*values[1:])
    loss, found, accurate = _tree_expectations(sizes, *parts)
    if bool(accurate.all()):
        return loss, found
    rows = torch.nonzero(~accurate)[:, 0]
    arrays = [part[rows].numpy() for part in parts]
    tasks = row_tasks((np, None), len(rows), _row_bytes(scores.shape[1], sizes))
    exact = map_rows(np, lambda some: _expectations(np, sizes, *(a[some] for a in arrays)), tasks)
    for part, right in zip((loss, *found), exact, strict=True):
        part[rows] = torch.from_numpy(right)
    return loss, found


class _Tree(NamedTuple):
    """Products over the labels of n rows, and weights of the sizes k = 0, 1, ..., largest."""

    levels: list[Tensor]
    log_scale: Tensor  # (n,), what was taken out of the partition function
    log_weights: Tensor  # (1 + largest, n), by the potentials alone
    log_sizes: Tensor  # (1 + largest, n), under the model
    accurate: Tensor  # (n,), bool


def _grow_tree(sizes: Sequence[int], scores: Tensor, potentials: Tensor) -> _Tree:
    """Return the products over labels with the scores (n, s), in double precision.

    A constant c added to all scores, and c k taken from the potential of each size k, leave the law
    as it is. So the scores are moved until independent labels with these odds would be about half
    the largest size in number: for most logits ``P(k labels)`` of these is then in range.
    """
    largest = max(sizes, default=0)
    move = _find_move(scores, max(largest, 1) / 2)
    z = (scores + move[:, None]).T.contiguous()
    levels = product_tree(torch.sigmoid(-z), torch.sigmoid(z), largest)
    law = levels[-1][: largest + 1, 0]
    k = torch.arange(largest + 1, dtype=z.dtype, device=z.device)[:, None]
    log_weights = _by_size(torch, potentials.T, sizes) - move * k
    finite = torch.where(torch.isneginf(potentials), 0.0, potentials)
    size = torch.maximum(scores.abs().amax(1), finite.abs().amax(1))
    accurate = (law.amin(0) > MIN_LAW) & (size < MAX_LOGIT)
    log_scale = -logsigmoid(-z).sum(0)
    return _Tree(levels, log_scale, log_weights, log_weights + torch.log(law), accurate)


def _tree_expectations(
    sizes: Sequence[int], scores: Tensor, potentials: Tensor, target: Tensor
) -> tuple[Tensor, Expectations, Tensor]:
    """Return losses and expectations by a tree of products, and where (n,) they are accurate."""
    largest, (n, s) = max(sizes, default=0), scores.shape
    levels, log_scale, log_weights, log_sizes, accurate = _grow_tree(sizes, scores, potentials)
    log_total = torch.logsumexp(log_sizes, 0)
    weights = torch.exp((log_weights - log_total).clamp(max=MAX_LOG_WEIGHT))
    outside = torch.cat([weights, weights.new_zeros((levels[-1].shape[0] - len(weights), n))])
    mean = (levels[0][1, :s] * pull_back(levels, outside)[:s]).clamp(max=1.0).T
    log_partition = log_total + log_scale
    number = target.sum(1).to(torch.int64).clamp(min=0)
    own = _by_size(torch, potentials.T, sizes).gather(0, number.clamp(max=largest)[None])[0]
    loss = log_partition - (target * scores).sum(1) - own
    loss = torch.where(number <= largest, loss.clamp(min=0.0), torch.inf)
    of_sizes = torch.exp(log_sizes - log_total)[[0, *sizes]].T
    return loss, Expectations(log_partition, mean, of_sizes), accurate


def _find_move(scores: Tensor, number: float) -> Tensor:
    """Return what to add to scores, (n,), for about so many independent labels; not exactly."""
    share = number / scores.shape[1]
    logit = log(share) - log(1 - share) if share < 1 else 0.0
    z = scores.float()
    low, high = logit - z.amax(1), logit - z.amin(1)
    for _ in range(MOVE_HALVINGS):
        middle = (low + high) / 2
        above = torch.sigmoid(z + middle[:, None]).sum(1) > number
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return ((low + high) / 2).to(scores.dtype)


def _row_bytes(s: int, sizes: Sequence[int]) -> int:
    return 32 * (s + max(sizes, default=0))


def _expectations(
    xp: Any, sizes: Sequence[int], scores: Array, potentials: Array, target: Array
) -> tuple[Array, Array, Array, Array]:
    descending, order = sort_scores(scores)
    law = law_of_sizes(xp, descending, _by_size(xp, potentials.T, sizes))
    loss = -log_likelihood(xp, descending, _gather(target, order).T, law)
    mean = expected_labels(xp, descending, law, traced=xp is not np)
    back = np.argsort(order, axis=1) if xp is np else torch.argsort(order, dim=1)
    marginals = xp.clip(_gather(mean.T, back), 0.0, 1.0)
    z = law.probabilities(xp)
    own = xp.stack([z[k, :] for k in (0, *sizes)], axis=1)
    return xp.clip(loss, 0.0, None), law.log_partition, marginals, own


def leave_one_out(scores: Tensor, potentials: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Return ``P(|y| = k)``, 0 included, and ``P(|y| = k, y_j = 1)``, with gradients.

    Returns shape (1 + K, n), (K, s, n).
    """
    dtype = widest(scores.device)
    descending, order = sort_scores(scores.to(dtype))
    probabilities, joint = sorted_joint(descending, potentials.to(dtype), sizes)
    back = torch.argsort(order, dim=1).T
    return probabilities, joint.gather(1, back.expand(joint.shape))


def joint_by_tree(
    descending: Tensor, potentials: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, ...]:
    """Return as :func:`sorted_joint`, by a tree of products if all rows are accurate: one wait."""
    if descending.dtype != torch.float64:
        return sorted_joint(descending, potentials, sizes)
    tree = _grow_tree(sizes, descending.T, potentials)
    if not bool(tree.accurate.all()):
        return sorted_joint(descending, potentials, sizes)
    s, own = len(descending), size_tensor((0, *sizes), descending.device)
    log_total = torch.logsumexp(tree.log_sizes, 0)
    weights = torch.exp((tree.log_weights - log_total).clamp(max=MAX_LOG_WEIGHT))[own]
    others = without_each(tree.levels, max(max(sizes, default=0) - 1, 0))[:, :s]
    joint = weights[1:, None] * others[own[1:] - 1] * tree.levels[0][1, :s]
    return torch.exp(tree.log_sizes - log_total)[own], joint


def sorted_joint(
    descending: Tensor, potentials: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, ...]:
    """Return as :func:`leave_one_out` for scores of shape (s, n) in falling order."""
    law = law_of_sizes(torch, descending, _by_size(torch, potentials.T, sizes))
    z = law.probabilities(torch)
    conditional = given_number(torch, descending, law, traced=True)
    joint = descending.new_zeros((len(sizes), *descending.shape))
    for _, q in conditional.joint(descending, max(1, *sizes)) if sizes else ():
        joint = joint + torch.stack([q[:, k - 1, :] for k in sizes])
    return torch.stack([z[k] for k in (0, *sizes)]), joint


def logits_and_sizes(
    scores: Tensor, potentials: Tensor, sizes: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log-odds, (n, s), and the law of the number, as ``LabelStatistics.from_logits`` takes.

    Of tensors on the host; the law is of shape (n, 1 + largest).
    """
    z, g = (part.detach().double().numpy() for part in (scores, potentials))

    def work(rows: slice) -> tuple[Array]:
        descending, own = sort_scores(z[rows])[0], _by_size(np, g[rows].T, sizes)
        law = law_of_sizes(np, descending, own, only_sizes=True)
        return (np.ascontiguousarray(law.probabilities(np).T),)

    tasks = row_tasks((np, None), len(z), _row_bytes(z.shape[1], sizes))
    return z, map_rows(np, work, tasks)[0]


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
    return np.ascontiguousarray(np.take_along_axis(scores, places, axis=1).T), places


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
