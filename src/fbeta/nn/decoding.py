"""The exact decode on the device of the logits: no loop over instances.

What :func:`fbeta.decode` finds by trying few sizes, with decisions on the host in between, is here
found by trying all sizes at once. It can be traced: compiled whole and exported. On the host there
is nothing to wait for, and :func:`fbeta.decode` itself does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fbeta._validation import check_beta, check_count
from fbeta.decoding.dense_search import TIE_UNITS, Goal, register_search
from fbeta.metrics import fbeta_of_counts, fbeta_weight
from fbeta.nn._kernels import fused_search
from fbeta.nn._law import joint_by_tree, logits_and_sizes, sort_scores, sorted_joint
from fbeta.nn._sizes import Sizes, read_rows, read_sizes, size_tensor, widest
from fbeta.nn._tracing import host_decode, is_exporting, is_tracing
from fbeta.nn.statistics import Statistics, independent_statistics
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.storage import Dense

__all__ = ["decode", "decode_cardinality"]

Limit: TypeAlias = int | Tensor | None
# numbers that are worked on at once, on the host and on a device
AT_ONCE, AT_ONCE_ON_DEVICE = 1 << 21, 1 << 27


def decode(
    statistics: Statistics | LabelStatistics | Tensor,
    beta: float | Tensor = 1.0,
    *,
    min_labels: Limit = 0,
    max_labels: Limit = None,
    return_expected: bool = False,
) -> Any:
    """Find the label set with the highest expected F_beta for each instance.

    The same sets as :func:`fbeta.decode` finds, ties included, on the device of the statistics and
    without waiting for it; ``torch.compile(fullgraph=True)`` and ``torch.onnx.export`` take it.

    Parameters
    ----------
    statistics : Statistics, LabelStatistics or tensor of shape (n, s)
        Of n instances with s labels; a tensor holds the logits of labels that are taken as
        independent, such as those of a network that was fitted with BCE; -inf for labels that
        cannot be, such as unused places of short lists.
    beta : float > 0 or tensor
        Weight of recall against precision, for this call, or of shape (n,) for each instance.
    min_labels, max_labels : int or tensor
        Limits on the number of labels of a prediction, or of each of n; none by default. Limits and
        beta that are tensors may be on the device; they are cut to what is possible and not
        checked. Those of shape (n,) wait for the device, and cannot be compiled.
    return_expected : bool
        Also return the expected F_beta under the statistics.

    Returns
    -------
    labels : int8 tensor of shape (n, s)
        Predicted label sets, 0/1.
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
    if not isinstance(statistics, Statistics):
        shape = getattr(statistics, "shape", (0,))
        statistics = read_rows(statistics, shape[-1], "one for each label")

    def run(rows: Any, *goal: Any) -> tuple[Tensor, Tensor]:
        if isinstance(statistics, Tensor):
            return _decode_independent(statistics[rows], *goal)
        q = Statistics(statistics.empty[rows], statistics.joint[rows], statistics.cardinalities)
        return _decode_dense(q, *goal)

    shape = statistics.shape if isinstance(statistics, Tensor) else statistics.joint.shape
    found = _run_by_row(run, shape[0], shape[-1], beta, min_labels, max_labels)
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
    n_labels : int
        Number of labels s.
    cardinalities : int or sequence of K int
        Sizes; a number K stands for 1..K.
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
    sizes = read_sizes(cardinalities, n_labels)
    width = n_labels + 1 + len(sizes)
    logits = read_rows(logits, width, f"{n_labels} labels and 1 + {len(sizes)} sizes")

    def run(rows: Any, *goal: Any) -> tuple[Tensor, Tensor]:
        return _decode_sized(logits[rows], n_labels, sizes, *goal)

    found = _run_by_row(run, logits.shape[0], n_labels, beta, min_labels, max_labels)
    return found if return_expected else found[0]


