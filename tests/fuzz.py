"""Feed damaged files to readers and to the loader of models: python -m tests.fuzz KIND COUNT SEED.

Run in a process of its own, whose address space is limited: what takes more memory fails. Prints
the number of inputs that were refused and that were read, as JSON.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMIT = 4 * 2**30
# in the place of parts of a file
PIECES = [
    b"", b"\0", b"\n", b'"', b"'", b",", b";", b"[", b"]", b"{", b"}", b":", b"999999999", b"-1",
    b"1e999", b"nan", b"NaN", b"null", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[31m", b"@data\n", b"#",
    b"9" * 400, b"[[[[[[[[", "\u0661\u0662".encode(), b"1_0", b"2024-13-45", b"=cmd()", b"\xe9",
]  # fmt: skip
JUNK: list[Any] = [
    None, -1, 0, 1, 2**31, 2**62, 10**15, 1e308, float("nan"), "", "x", "os.system", [], {}, [[]],
    True, {"leaf": 0}, {"tuple": []}, {"type": "list"}, "csr_array", "NdArrayNode", "\0", "9" * 30,
]  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Cut, repeat, replace and flip at a few places."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(content) + 1)
        stop = min(len(content), start + rng.choice([0, 1, 1, 4, 20]))
        match rng.randrange(4):
            case 0:
                content[start:stop] = rng.choice(PIECES)
            case 1 if start < len(content):
                content[start] ^= rng.randint(1, 255)
            case 2:
                content[start:start] = content[start:stop] * rng.randint(1, 50)
            case _:
                del content[start : max(stop, start + rng.choice([0] * 9 + [len(content)]))]
    return bytes(content)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """All the (container, key) pairs of something that JSON gave."""
    pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    for key, part in pairs:
        yield node, key
        if isinstance(part, dict | list):
            yield from places(part)


def forge(text: str, rng: random.Random) -> str:
    """Put junk into JSON."""
    content = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        node, key = rng.choice(list(places(content)))
        try:
            node[key] = copy.deepcopy(rng.choice(JUNK))
        except (KeyError, IndexError):
            continue
    return json.dumps(content)


def repack(data: bytes, change: Callable[[str, bytes], bytes], extra: dict[str, bytes]) -> bytes:
    """Change the members of an archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))
        for name, content in extra.items():
            new.writestr(name, content)
    return out.getvalue()


def damaged_model(data: bytes, rng: random.Random) -> bytes:
    """Damage a model file: its bytes, its schema, the state in it, or an array."""

    def change(name: str, content: bytes) -> bytes:
        if name == "model.json" and kind in ("schema", "state"):
            return forge(content.decode(), rng).encode()
        if name != "schema.json":
            return mutate(content, rng) if kind == "array" and rng.random() < 0.4 else content
        if kind == "schema":
            return forge(content.decode(), rng).encode()
        if kind == "state":
            schema = json.loads(content)
            node = schema["content"]["estimator"]
            node["content"] = json.dumps(forge(json.loads(node["content"]), rng))
            return json.dumps(schema).encode()
        return content

    kind = rng.choice(["bytes", "schema", "state", "state", "array"])
    return mutate(data, rng) if kind == "bytes" else repack(data, change, {})


def fuzz_models(count: int, rng: random.Random, folder: Path) -> dict[str, int]:
    from fbeta.storage.model_files import ModelFileError, load_model

    files = sorted((Path(__file__).parent / "data").glob("models*/*.skops"))
    sources = [file.read_bytes() for file in files]
    found = {"refused": 0, "read": 0}
    path = folder / "m.skops"
    for number in range(count):
        path.write_bytes(damaged_model(rng.choice(sources), rng))
        try:
            stored = load_model(path)
            stored.predict(stored.blank_row())
        except ModelFileError as error:
            if isinstance(error.__cause__, MemoryError):
                raise AssertionError(f"model {number} took more than the limit") from error
            found["refused"] += 1
        else:
            found["read"] += 1
    return found


CSV = (
    'size;when;note;kind;id;tags\n1,5;2024-01-31;"a ""quoted"" word";red;r1;a, b\n'
    "-2;2023-12-01;;blue;r2;\n3;2022-02-02;many words are here;red;r3;b\n;NA;?;red;r4;a\n"
)
JSONL = (
    '{"size": 1.5, "note": "words", "tags": ["a", "b"]}\n{"size": null, "tags": []}\n'
    '{"size": 3, "note": "more words", "tags": ["b"], "deep": {"x": [1]}}\n{"tags": "a;b;"}\n'
)
SVM = "1,2 1:0.5 3:2 # comment\n 2:1e-3\n7 1:4 2:-5\n"
ARFF = (
    "@relation 'toy: -C 2'\n@attribute A {0,1}\n@attribute B {1,0}\n@attribute size numeric\n"
    "@attribute c {red,'dark green',blue}\n@data\n1,0,1.5,'dark green'\n0,1,?,red\n1,1,-2e3,blue\n"
)
SPARSE = ARFF[: ARFF.index("@data") + 6] + "{0 1,1 0,2 1.5,3 blue}\n{}\n{2 ?, 3 'dark green'}\n"


def parquet() -> bytes:
    import pandas

    out = io.BytesIO()
    frame = pandas.DataFrame(
        {"size": [1.0, None, 3.0], "when": pandas.to_datetime(["2024-01-31"] * 3),
         "note": ["a", None, "b c d e"], "tags": [["a", "b"], [], ["b"]]}
    )  # fmt: skip
    frame.to_parquet(out)
    return out.getvalue()


def fuzz_readers(count: int, rng: random.Random, folder: Path) -> dict[str, int]:
    from fbeta.datasets.label_columns import LabelColumns
    from fbeta.datasets.model_data import TrainingOptions, read_training

    tags = TrainingOptions(labels=LabelColumns(column="tags"))
    seeds: dict[str, tuple[bytes, TrainingOptions]] = {
        "a.csv": (CSV.encode(), tags),
        "b.csv": (CSV.encode("utf-16"), tags),
        "c.csv.gz": (gzip.compress(CSV.encode()), tags),
        "a.tsv": (CSV.replace(";", "\t").encode("cp1252"), tags),
        "a.jsonl": (JSONL.encode(), tags),
        "a.svm": (SVM.encode(), TrainingOptions()),
        "a.arff": (ARFF.encode(), TrainingOptions(missing="mean")),
        "b.arff": (SPARSE.encode(), TrainingOptions(missing="mean", nominal="onehot")),
        "a.parquet": (parquet(), tags),
    }
    found = {"refused": 0, "read": 0}
    for number in range(count):
        name = rng.choice(list(seeds))
        data, reading = seeds[name]
        path = folder / name
        path.write_bytes(mutate(data, rng))
        try:
            training = read_training(path, reading)
        except (ValueError, OSError) as error:
            if isinstance(error.__cause__, MemoryError):
                raise AssertionError(f"{name} {number} took more than the limit") from error
            found["refused"] += 1
        else:
            assert training.data.n_samples > 0
            assert training.data.n_features > 0
            found["read"] += 1
    return found


def main(kind: str, count: int, seed: int) -> None:
    """Fuzz under the limit."""
    import resource  # of POSIX

    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    warnings.simplefilter("ignore")
    fuzz = {"models": fuzz_models, "readers": fuzz_readers}[kind]
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(fuzz(count, random.Random(seed), Path(folder))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
