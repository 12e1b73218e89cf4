"""Label statistics of logits, and their exact decode on the device of the logits.

What :func:`fbeta.decode` finds by trying few sizes, with decisions on the host in between, is here
found by trying all sizes at once, so that it can be traced; on the host :func:`fbeta.decode` works.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fbeta.decoding import exact
from fbeta.decoding.measures import TIE_UNITS, Goal, register_search
from fbeta.metrics import fbeta_weight
from fbeta.nn import _inputs, _law
from fbeta.nn._inputs import Limit, Sizes, Statistics, is_exporting, is_tracing, widest
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.storage import Dense

Found: TypeAlias = tuple[Tensor, Tensor]  # label sets, (n, s), and expected values, (n,)
Settings: TypeAlias = tuple[Any, Any, Any]  # beta, min_labels, max_labels
CHUNK_NUMBERS = 1 << 27  # numbers that are worked on at once on a device


def joint_statistics(logits: Tensor, n_labels: int, cardinalities: Sizes) -> Statistics:
    """Return the statistics that the logits of the paper's surrogate estimate.

    Parameters
    ----------
    logits : tensor of shape (n, 1 + K s)
        As for :func:`fbeta.nn.functional.joint_loss`.
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        Sizes; a number K stands for 1..K.

    Returns
    -------
    Statistics

    Examples
    --------
    >>> joint_statistics(torch.zeros(1, 3), 2, [1]).joint.tolist()
    [[[0.5, 0.5]]]
    """
    z, sizes = _inputs.read_code(logits, n_labels, cardinalities, joint=True, rows=True)
    p = torch.sigmoid(z.to(torch.promote_types(z.dtype, torch.float32)))
    return Statistics(p[:, 0], p[:, 1:].reshape(p.shape[0], len(sizes), n_labels), sizes)


def cardinality_statistics(logits: Tensor, n_labels: int, cardinalities: Sizes) -> Statistics:
    """Return the statistics of the cardinality model.

    Parameters
    ----------
    logits : tensor of shape (n, s + 1 + K)
        As for :func:`fbeta.nn.functional.cardinality_loss`.
    n_labels, cardinalities
        As for :func:`joint_statistics`.

    Returns
    -------
    Statistics
        In double precision.

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

    Parameters
    ----------
    logits : tensor of shape (n, s)
        Of the labels.

    Returns
    -------
    Statistics
        In double precision, with all sizes 1..s: s^2 numbers for each instance.

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
        all. Probabilities become logits by ``torch.logit``.

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
        q = statistics
        statistics = Statistics(q.empty, q.joint, tuple(q.cardinalities.tolist()))  # type: ignore[arg-type]
    goal = (beta, min_labels, max_labels)
    if isinstance(statistics, Statistics):
        empty, joint, sizes = statistics
        run = partial(_decode_dense, sizes=sizes)
        found = _by_goal(run, (empty, joint), joint.shape[2], goal)
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

    The best set of every size has the labels with the largest scores, so that the labels are
    sorted once and the statistics are summed along that order: no more memory than the statistics
    of some rows.

    Parameters
    ----------
    logits : tensor of shape (n, s + 1 + K)
        As for :func:`fbeta.nn.functional.cardinality_loss`.
    n_labels, cardinalities
        As for :func:`joint_statistics`.
    beta, min_labels, max_labels, return_expected
        As for :func:`decode`.

    Returns
    -------
    labels : int8 tensor of shape (n, s)
    expected : tensor of shape (n,)
        Only with ``return_expected=True``.

    Examples
    --------
    >>> decode_cardinality(torch.zeros(1, 5), 3, [1]).tolist()
    [[1, 1, 1]]
    """
    z, sizes = _inputs.read_code(logits, n_labels, cardinalities, joint=False, rows=True)
    goal = (beta, min_labels, max_labels)
    found = _by_goal(partial(_decode_sized, sizes=sizes), (z,), n_labels, goal)
    return found if return_expected else found[0]


def _by_goal(
    run: Callable[..., Found], tensors: tuple[Tensor, ...], s: int, goal: Settings
) -> Found:
    """Decode n rows; those with equal beta and limits together, where rows have their own."""
    with torch.no_grad():
        if not any(isinstance(part, Tensor) and part.ndim for part in goal):
            return run(*tensors, goal)
        if is_tracing():
            raise ValueError("beta and limits by row cannot be compiled or exported: give numbers")
        # beta, and limits that are cut to what is possible
        beta, low, high = (s if part is None else part for part in goal)
        columns = [torch.as_tensor(part, dtype=torch.float64).cpu() for part in (beta, low, high)]
        n = len(tensors[0])
        settings = torch.stack([column.expand(n) for column in columns], dim=1)
        groups, which = torch.unique(settings, dim=0, return_inverse=True)
        labels, values = torch.empty((n, s), dtype=torch.int8), settings.new_empty(n)
        for place, (beta, low, high) in enumerate(groups.tolist()):
            rows = torch.nonzero(which == place)[:, 0]
            least = min(max(int(low), 0), s)
            own = (beta, least, max(least, min(int(high), s)))
            found = run(*(part[rows] for part in tensors), own)
            labels, values = labels.to(found[0].device), values.to(found[1].device)
            labels[rows], values[rows] = found[0], found[1].to(values.dtype)
        return labels, values


def _on_host(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not is_tracing()


def _decode_on_host(statistics: LabelStatistics, goal: Settings) -> Found:
    """Decode statistics by NumPy; limits that are given as tensors are cut to what is possible."""
    (beta, low, high), s = goal, statistics.n_labels
    cut = isinstance(low, Tensor) or isinstance(high, Tensor)
    low, high = int(low), None if high is None else int(high)
    if cut:
        low = min(max(low, 0), s)
        high = s if high is None else max(high, low)
    labels, expected = exact.decode(
        statistics, float(beta), min_labels=low, max_labels=high, return_expected=True
    )
    return torch.from_numpy(labels), torch.from_numpy(expected)


def _decode_sized(logits: Tensor, goal: Settings, sizes: tuple[int, ...]) -> Found:
    s, dtype = logits.shape[1] - 1 - len(sizes), widest(logits.device)
    if _on_host(logits):
        return _decode_on_host(
            LabelStatistics.from_logits(*_law.logits_and_sizes(logits, sizes)), goal
        )
    goal = _inputs.read_goal(*goal, s, logits.device)
    find_joint = _law.sorted_joint if is_tracing() else _law.joint_by_tree

    def work(rows: Tensor) -> Found:
        scores = rows[:, :s].to(dtype)
        descending = _law.sort_scores(scores)[0]
        law, joint = find_joint(descending, rows[:, s:].to(dtype), sizes)
        q = Statistics(law[0], joint.permute(2, 0, 1), sizes)
        return _search_prefixes(scores, descending.T, q, goal)

    return _in_chunks(work, s * max(len(sizes), 8), logits)


def _decode_independent(logits: Tensor, goal: Settings) -> Found:
    s = logits.shape[1]
    if _on_host(logits):
        z = logits.detach().double().numpy()
        return _decode_on_host(LabelStatistics.from_logits(z), goal)
    goal = _inputs.read_goal(*goal, s, logits.device)

    def work(rows: Tensor) -> Found:
        descending = rows.sort(1, descending=True).values
        return _search_prefixes(rows, descending, independent_statistics(descending), goal)

    return _in_chunks(work, s * s, logits)


def _decode_listed(logits: Tensor, indices: Tensor | None, goal: Settings) -> Found:
    """Decode independent labels, (n, s); those of short lists in the order of the labels."""
    if indices is None:
        return _by_goal(_decode_independent, (logits,), logits.shape[1], goal)
    used, (beta, low, high) = (indices >= 0) & (logits > -torch.inf), goal
    if not is_tracing() and (isinstance(low, Tensor) or low):
        low = used.sum(1).clamp(max=torch.as_tensor(low, device=used.device))
    order = torch.where(used, indices, torch.iinfo(indices.dtype).max).argsort(dim=1)
    scores = torch.where(used, logits, -torch.inf).gather(1, order)
    labels, value = _decode_listed(scores, None, (beta, low, high))
    return torch.zeros_like(labels).scatter(1, order, labels) * used, value


def _decode_dense(empty: Tensor, joint: Tensor, goal: Settings, sizes: tuple[int, ...]) -> Found:
    (_, K, s), device = joint.shape, joint.device
    if _on_host(joint):
        # NumPy has no half precision of this kind
        wide = torch.promote_types(joint.dtype, torch.float32)
        arrays = [part.detach().to(wide).numpy() for part in (empty, joint)]
        return _decode_on_host(LabelStatistics(arrays[0], arrays[1], sizes), goal)
    goal = beta, low, high = _inputs.read_goal(*goal, s, device)
    if K and _inputs.fuses(joint, s) and not is_exporting():
        weights = _weights(sizes, s, beta, torch.float64, device)
        return _inputs.fused_search(
            empty, joint, weights, *(_scalar(part, device) for part in (low, high))
        )
    work = partial(_search_dense, sizes=sizes, goal=goal)
    return _in_chunks(work, s * max(K, s), empty, joint)


def _scalar(value: Any, device: torch.device) -> Tensor:
    """Return a number on the device, in double precision and without a copy from the host."""
    if isinstance(value, Tensor) and value.device == device:
        return value.to(torch.float64)
    return torch.full((), float(value), dtype=torch.float64, device=device)


def _search_dense(empty: Tensor, joint: Tensor, sizes: tuple[int, ...], goal: Settings) -> Found:
    """Find the best sets by the sums of the largest scores of every size."""
    beta, low, high = goal
    dtype, device = widest(joint.device), joint.device
    empty, joint = empty.to(dtype), joint.to(dtype)
    weights = _weights(sizes, joint.shape[2], beta, dtype, device)
    scores = torch.matmul(weights, joint)
    hits = torch.tril(scores.sort(2, descending=True).values).sum(2)
    size, value = _choose(torch.cat([empty[:, None], hits], dim=1), low, high)
    own = weights[(size - 1).clamp(min=0)]
    # not a product of matrices, which may round equal labels differently
    final = (own[:, :, None] * joint).sum(1)
    last = final.sort(1, descending=True).values.gather(1, (size - 1).clamp(min=0)[:, None])
    near = TIE_UNITS * torch.finfo(dtype).eps * last.abs()
    return _largest_labels(final, last - near, last + near, size), value


def _search_prefixes(scores: Tensor, descending: Tensor, q: Statistics, goal: Settings) -> Found:
    """Find the best sets where one order of the labels serves all sizes; q has it."""
    (empty, joint, sizes), (beta, low, high) = q, goal
    joint = joint.permute(1, 2, 0)
    weights = _weights(sizes, scores.shape[1], beta, joint.dtype, joint.device)
    hits = (weights.T[:, :, None] * joint.cumsum(1)).sum(0)
    size, value = _choose(torch.cat([empty[None], hits]).T, low, high)
    # labels tie where their shares of the value do, as those of dense statistics do
    last = (size - 1).clamp(min=0)
    share = (weights[last].T[:, None] * joint).sum(0)
    own = share.gather(0, last[None])
    near = TIE_UNITS * torch.finfo(share.dtype).eps * own.abs()
    first, final = (share > own + near).sum(0), (share >= own - near).sum(0) - 1
    least, most = (descending.gather(1, place[:, None]) for place in (final, first))
    return _largest_labels(scores, least, most, size), value


def _weights(
    sizes: tuple[int, ...], s: int, beta: Any, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return ``(1 + beta^2) / (beta^2 k + l)`` for predictions of 1..s labels, of shape (s, K)."""
    k = _inputs.size_tensor(sizes, device).to(dtype)
    size = torch.arange(1, s + 1, device=device).to(dtype)[:, None]
    weights: Tensor = fbeta_weight(k, size, beta.to(dtype) if isinstance(beta, Tensor) else beta)
    return weights


