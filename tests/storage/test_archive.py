"""Model files that claim more than they have."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fbeta.storage.archive import read_archive, unfolded_bound
from fbeta.storage.model_files import ModelFileError, load_model

from .. import make_models
from ..cases import slow
from ..children import child
from ..fuzz import LIMIT

pytest.importorskip("skops.io", reason="skops is not installed")

# of format 2, and of format 3 with parts of scikit-learn
MODEL = (make_models.FOLDER / "method-fbeta.skops").read_bytes()
PIPELINE = (make_models.FOLDERS[1] / "pipeline.skops").read_bytes()


WITHOUT_TORCH = """
import importlib, sys
from fbeta.storage.model_files import load_model
load_model(sys.argv[1])
assert "skops.io" in sys.modules
print("torch" in sys.modules, "dask.array" in sys.modules, end=" ")
importlib.import_module("sklearn.externals.array_api_compat.torch")
print("torch" in sys.modules)
"""


def test_a_model_is_loaded_without_pytorch_and_dask():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("sklearn.externals.array_api_compat", reason="since scikit-learn 1.7")
    with child("-c", WITHOUT_TORCH, make_models.FOLDERS[1] / "pipeline.skops") as process:
        assert process.stdout.read().split() == [b"False", b"False", b"True"]


def pack(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def members(data: bytes = MODEL) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(**changes: Any) -> bytes:
    """A sparse matrix as scipy stores it, with other arrays."""
    out = io.BytesIO()
    matrix = sparse.csr_matrix(np.eye(3))
    parts = {"format": b"csr", "shape": (3, 3), "data": matrix.data,
             "indices": matrix.indices, "indptr": matrix.indptr}  # fmt: skip
    np.savez_compressed(out, **{**parts, **changes})
    return out.getvalue()


def with_leaves(nodes: list[dict[str, Any]], extra: dict[str, bytes]) -> bytes:
    """The model, with other leaves."""
    changed = []
    for name, content in members():
        if name == "schema.json":
            schema = json.loads(content)
            schema["content"]["leaves"]["content"] += nodes
            content = json.dumps(schema).encode()
        changed.append((name, content))
    return pack([*changed, *extra.items()])


def with_entries(entries: list[dict[str, Any]], extra: dict[str, bytes], parts: Any = ...) -> bytes:
    """The model of format 3, with other leaves."""
    changed = dict(members(PIPELINE))
    content = json.loads(changed.pop("model.json"))
    content["leaves"] += entries
    content["parts"] = content["parts"] if parts is ... else parts
    return pack([*{**changed, **extra}.items(), ("model.json", json.dumps(content).encode())])


def array_node(file: str, identity: int | None) -> dict[str, Any]:
    node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode",
            "type": "numpy", "file": file}  # fmt: skip
    return node if identity is None else {**node, "__id__": identity}


def sparse_node(file: str, identity: int) -> dict[str, Any]:
    return {"__class__": "csr_matrix", "__module__": "scipy.sparse._csr", "type": "scipy",
            "__loader__": "SparseMatrixNode", "file": file, "__id__": identity}  # fmt: skip


def lying(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    out = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + bytes(8)


def many_references() -> bytes:
    # 8 MB that would be read a thousand times
    nodes = [array_node("big.npy", 10**6 + i) for i in range(1_000)]
    return with_leaves(nodes, {"big.npy": npy(np.zeros(10**6))})


@cache
def nested_bomb() -> bytes:
    """Some MB whose inner archive unfolds to more than a GiB."""
    inner, chunk, count = io.BytesIO(), bytes(2**22), 300
    with (
        zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("data.npy", "w", force_zip64=True) as file,
    ):
        header = {"descr": "|i1", "fortran_order": False, "shape": (count * len(chunk),)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(count):
            file.write(chunk)
    return with_leaves([sparse_node("b.npz", 1)], {"b.npz": inner.getvalue()})


@cache
def long_schema() -> bytes:
    return pack([("schema.json", b"[" + b"[]," * 8_000_000 + b"[]]")])


def overlapping() -> bytes:
    """A directory that lists one member a thousand times."""
    data = pack([("schema.json", b"{}"), ("a.npy", npy(np.zeros(1_000)))])
    end = data.rindex(b"PK\x05\x06")
    start = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", start + 1)
    entry = data[second:end]
    entries = data[start:second] + b"".join(
        entry.replace(b"a.npy", f"{i:05d}".encode()) for i in range(1_000)
    )
    tail = bytearray(data[end:])
    tail[8:12] = (1_001).to_bytes(2, "little") * 2
    tail[12:16] = len(entries).to_bytes(4, "little")
    return data[:start] + entries + bytes(tail)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "one array many times": (many_references, "would unfold to more than 1 GiB"),
    "without identity": (
        lambda: with_leaves(
            [array_node("big.npy", None)] * 1_000, {"big.npy": npy(np.zeros(10**6))}
        ),
        "would unfold to more than 1 GiB",
    ),
    "a schema of lists": (long_schema, "would unfold to more than 1 GiB"),
    "an archive within that unfolds": (nested_bomb, "would unfold to more than 1 GiB"),
    "members over each other": (overlapping, "lie over each other|Overlapped"),
    "two of a name": (lambda: pack([*members(), ("schema.json", b"{}")]), "two parts of the same"),
    "compressed": (lambda: pack(members(), zipfile.ZIP_DEFLATED), "compressed"),
    "no schema": (lambda: pack(members()[:0]), "no schema"),
    "absent member": (lambda: with_leaves([array_node("x.npy", 1)], {}), "lacks its part 'x.npy'"),
    "shape without bytes": (
        lambda: with_leaves([array_node("x.npy", 1)], {"x.npy": lying((10**9,))}), "the shape"
    ),
    "items of no size": (
        lambda: with_leaves([array_node("x.npy", 1)], {"x.npy": lying((10**15,), "<U0")}), "<U0"
    ),
    "fields": (
        lambda: with_leaves([array_node("x.npy", 1)], {"x.npy": npy(np.zeros(2, "i4,f8"))}),
        "allow_pickle=False",
    ),
    "archive within": (
        lambda: with_leaves([sparse_node("x.npz", 1)], {"x.npz": pack([("a.zip", MODEL)])}),
        "no array",
    ),
    "archive within, wrong shape": (
        lambda: with_leaves(
            [sparse_node("x.npz", 1)], {"x.npz": pack([("data.npy", lying((10**9,)))])}
        ),
        "the shape",
    ),
    "index outside": (
        lambda: with_leaves(
            [sparse_node("x.npz", 1)], {"x.npz": npz(indices=np.array([0, 1, 10**6]))}
        ),
        "indices|index",
    ),
    "one array many times, format 3": (
        lambda: with_entries([{"file": "big.npy"}] * 1_000, {"big.npy": npy(np.zeros(10**6))}),
        "would unfold to more than 1 GiB",
    ),
    "parts twice, format 3": (
        lambda: with_entries([], {}, [{"file": "parts.skops"}, {"file": "parts.skops"}]), "twice"
    ),
    "parts as a leaf, format 3": (
        lambda: with_entries([{"file": "parts.skops"}], {}), "twice"
    ),
    "a schema of lists in the parts, format 3": (
        lambda: with_entries([], {"parts.skops": long_schema()}), "would unfold to more than 1 GiB"
    ),
    "an archive within the parts that unfolds, format 3": (
        lambda: with_entries([], {"parts.skops": nested_bomb()}), "would unfold to more than 1 GiB"
    ),
    "compressed parts, format 3": (
        lambda: with_entries([], {"parts.skops": pack(members(), zipfile.ZIP_DEFLATED)}),
        "compressed",
    ),
    "shape without bytes, format 3": (
        lambda: with_entries([{"file": "x.npy"}], {"x.npy": lying((10**9,))}), "the shape"
    ),
    "index outside, format 3": (
        lambda: with_entries(
            [{"file": "x.npz"}], {"x.npz": npz(indices=np.array([0, 1, 10**6]))}
        ),
        "indices|index",
    ),
    "absent member, format 3": (
        lambda: with_entries([{"file": "x.npy"}], {}), "lacks its part 'x.npy'"
    ),
    "compressed, format 3": (lambda: pack(members(PIPELINE), zipfile.ZIP_DEFLATED), "compressed"),
    "a long state, format 3": (
        lambda: pack([("model.json", b"[" + b"[]," * 8_000_000 + b"[]]")]),
        "would unfold to more than 1 GiB",
    ),
    "pointer outside": (
        lambda: with_leaves(
            [sparse_node("x.npz", 1)], {"x.npz": npz(indptr=np.array([0, 2, 1, 3]))}
        ),
        "indptr|pointer|monoton|non-decreasing|index",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [slow(name) if "within" in name and "unfolds" in name else name for name in HOSTILE]
)
def test_what_a_file_claims_is_refused_before_it_is_made(name: str, tmp_path: Path) -> None:
    make, words = HOSTILE[name]
    path = tmp_path / "m.skops"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path.write_bytes(make())
    size = path.stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=words):
            load_model(path)
        assert tracemalloc.get_traced_memory()[1] < 5 * size + 2**24
    finally:
        tracemalloc.stop()


def test_honest_files_are_far_below_the_bound() -> None:
    for path in [path for folder in make_models.FOLDERS for path in folder.glob("*.skops")]:
        data = path.read_bytes()
        assert unfolded_bound(len(data)) > 2**30
        assert isinstance(read_archive(data), dict)


def test_matrices_that_are_shared_load_once(tmp_path: Path) -> None:
    nodes = [sparse_node("a.npz", 7), sparse_node("a.npz", 7)]
    assert isinstance(read_archive(with_leaves(nodes, {"a.npz": npz()})), dict)


BOUNDED = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
warnings.simplefilter("ignore")
from fbeta.cli import main
sys.exit(main(["predict", sys.argv[1], sys.argv[2]]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("many.skops", many_references),
        ("schema.skops", long_schema),
    ],
)
def test_hostile_models_stay_below_a_limit(
    name: str, content: Callable[[], bytes], tmp_path: Path
) -> None:
    pytest.importorskip("typer", reason="typer is not installed")
    path = tmp_path / name
    path.write_bytes(content())
    (tmp_path / "x.csv").write_text("x,y\n1,2\n")
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED.format(limit=LIMIT), str(path), str(tmp_path / "x.csv")],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "would unfold" in done.stderr
