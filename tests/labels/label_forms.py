"""One label matrix in every form that labels may have, for tests over all of them."""

from __future__ import annotations

from decimal import Decimal
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

NAMES = np.array(["sea", "sky", "tree"])


def matrices(Y: np.ndarray) -> dict[str, Any]:
    """Forms whose columns have no names."""
    types = "bool int8 uint8 int64 float16 float32 float64 longdouble >i4 >f8 U1 S1 object"
    forms: dict[str, Any] = {f"array {t}": Y.astype(int).astype(t) for t in types.split()}
    forms |= {f"sparse {f}": sp.csr_array(Y).asformat(f) for f in ("bsr", "coo", "csc", "dok")}
    forms |= {
        "Fortran order": np.asfortranarray(Y),
        "every second": np.repeat(Y, 2, axis=0)[::2],
        "object of strings": Y.astype(int).astype(str).astype(object),
        "object of decimals": np.vectorize(Decimal, otypes=[object])(Y.astype(int)),
        "nested lists": Y.tolist(),
        "nested tuples": tuple(map(tuple, Y.astype(bool).tolist())),
        "rows as arrays": list(Y),
        "masked without masked entries": np.ma.masked_array(Y, mask=np.zeros(Y.shape, bool)),
        "csr with explicit zeros": sp.csr_array(
            (Y.ravel(), np.tile(np.arange(3), len(Y)), np.arange(0, Y.size + 1, 3)), Y.shape
        ),
    }
    return forms


def frames(Y: np.ndarray) -> dict[str, Any]:
    """Forms whose columns have names."""
    Y = Y.astype(int)
    plain, text = (pd.DataFrame(y, columns=NAMES) for y in (Y, Y.astype(str)))
    types = "bool int8 float16 float64 Int8 boolean Float32 object category"
    forms: dict[str, Any] = {f"pandas {t}": plain.astype(t) for t in types.split()}
    forms |= {f"pandas text {t}": text.astype(t) for t in ("string", "object", "category")}
    forms["pandas category of bools"] = plain.astype(bool).astype("category")
    forms["pandas in another order"] = plain[NAMES[[2, 0, 1]]]
    forms["pandas with another index"] = plain.set_index(np.arange(len(Y))[::-1])
    forms["pandas of several types"] = plain.astype({"sea": bool, "sky": float, "tree": "Int8"})
    if find_spec("pyarrow"):
        forms |= _arrow(Y)
    if find_spec("polars"):
        forms |= _polars(Y)
    return forms


def _arrow(Y: np.ndarray) -> dict[str, Any]:
    import pyarrow as pa

    table = pa.table({name: pa.array(Y[:, j]) for j, name in enumerate(NAMES)})
    types = (pa.bool_(), pa.int8(), pa.float32(), pa.string(), pa.decimal128(21, 2))
    forms = {
        f"arrow {t}": table.cast(pa.schema([pa.field(name, t) for name in NAMES])) for t in types
    }
    coded = [table[name].cast(pa.string()).dictionary_encode() for name in NAMES]
    forms["arrow dictionary"] = pa.table(coded, names=NAMES.tolist())
    return forms


def _polars(Y: np.ndarray) -> dict[str, Any]:
    import polars as pl

    plain = pl.DataFrame(Y, schema=NAMES.tolist())
    types = (pl.Boolean, pl.Int8, pl.Float32, pl.String, pl.Decimal(10, 2))
    forms = {f"polars {t}": plain.cast(t) for t in types}
    coded = (pl.Categorical, pl.Enum(["0", "1"]))
    return forms | {f"polars {t}": plain.cast(pl.String).cast(t) for t in coded}


def tags(Y: np.ndarray) -> dict[str, Any]:
    """Label sets of strings."""
    rows = [NAMES[row > 0].tolist() for row in Y]
    forms: dict[str, Any] = {
        "lists": rows,
        "tuples": list(map(tuple, rows)),
        "sets": list(map(set, rows)),
        "frozensets": tuple(map(frozenset, rows)),
        "lists in another order": [row[::-1] for row in rows],
        "lists with duplicates": [row + row[:1] for row in rows],
        "arrays": [np.array(row, dtype=str) for row in rows],
        "series": pd.Series(rows),
        "object array": pd.Series(rows).to_numpy(),
        "dict values": dict(enumerate(rows)).values(),
    }
    if find_spec("pyarrow"):
        import pyarrow as pa

        coded = pa.list_(pa.dictionary(pa.int8(), pa.string()))
        forms |= {"arrow lists": pa.array(rows), "arrow coded lists": pa.array(rows, coded)}
    if find_spec("polars"):
        import polars as pl

        coded = pl.List(pl.Categorical)
        forms |= {"polars lists": pl.Series(rows), "polars coded": pl.Series(rows, dtype=coded)}
    return forms


def numbers(Y: np.ndarray) -> dict[str, Any]:
    """Label sets of the numbers of columns."""
    rows = [np.flatnonzero(row).tolist() for row in Y]
    return {
        "lists of numbers": rows,
        "sets of numbers": list(map(set, rows)),
        "arrays of numbers": [np.array(row, dtype=np.int32) for row in rows],
        "series of number sets": pd.Series(list(map(frozenset, rows))),
    }


GROUPS = {"matrix": matrices, "frame": frames, "tags": tags, "numbers": numbers}
# which groups can be matched with which: by name, or by the order of columns
MATCHED = {
    "matrix": {"matrix", "frame", "numbers"},
    "frame": {"matrix", "frame", "tags"},
    "tags": {"tags", "frame"},
    "numbers": {"numbers", "matrix"},
}


def all_forms(Y: np.ndarray) -> dict[str, tuple[str, Any]]:
    """Return every form by name, with its group."""
    return {
        f"{group}: {name}": (group, form)
        for group, make in GROUPS.items()
        for name, form in make(Y).items()
    }


# not by position, as the columns have names in another order
MOVED = "frame: pandas in another order"
