"""Label statistics of logits, and their exact decode on the device of the logits.

All sizes are tried at once, so that the decode can be traced; on the host :func:`fbeta.decode`
works, which tries few sizes with decisions in between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fbeta._array import array_namespace
from fbeta.decoding import exact, measures
from fbeta.metrics import fbeta_weight
from fbeta.nn import _inputs, _law
from fbeta.nn._inputs import Limit, Sizes, Statistics, is_exporting, is_tracing, widest
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.storage import Dense

Found: TypeAlias = tuple[Tensor, Tensor]  # label sets, (n, s), and expected values, (n,)
Settings: TypeAlias = tuple[Any, Any, Any]  # beta, min_labels, max_labels
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
CHUNK_NUMBERS = 1 << 27  # numbers that are worked on at once on a device
xp = array_namespace(torch.empty(0))


def joint_statistics(logits: Tensor, n_labels: int, cardinalities: Sizes) -> Statistics:
    """Return the statistics that the logits of the paper's surrogate estimate.

    Parameters
    ----------
    logits : tensor of shape (n, 1 + K s)
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        As for :func:`fbeta.nn.functional.joint_loss`.

    Examples
    --------
    >>> joint_statistics(torch.zeros(1, 3), 2, [1]).joint.tolist()
    [[[0.5, 0.5]]]
    """
    z, sizes = _inputs.read_code(logits, n_labels, cardinalities, joint=True, rows=True)
    p = torch.sigmoid(z.to(torch.promote_types(z.dtype, torch.float32)))
    return Statistics(p[:, 0], p[:, 1:].reshape(p.shape[0], len(sizes), n_labels), sizes)


def cardinality_statistics(logits: Tensor, n_labels: int, cardinalities: Sizes) -> Statistics:
    """Return the statistics of the cardinality model, in double precision.

    Parameters
    ----------
    logits : tensor of shape (n, s + 1 + K)
        As for :func:`fbeta.nn.functional.cardinality_loss`.
    n_labels, cardinalities
        As for :func:`joint_statistics`.

    Examples
    --------
    >>> cardinality_statistics(torch.zeros(1, 5), 2, 2).joint.tolist()
    [[[0.25, 0.25], [0.25, 0.25]]]
    """
    z, sizes = _inputs.read_code(logits, n_labels, cardinalities, joint=False, rows=True)
    probabilities, joint = _law.leave_one_out(z, sizes)
    return Statistics(probabilities[0], joint.permute(2, 0, 1), sizes)


def independent_statistics(logits: Tensor) -> Statistics:
    """Return the statistics of independent labels, as those of a network fitted with BCE.

    ``logits`` have shape (n, s), the statistics all sizes 1..s: s^2 numbers for each instance, in
    double precision.

    Examples
    --------
    >>> independent_statistics(torch.zeros(1, 2)).joint.tolist()
    [[[0.25, 0.25], [0.25, 0.25]]]
    """
    z = logits.to(widest(logits.device)).T
    s = z.shape[0]
    levels = _law.product_tree(torch.sigmoid(torch.stack([-z, z])), s)
    joint = _law.without_each(levels, s - 1)[:, :s] * levels[0][1, :s]
    return Statistics(levels[-1][0, 0], joint.permute(2, 0, 1), tuple(range(1, s + 1)))


def decode(
    statistics: Statistics | LabelStatistics | Tensor,
    beta: float | Tensor = 1.0,
    *,
    min_labels: Limit = 0,
    max_labels: Limit = None,
    return_expected: bool = False,
    indices: Tensor | None = None,
) -> Any:
    """Find the label set with the highest expected F_beta for each instance.

    The same sets as :func:`fbeta.decode` finds, ties included, on the device of the statistics and
    without waiting for it; ``torch.compile(fullgraph=True)`` and ``torch.onnx.export`` take it.

    Parameters
    ----------
    statistics : Statistics, LabelStatistics or tensor of shape (n, s)
        Of n instances with s labels; a tensor holds the logits of labels that are taken as
        independent, such as those of a network that was fitted with BCE; -inf for labels that
        cannot be.
    beta : float > 0 or tensor
        Weight of recall against precision, for this call, or of shape (n,) for each instance.
    min_labels, max_labels : int or tensor
        Limits on the number of labels of a prediction, or of each of n; none by default. Limits and
        beta that are tensors may be on the device; they are cut to what is possible and not
        checked. Those of shape (n,) wait for the device, and cannot be compiled.
    return_expected : bool
        Also return the expected F_beta under the statistics.
    indices : integer tensor of shape (n, s), optional
        Of logits of short lists: which label each is of, negative for unused places. The first
        labels win ties then, wherever they are listed; a row with fewer than ``min_labels`` gets
        all. Probabilities become logits by ``torch.logit``. NaN, and a label that a row lists
        twice, are refused on the processor outside of compiled graphs.

    Returns
    -------
    labels : int8 tensor of shape (n, s)
        Predicted label sets, 0/1; of lists, whether the label of each place is taken.
    expected : tensor of shape (n,)
        Only with ``return_expected=True``; in double precision.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, -0.5, -3.0]])
    >>> decode(logits).tolist(), decode(logits, beta=2.0).tolist()
    ([[1, 0, 0]], [[1, 1, 0]])
    """
    if isinstance(statistics, LabelStatistics):
        q, sizes = statistics, tuple(statistics.cardinalities.tolist())
        statistics = Statistics(torch.as_tensor(q.empty), torch.as_tensor(q.joint), sizes)
    goal = (beta, min_labels, max_labels)
    if isinstance(statistics, Statistics):
        if indices is not None:
            raise ValueError("indices are for logits: statistics are those of all labels")
        found = _decode_dense(*statistics, goal)
    else:
        s = getattr(statistics, "shape", (0,))[-1]
        logits = _inputs.read_logits(statistics, s, "one for each label", rows=True)
        found = _decode_listed(logits, indices, goal)
    return found if return_expected else found[0]


def decode_cardinality(
    logits: Tensor,
    n_labels: int,
    cardinalities: Sizes,
    beta: float | Tensor = 1.0,
    *,
    min_labels: Limit = 0,
    max_labels: Limit = None,
    return_expected: bool = False,
) -> Any:
    """Find the label sets with the highest expected F_beta under the cardinality model.

    It needs no more memory than the statistics of some rows.

    Parameters
    ----------
    logits, n_labels, cardinalities
        As for :func:`cardinality_statistics`.
    beta, min_labels, max_labels, return_expected
        As for :func:`decode`, and so is what is returned.

    Examples
    --------
    >>> decode_cardinality(torch.zeros(1, 5), 3, [1]).tolist()
    [[1, 1, 1]]
    """
    z, sizes = _inputs.read_code(logits, n_labels, cardinalities, joint=False, rows=True)
    found = _decode_rows(
        (z,),
        n_labels,
        (beta, min_labels, max_labels),
        partial(_search_sorted, sizes),
        lambda z: LabelStatistics.from_logits(*_law.logits_and_sizes(z, sizes)),
    )
    return found if return_expected else found[0]


def _decode_rows(
    tensors: tuple[Tensor, ...],
    s: int,
    goal: Settings,
    search: Callable[..., Found],
    on_host: Callable[..., LabelStatistics],
) -> Found:
    """Decode n rows of tensors: by NumPy on the host, else by a search; equal goals together."""
    device = tensors[0].device
    with torch.no_grad():
        beta, low, high = goal = _inputs.read_goal(*goal, s, device)
        if not any(isinstance(part, Tensor) and part.ndim for part in goal):
            if is_tracing() or device.type != "cpu":
                return search(*tensors, goal)
            found = exact.decode(
                on_host(*(part.detach() for part in tensors)),
                float(beta),
                min_labels=int(low),
                max_labels=int(high),
                return_expected=True,
            )
            return torch.from_numpy(found[0]), torch.from_numpy(found[1])
        if is_tracing():
            raise ValueError("beta and limits by row cannot be compiled or exported: give numbers")
        n = len(tensors[0])
        columns = [torch.as_tensor(part, dtype=torch.float64).cpu() for part in goal]
        for name, column in zip(("beta", "min_labels", "max_labels"), columns, strict=True):
            if column.shape not in ((), (n,)):
                raise ValueError(f"{name} must have shape ({n},), got {tuple(column.shape)}")
        columns = [column.expand(n) for column in columns]
        groups, which = torch.unique(torch.stack(columns, dim=1), dim=0, return_inverse=True)
        labels = torch.empty((n, s), dtype=torch.int8, device=device)
        values = torch.empty(n, dtype=widest(device), device=device)
        for group, (beta, low, high) in enumerate(groups.tolist()):
            rows, own = torch.nonzero(which == group)[:, 0], (beta, int(low), int(high))
            some = tuple(part[rows] for part in tensors)
            labels[rows], values[rows] = _decode_rows(some, s, own, search, on_host)
        return labels, values


def _decode_listed(logits: Tensor, indices: Tensor | None, goal: Settings) -> Found:
    """Decode independent labels, (n, s); those of short lists in the order of the labels."""
    if indices is None:
        return _decode_rows(
            (logits,),
            logits.shape[1],
            goal,
            partial(_search_sorted, None),
            lambda z: LabelStatistics.from_logits(z.double().numpy()),
        )
    is_whole = isinstance(indices, Tensor) and indices.dtype in INTEGERS
    if not is_whole or indices.shape != logits.shape:
        found = [str(getattr(indices, name, "")) for name in ("dtype", "shape")]
        raise ValueError(
            f"indices must be a tensor of integers of shape {tuple(logits.shape)}, one for each "
            f"logit, got {' '.join([type(indices).__name__, *found])}"
        )
    # NaN is used, so that it is refused, or is seen in the result
    used, (beta, low, high) = (indices >= 0) & (logits != -torch.inf), goal
    low, last = least_labels(low, used), torch.iinfo(torch.int64).max
    listed, order = torch.where(used, indices.long(), last).sort(dim=1)
    inspected = logits.device.type == "cpu" and not is_tracing()
    if inspected and ((listed.diff() == 0) & (listed[:, 1:] < last)).any():
        raise ValueError("a row lists a label twice")
    scores = torch.where(used, logits, -torch.inf).gather(1, order)
    labels, value = _decode_listed(scores, None, (beta, low, high))
    return torch.zeros_like(labels).scatter(1, order, labels) * used, value


def least_labels(low: Limit, usable: Tensor) -> Limit:
    """Return a lower limit that rows can reach with their usable labels, (n, s), unless traced."""
    if is_tracing() or not (isinstance(low, Tensor) or low):
        return low
    return usable.sum(1).clamp(max=torch.as_tensor(low, device=usable.device))


def _decode_dense(empty: Tensor, joint: Tensor, sizes: tuple[int, ...], goal: Settings) -> Found:
    def on_host(empty: Tensor, joint: Tensor) -> LabelStatistics:
        # NumPy has no half precision of this kind
        wide = torch.promote_types(joint.dtype, torch.float32)
        return LabelStatistics(empty.to(wide).numpy(), joint.to(wide).numpy(), sizes)

    search = partial(_search_dense, sizes)
    return _decode_rows((empty, joint), joint.shape[2], goal, search, on_host)


def _search_sorted(sizes: tuple[int, ...] | None, logits: Tensor, goal: Settings) -> Found:
    """Find the best sets of independent labels, (n, s), or of the cardinality model of sizes."""
    s = logits.shape[1] - (0 if sizes is None else 1 + len(sizes))
    find_joint = _law.sorted_joint if is_tracing() else _law.joint_by_tree

    def work(rows: Tensor) -> Found:
        rows = rows.to(widest(rows.device))
        scores = _law.finite_scores(rows[:, :s])
        descending = scores.sort(1, descending=True).values
        if sizes is None:
            q = independent_statistics(descending)
        else:
            law, joint = find_joint(descending.T, rows[:, s:], sizes)
            q = Statistics(law[0], joint.permute(2, 0, 1), sizes)
        return _search_prefixes(scores, descending, q, goal)

    return _in_chunks(work, s * (s if sizes is None else max(len(sizes), 8)), logits)


def _search_dense(sizes: tuple[int, ...], empty: Tensor, joint: Tensor, goal: Settings) -> Found:
    """Find the best sets by the sums of the largest scores of every size."""
    (_, K, s), device, (beta, low, high) = joint.shape, joint.device, goal
    if K and _inputs.fuses(joint, s) and not is_exporting():
        weights = _weights(sizes, s, beta, torch.float64, device)
        return _inputs.fused_search(
            empty, joint, weights, *(_scalar(part, device) for part in (low, high))
        )
    dtype = widest(device)
    weights = _weights(sizes, s, beta, dtype, device)

    def work(empty: Tensor, joint: Tensor) -> Found:
        joint = joint.to(dtype)
        scores = torch.tensordot(joint, weights, ([1], [1])).mT  # in onnxruntime of 0 rows, too
        hits = torch.tril(scores.sort(2, descending=True).values).sum(2)
        size, value = _choose(empty.to(dtype), hits.T, goal)
        own = weights[(size - 1).clamp(min=0)]
        # not a product of matrices, which may round equal labels differently
        shares = (own[:, :, None] * joint).sum(1)
        descending = shares.sort(1, descending=True).values
        return measures.largest_of_size(xp, shares, descending, size), value

    return _in_chunks(work, s * max(K, s), empty, joint)


def _scalar(value: Any, device: torch.device) -> Tensor:
    """Return a number on the device, in double precision and without a copy from the host."""
    if isinstance(value, Tensor) and value.device == device:
        return value.to(torch.float64)
    return torch.full((), float(value), dtype=torch.float64, device=device)


def _search_prefixes(scores: Tensor, descending: Tensor, q: Statistics, goal: Settings) -> Found:
    """Find the best sets where one order of the labels serves all sizes; q has it."""
    empty, joint, sizes = q
    joint = joint.permute(1, 2, 0)
    weights = _weights(sizes, scores.shape[1], goal[0], joint.dtype, joint.device)
    hits = (weights.T[:, :, None] * joint.cumsum(1)).sum(0)
    size, value = _choose(empty, hits, goal)
    # labels tie where their shares of the value do, as those of dense statistics do
    last = (size - 1).clamp(min=0)
    share = (weights[last].T[:, None] * joint).sum(0)
    own = share.gather(0, last[None])
    near = measures.tie(torch, share.dtype) * own.abs()
    first, final = (share > own + near).sum(0), (share >= own - near).sum(0) - 1
    low, high = (descending.gather(1, place[:, None])[:, 0] for place in (final, first))
    return measures.largest_labels(xp, scores, size, low, high), value


def _choose(empty: Tensor, hits: Tensor, goal: Settings) -> tuple[Tensor, Tensor]:
    """Choose the best size among those allowed, from values for 0, (n,), and for 1..s, (s, n)."""
    values, (_, low, high) = torch.cat([empty[None], hits]), goal
    sizes = torch.arange(len(values), device=values.device)
    allowed = ((sizes >= low) & (sizes <= high))[:, None]
    return measures.choose_size(xp, sizes, torch.where(allowed, values, -torch.inf))


def _weights(
    sizes: tuple[int, ...], s: int, beta: Any, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return ``(1 + beta^2) / (beta^2 k + l)`` for predictions of 1..s labels, of shape (s, K)."""
    k = _inputs.size_tensor(sizes, device).to(dtype)
    size = torch.arange(1, s + 1, device=device).to(dtype)[:, None]
    weights: Tensor = fbeta_weight(k, size, beta.to(dtype) if isinstance(beta, Tensor) else beta)
    return weights


def _in_chunks(work: Callable[..., Found], per_row: int, *arrays: Tensor) -> Found:
    """Do work on some rows at a time, where it is not traced."""
    rows = max(1, CHUNK_NUMBERS // per_row)
    if is_tracing() or rows >= len(arrays[0]):
        return work(*arrays)
    n = len(arrays[0])
    parts = [work(*(array[i : i + rows] for array in arrays)) for i in range(0, n, rows)]
    labels, values = (torch.cat(part) for part in zip(*parts, strict=True))
    return labels, values


def search_label_statistics(form: Dense, beta: float, goal: measures.Goal) -> Found:
    """Find the best label sets of statistics on a device, without a wait for it."""
    sizes = tuple(form.cardinalities.tolist())
    return _decode_dense(form.empty, form.joint, sizes, (beta, goal.low, goal.high))


measures.register_search("cuda", search_label_statistics)