def _choose(values: Tensor, low: Any, high: Any) -> tuple[Tensor, Tensor]:
    """Choose the best size, the smallest among those that tie, from values for 0..s: (n, s + 1)."""
    place = torch.arange(values.shape[1], device=values.device)
    allowed = (place >= low) & (place <= high)
    bottom = torch.full_like(values, -torch.inf)
    top = torch.where(allowed, values, bottom).amax(1, keepdim=True)
    tie = TIE_UNITS * torch.finfo(values.dtype).eps
    near = allowed & (values >= top - tie * torch.maximum(values.abs(), top.abs()))
    size = torch.where(near, place, values.shape[1] - 1).amin(1)
    return size, values.gather(1, size[:, None])[:, 0]


def _largest_labels(scores: Tensor, low: Tensor, high: Tensor, size: Tensor) -> Tensor:
    """Return the sets of so many labels with the largest scores, the first among equals.

    Scores from low to high, (n, 1) each, tie with that of the last label taken.
    """
    some = (size > 0)[:, None]
    above = (scores > high) & some
    equal = (scores >= low) & ~above & some
    missing = size[:, None] - above.to(size.dtype).sum(1, keepdim=True)
    order = equal.to(size.dtype).cumsum(1)
    return (above | (equal & (order <= missing))).to(torch.int8)


def _in_chunks(work: Callable[..., Found], per_row: int, *arrays: Tensor) -> Found:
    """Do work on some rows at a time, where it is not traced."""
    rows = max(1, CHUNK_NUMBERS // per_row)
    if is_tracing() or rows >= len(arrays[0]):
        return work(*arrays)
    n = len(arrays[0])
    parts = [work(*(array[i : i + rows] for array in arrays)) for i in range(0, n, rows)]
    labels, values = (torch.cat(part) for part in zip(*parts, strict=True))
    return labels, values


def search_label_statistics(form: Dense, beta: float, goal: Goal) -> Found:
    """Find the best label sets of statistics on a device, without a wait for it."""
    sizes = tuple(form.cardinalities.tolist())
    return _decode_dense(form.empty, form.joint, (beta, goal.low, goal.high), sizes)


register_search("cuda", search_label_statistics)
