"""Labels with names."""

from __future__ import annotations

import numpy as np

NAMES = np.array(["sea", "sky", "sun"])


def as_sets(Y):
    """Rows of 0 and 1 as lists of names."""
    return [NAMES[row.astype(bool)].tolist() for row in Y]
