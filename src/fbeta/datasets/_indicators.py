"""Label sets given by names, as rows of 0 and 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fbeta.datasets._common import PathLike, fail
from fbeta.datasets._dataset import Labels


def indicators(
    path: PathLike,
    places: Sequence[int | str],
    label_sets: Sequence[Sequence[str]],
    label_names: Sequence[str] | None,
    order: Callable[[str], Any] = str,
) -> tuple[Labels, tuple[str, ...]]:
    """Turn label sets into a 0/1 matrix.

    Parameters
    ----------
    path : path
        For error messages.
    places : sequence of int or str, length n_samples
        Line number of each row, or other words for it.
    label_sets : sequence of sequence of str, length n_samples
        The labels of each row.
    label_names : sequence of str or None
        The columns; None for the labels that occur, sorted.
    order : callable
        Sort key for the labels that occur.

    Returns
    -------
    Y : ndarray of shape (n_samples, n_labels)
        The label sets.
    names : tuple of str, length n_labels
        The names of the columns.

    Raises
    ------
    DatasetError
        If a row has a label that is not among `label_names`, or no row has any.
    ValueError
        If `label_names` names a label twice.

    Examples
    --------
    >>> Y, names = indicators("a.csv", [2, 3], [["dog"], ["cat", "dog"]], None)
    >>> names, Y.tolist()
    (('cat', 'dog'), [[0, 1], [1, 1]])
    """
    if label_names is None:
        label_names = sorted({label for labels in label_sets for label in labels}, key=order)
    names = tuple(label_names)
    if len(set(names)) < len(names):
        raise ValueError(f"label_names must not name a label twice, got {list(names)}")
    if not names:
        raise fail(path, None, "at least one label in the file")
    column = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(label_sets), len(names)), dtype=np.int8)
    for i, labels in enumerate(label_sets):
        for label in labels:
            if label not in column:
                raise fail(path, places[i], f"labels among {list(names)}", label)
            Y[i, column[label]] = 1
    return Y, names