def _run_by_row(
    run: Callable[..., tuple[Tensor, Tensor]], n: int, s: int, *goal: Any
) -> tuple[Tensor, Tensor]:
    """Decode n rows; those with equal beta and limits together, where rows have their own."""
    with torch.no_grad():
        if not any(isinstance(part, Tensor) and part.ndim for part in goal):
            return run(slice(None), *goal)
        if is_tracing():
            raise ValueError("beta and limits by row cannot be compiled or exported: give numbers")
        # beta, and limits that are cut to what is possible
        beta, low, high = (s if part is None else part for part in goal)
        columns = [torch.as_tensor(part, dtype=torch.float64).cpu() for part in (beta, low, high)]
        settings = torch.stack([column.expand(n) for column in columns], dim=1)
        groups, which = torch.unique(settings, dim=0, return_inverse=True)
        labels, values = torch.empty((n, s), dtype=torch.int8), settings.new_empty(n)
        for place, (beta, low, high) in enumerate(groups.tolist()):
            rows = torch.nonzero(which == place)[:, 0]
            least = min(max(int(low), 0), s)
            found = run(rows, beta, least, max(least, min(int(high), s)))
            labels, values = labels.to(found[0].device), values.to(found[1].device)
            labels[rows], values[rows] = found[0], found[1].to(values.dtype)
        return labels, values


def _decode_sized(
    logits: Tensor,
    s: int,
    sizes: tuple[int, ...],
    beta: float | Tensor,
    min_labels: Limit,
    max_labels: Limit,
) -> tuple[Tensor, Tensor]:
    if logits.device.type == "cpu" and not is_tracing():
        law = logits_and_sizes(logits[:, :s], logits[:, s:], sizes)
        statistics = LabelStatistics.from_logits(*law)
        return host_decode(statistics, beta, min_labels, max_labels)
    low, high = _limits(min_labels, max_labels, s)
    beta, dtype = _read_beta(beta, logits.device), widest(logits.device)
    find_joint = sorted_joint if is_tracing() else joint_by_tree

    def work(rows: Tensor) -> tuple[Tensor, Tensor]:
        scores = rows[:, :s].to(dtype)
        descending = sort_scores(scores)[0]
        law, joint = find_joint(descending, rows[:, s:].to(dtype), sizes)
        return _search_prefixes(scores, descending.T, law[0], joint, sizes, beta, low, high)

    return _by_rows(work, s * max(len(sizes), 8), logits)


def _decode_independent(
    logits: Tensor, beta: float | Tensor, min_labels: Limit, max_labels: Limit
) -> tuple[Tensor, Tensor]:
    s = logits.shape[1]
    if logits.device.type == "cpu" and not is_tracing():
        statistics = LabelStatistics.from_logits(logits.detach().double().numpy())
        return host_decode(statistics, beta, min_labels, max_labels)
    low, high = _limits(min_labels, max_labels, s)
    beta = _read_beta(beta, logits.device)

    def work(rows: Tensor) -> tuple[Tensor, Tensor]:
        descending = rows.sort(1, descending=True).values
        empty, joint, sizes = independent_statistics(descending)
        return _search_prefixes(
            rows, descending, empty, joint.permute(1, 2, 0), sizes, beta, low, high
        )

    return _by_rows(work, s * s, logits)


def _decode_dense(
    q: Statistics, beta: float | Tensor, min_labels: Limit, max_labels: Limit
) -> tuple[Tensor, Tensor]:
    K, s = q.joint.shape[1:]
    if q.joint.device.type == "cpu" and not is_tracing():
        empty, joint = (part.detach().to(_of_numpy(part)).numpy() for part in (q.empty, q.joint))
        statistics = LabelStatistics(empty, joint, q.cardinalities)
        return host_decode(statistics, beta, min_labels, max_labels)
    low, high = _limits(min_labels, max_labels, s)
    beta = _read_beta(beta, q.joint.device)
    fused = None if is_exporting() else fused_search(q.joint)
    if fused is not None:
        weights = _weights(q.cardinalities, s, beta, torch.float64, q.joint.device)
        return fused(q, weights, low, high)

    def work(empty: Tensor, joint: Tensor) -> tuple[Tensor, Tensor]:
        return _search_dense(Statistics(empty, joint, q.cardinalities), beta, low, high)

    return _by_rows(work, s * max(K, s), q.empty, q.joint)


