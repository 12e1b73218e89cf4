"""The law of a cardinality model: its partition function and its expectations, on any device.

``p(y) = exp(sum_j y_j z_j + v_|y|) / Z``. Adding a constant c to all scores z and taking c k from
the potential of each size k leaves the law as it is. So the scores are moved for each instance
until independent labels with these odds would be about half the largest size in number: then
``P(k labels)`` of these stays within the range of double precision for all sizes, whatever network
the logits come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fbeta.nn._polynomials import product_tree, pull_back, without_each
from fbeta.nn._sizes import size_tensor, widest

# halvings of the interval of the move: it need not be found exactly
HALVINGS = 8


class Expectations(NamedTuple):
    """What the gradient of a cardinality model needs, of n instances, in double precision."""

    log_partition: Tensor  # (n,)
    marginals: Tensor  # (n, s)
    sizes: Tensor  # (n, 1 + K), of "no labels" and of the K sizes


class Tree(NamedTuple):
    """The products over the labels of n instances, and the weights of the sizes that they have."""

    levels: list[Tensor]
    log_weights: Tensor  # (1 + K, n), of the sizes, by the potentials alone
    log_sizes: Tensor  # (1 + K, n), the logarithms of the weights of the sizes under the model
    log_scale: Tensor  # (n,), what was taken out of the partition function


def expectations(scores: Tensor, potentials: Tensor, sizes: Sequence[int]) -> Expectations:
    """Return the partition function and the expectations of a cardinality model.

    Parameters
    ----------
    scores : tensor of shape (n, s)
        Of the labels.
    potentials : tensor of shape (n, 1 + K)
        Of "no labels" and of the sizes.
    sizes : sequence of K int
        Increasing sizes in 1..s.

    Returns
    -------
    Expectations
    """
    s = scores.shape[1]
    tree = grow(scores, potentials, sizes)
    log_total = torch.logsumexp(tree.log_sizes, 0)
    weights = by_size(normalised(tree, log_total), sizes, tree.levels[-1].shape[0])
    present = tree.levels[0][1, :s] * pull_back(tree.levels, weights)[1, :s]
    return Expectations(
        log_total + tree.log_scale,
        present.clamp(max=1.0).T,
        torch.exp(tree.log_sizes - log_total).T,
    )


def leave_one_out(scores: Tensor, potentials: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Return ``P(|y| = k)``, 0 included, and ``P(|y| = k, y_j = 1)`` of a cardinality model.

    Parameters
    ----------
    scores, potentials, sizes
        As for :func:`expectations`.

    Returns
    -------
    probabilities : tensor of shape (1 + K, n)
    joint : tensor of shape (K, s, n)
    """
    s, largest = scores.shape[1], max(sizes, default=0)
    tree = grow(scores, potentials, sizes)
    log_total = torch.logsumexp(tree.log_sizes, 0)
    weights = normalised(tree, log_total)
    others = without_each(tree.levels, max(largest - 1, 0))[:, :s]
    if len(sizes) < largest:
        others = others[size_tensor([k - 1 for k in sizes], others.device)]
    joint = weights[1:, None] * others[: len(sizes)] * tree.levels[0][1, :s]
    return torch.exp(tree.log_sizes - log_total), joint


def marginals_and_sizes(
    scores: Tensor, potentials: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the law as :meth:`fbeta.LabelStatistics.from_marginals` takes it.

    Parameters
    ----------
    scores, potentials, sizes
        As for :func:`expectations`.

    Returns
    -------
    P : tensor of shape (n, s)
        Marginals of independent labels with the same law given their number.
    law : tensor of shape (n, 1 + largest)
        ``P(|y| = k)`` of all sizes.
    """
    tree = grow(scores, potentials, sizes)
    law = torch.softmax(tree.log_sizes, 0)
    return (
        tree.levels[0][1, : scores.shape[1]].T,
        by_size(law, sizes, max(sizes, default=0) + 1).T,
    )


def grow(scores: Tensor, potentials: Tensor, sizes: Sequence[int]) -> Tree:
    """Return the tree of products of moved scores; parameters as for :func:`expectations`."""
    largest, dtype = max(sizes, default=0), widest(scores.device)
    z = scores.to(dtype).T.contiguous()
    move = find_move(z, max(largest, 1) / 2)
    z = z + move
    levels = product_tree(torch.sigmoid(-z), torch.sigmoid(z), largest)
    k = size_tensor((0, *sizes), z.device)
    log_weights = potentials.to(dtype).T - move * k[:, None]
    law = levels[-1][: largest + 1, 0]
    if len(sizes) < largest:
        law = law[k]
    return Tree(levels, log_weights, log_weights + torch.log(law), -logsigmoid(-z).sum(0))


def find_move(z: Tensor, target: float) -> Tensor:
    """Return what to add to scores so that independent labels would be about so many.

    Parameters
    ----------
    z : tensor of shape (s, n)
        Scores.
    target : float
        Below s.

    Returns
    -------
    tensor of shape (n,)

    Examples
    --------
    >>> move = find_move(torch.zeros(10, 1), 5.0)
    >>> bool(move.abs() < 0.1)
    True
    """
    share = target / z.shape[0]
    logit = log(share) - log(1 - share) if share < 1 else 0.0
    kept, z = z.dtype, z.float()
    low, high = logit - z.amax(0), logit - z.amin(0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = torch.sigmoid(z + middle).sum(0) > target
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return ((low + high) / 2).to(kept)


def normalised(tree: Tree, log_total: Tensor) -> Tensor:
    """Return the weights of the sizes, divided by the partition function, of shape (1 + K, n).

    A size whose probability underflows for the labels alone has none in the model either.
    """
    weights = torch.exp((tree.log_weights - log_total).clamp(max=700.0))
    return torch.where(torch.isneginf(tree.log_sizes), torch.zeros_like(weights), weights)


def by_size(values: Tensor, sizes: Sequence[int], length: int) -> Tensor:
    """Return numbers for 0 and for some sizes as numbers for 0, 1, ..., below a length."""
    if len(values) == length:
        return values
    out = values.new_zeros((length, values.shape[1]))
    return out.index_copy(0, size_tensor((0, *sizes), values.device), values)