def _search_dense(
    q: Statistics, beta: float | Tensor, low: Any, high: Any
) -> tuple[Tensor, Tensor]:
    """Find the best sets by the sums of the largest scores of every size."""
    dtype, device = widest(q.joint.device), q.joint.device
    empty, joint = q.empty.to(dtype), q.joint.to(dtype)
    s = joint.shape[2]
    weights = _weights(q.cardinalities, s, beta, dtype, device)
    scores = torch.matmul(weights, joint)
    hits = torch.tril(scores.sort(2, descending=True).values).sum(2)
    size, value = _choose(torch.cat([empty[:, None], hits], dim=1), low, high)
    own = weights[(size - 1).clamp(min=0)]
    # not a product of matrices, which may round equal labels differently
    final = (own[:, :, None] * joint).sum(1)
    last = final.sort(1, descending=True).values.gather(1, (size - 1).clamp(min=0)[:, None])
    near = TIE_UNITS * torch.finfo(dtype).eps * last.abs()
    return _largest_labels(final, last - near, last + near, size), value


def _search_prefixes(
    scores: Tensor,
    descending: Tensor,
    empty: Tensor,
    joint: Tensor,
    cardinalities: tuple[int, ...],
    beta: float | Tensor,
    low: Any,
    high: Any,
) -> tuple[Tensor, Tensor]:
    """Find the best sets where one order of the labels serves all sizes; joint is (K, s, n)."""
    weights = _weights(cardinalities, scores.shape[1], beta, joint.dtype, joint.device)
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
    cardinalities: tuple[int, ...],
    s: int,
    beta: float | Tensor,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return ``(1 + beta^2) / (beta^2 k + l)`` for predictions of 1..s labels, of shape (s, K)."""
    k = size_tensor(cardinalities, device).to(dtype)
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


def _by_rows(
    work: Callable[..., tuple[Tensor, Tensor]], per_row: int, *arrays: Tensor
) -> tuple[Tensor, Tensor]:
    """Do work on some rows at a time, where it is not traced."""
    if is_tracing():
        return work(*arrays)
    on_host = arrays[0].device.type == "cpu"
    rows = max(1, (AT_ONCE if on_host else AT_ONCE_ON_DEVICE) // per_row)
    if rows >= len(arrays[0]):
        return work(*arrays)
    starts = range(0, len(arrays[0]), rows)
    parts = [work(*(array[i : i + rows] for array in arrays)) for i in starts]
    labels, values = (torch.cat(part) for part in zip(*parts, strict=True))
    return labels, values


def _limits(low: Limit, high: Limit, s: int) -> tuple[Any, Any]:
    """Return the limits on the number of labels: checked, or cut where they are tensors."""
    if not isinstance(low, Tensor):
        low = check_count("min_labels", low, low=0)
        if low > s:
            raise ValueError(f"min_labels is {low}, but there are only {s} labels")
    if high is not None and not isinstance(high, Tensor):
        high = min(check_count("max_labels", high, low=0), s)
        if not isinstance(low, Tensor) and low > high:
            raise ValueError(f"min_labels must not be above max_labels, got {low} and {high}")
    low = low.clamp(0, s) if isinstance(low, Tensor) else low
    if high is None:
        return low, s
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        high = torch.maximum(torch.as_tensor(low), torch.as_tensor(high)).clamp(max=s)
    return low, high


def _read_beta(beta: float | Tensor, device: torch.device) -> float | Tensor:
    if not isinstance(beta, Tensor):
        return check_beta(beta)
    # a number on the host costs no copy; one that is elsewhere is moved there
    return beta if beta.device.type in ("cpu", device.type) else beta.to(device)


def _of_numpy(part: Tensor) -> torch.dtype:
    """Return the type in which NumPy can have a tensor."""
    return torch.promote_types(part.dtype, torch.float32)


def fbeta_of_rows(preds: Tensor, target: Tensor, beta: float) -> Tensor:
    """Return the F_beta of each row of label sets of shape (n, s), where two empty sets have 1."""
    predicted, true = preds > 0, target > 0
    hits, k, size = (part.sum(-1).double() for part in (predicted & true, true, predicted))
    scores: Any = fbeta_of_counts(hits, k, size, beta)
    return torch.as_tensor(scores)


def _search_label_statistics(form: Dense, beta: float, goal: Goal) -> tuple[Tensor, Tensor]:
    """Find the best label sets of statistics on a device, without a wait for it."""
    statistics = Statistics(form.empty, form.joint, tuple(form.cardinalities.tolist()))
    return _decode_dense(statistics, beta, goal.low, goal.high)


register_search("cuda", _search_label_statistics)
