"""Twenty files as people have them, with no options but the column of labels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..cases import slow_but
from .toys import Run

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")

RNG = np.random.default_rng(7)
N = 120
WORDS = [
    "battery",
    "screen",
    "camera",
    "sound",
    "price",
    "delivery",
    "service",
    "quality",
    "design",
    "software",
    "update",
    "broken",
    "excellent",
    "slow",
    "cheap",
    "heavy",
    "light",
    "bright",
    "noisy",
    "fast",
]


def sentence(k: int) -> str:
    return " ".join(RNG.choice(WORDS, size=6)) + f" {WORDS[k]}"


def pick(*values: Any) -> Any:
    return values[RNG.integers(len(values))]


def gap(value: Any, share: float = 0.1, word: str = "") -> Any:
    return word if RNG.random() < share else value


@dataclass(frozen=True)
class File:
    """A kind of file: its columns besides the tags, by the topic of a row, and how it looks."""

    columns: dict[str, Callable[[int, int], Any]]
    label: str = "tags"
    sep: str = ","
    tags: str = ";"
    encoding: str = "utf-8"
    suffix: str = ".csv"
    names: tuple[str, ...] = ("alpha", "beta", "gamma", "delta")
    before: str = ""
    newline: str = "\n"


def real(k: int, i: int) -> str:
    return f"{k + RNG.normal(0, 0.5):.3f}"


FILES: dict[str, File] = {
    "reviews": File(
        {
            "review_id": lambda k, i: f"R{i:05d}",
            "text": lambda k, i: sentence(k),
            "stars": lambda k, i: int(RNG.integers(1, 6)),
        },
        tags=", ",
    ),
    "sensors": File(
        {
            "time": lambda k, i: f"2024-02-{1 + i % 28:02d} {i % 24:02d}:30:00",
            "temp": real,
            "status": lambda k, i: pick("ok", "warn"),
        },
        sep=";",
    ),
    "german": File(
        {
            "Groesse": lambda k, i: real(k, i).replace(".", ","),
            "Stra\u00dfe": lambda k, i: f"M\u00fcllerstra\u00dfe {i % 9}",
            "Datum": lambda k, i: f"{1 + i % 28}.{1 + i % 12}.2023",
        },
        label="Stichw\u00f6rter",
        sep=";",
        tags=", ",
        encoding="cp1252",
        names=("gr\u00fcn", "blau", "rot", "wei\u00df"),
    ),
    "excel": File(
        {"Item No": lambda k, i: i + 1, "Weight (kg)": real, "Unit": lambda k, i: "kg"},
        sep=";",
        before="sep=;\n",
        newline="\r\n",
    ),
    "utf16": File(
        {"name": lambda k, i: pick("\u65e5\u672c", "\u4e2d\u56fd"), "x": real},
        sep="\t",
        encoding="utf-16",
        suffix=".tsv",
    ),
    "pandas": File(
        {"": lambda k, i: i, "x": real, "flag": lambda k, i: pick("True", "False")}, tags=""
    ),
    "json lists": File({"x": real, "uuid": lambda k, i: f"{i:032x}"}, tags="json"),
    "python lists": File({"x": real, "note": lambda k, i: sentence(k)}, tags="python"),
    "gaps": File(
        {
            "age": lambda k, i: gap(real(k, i), 0.3, "NA"),
            "city": lambda k, i: gap(pick("Oslo", "Rome", "Lima"), 0.2, ""),
            "when": lambda k, i: gap(f"2020-01-{1 + i % 28:02d}", 0.2, "null"),
        }
    ),
    "odd words": File(
        {
            "x": lambda k, i: "unknown" if i == 5 else real(k, i),
            "y": lambda k, i: gap(real(k, i), 0.05, "-"),
        }
    ),
    "american": File(
        {
            "date": lambda k, i: f"{1 + i % 12}/{1 + i % 28}/2022",
            "amount": real,
            "zip": lambda k, i: f"{10000 + 37 * (i % 20)}",
        }
    ),
    "bars": File(
        {"x": real, "kind": lambda k, i: pick("a", "b"), "text": lambda k, i: sentence(k)},
        sep="|",
        tags=",",
    ),
    "quotes": File(
        {"text": lambda k, i: f'He said "{WORDS[k]}", twice;\nthen left {i % 7}', "x": real}
    ),
    "trailing": File({"x": real, "c": lambda k, i: pick("u", "v")}, tags=";;end"),
    "long numbers": File(
        {
            "big": lambda k, i: f"{k * 1e12 + i:.0f}",
            "small": lambda k, i: f"{(k + 1) * 1e-9:.3e}",
            "x": real,
        }
    ),
    "constant": File({"version": lambda k, i: "1.0", "empty": lambda k, i: "", "x": real}),
    "names": File(
        {
            "email": lambda k, i: f"{WORDS[i % 20]}{i % 50}@{WORDS[k]}.example",
            "country": lambda k, i: pick("DE", "NO", "NA", "IT"),
        }
    ),
    "spaces": File(
        {" first col ": real, "second col": lambda k, i: pick(" a ", "b ")},
        tags=" ; ",
        newline="\r",
    ),
    "marks": File({"x": real, "text": lambda k, i: sentence(k)}, encoding="utf-8-sig"),
    "many": File({f"f{j}": real for j in range(30)}, names=tuple(f"label {j}" for j in range(4))),
}


def cell(tags: list[str], form: str) -> str:
    if form == "json":
        return json.dumps(tags)
    if form in ("python", ""):
        return str(tags)
    if form == ";;end":
        return "".join(f"{tag};" for tag in tags)
    return form.join(tags)


def write(path: Path, file: File, n: int, labelled: bool = True) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=file.sep, lineterminator=file.newline)
    writer.writerow([*file.columns, *([file.label] if labelled else [])])
    for i in range(n):
        k = int(RNG.integers(len(file.names)))
        tags = [file.names[k], *([file.names[0]] if k and RNG.random() < 0.3 else [])]
        tags = tags if RNG.random() > 0.05 else []
        cells = [column(k, i) for column in file.columns.values()]
        writer.writerow([*cells, *([cell(tags, file.tags)] if labelled else [])])
    path.write_bytes((file.before + out.getvalue()).encode(file.encoding))


def test_there_are_twenty() -> None:
    assert len(FILES) == 20
    assert len({file.sep for file in FILES.values()}) >= 4
    assert len({file.encoding for file in FILES.values()}) >= 4


# dates, an encoding of Windows, gaps, cells that are no numbers, texts with quotes and line ends
KEPT = ("sensors", "german", "gaps", "odd words", "quotes")


@pytest.mark.parametrize("name", slow_but(KEPT, FILES))
def test_files_of_people_are_fitted_and_predicted(name: str, tmp_path: Path, run: Run) -> None:
    file = FILES[name]
    train, test, new = (tmp_path / f"{part}{file.suffix}" for part in ("train", "test", "new"))
    write(train, file, N)
    write(test, file, 40)
    write(new, file, 15, labelled=False)
    model = tmp_path / "m.skops"
    code, out, err = run("fit", train, "--label-column", file.label, "-o", model, "--json")
    assert (code, err) == (0, "")
    fitted = json.loads(out)
    assert sorted(fitted["counts"]) == sorted(file.names)
    assert fitted["rows"] == N
    code, out, err = run("predict", model, new, "--json")
    noted = "read as numbers and count as missing" if name == "odd words" else ""
    assert (code, noted in err, bool(err)) == (0, True, bool(noted))
    predicted = json.loads(out)
    assert len(predicted) == 15
    assert all(set(row[file.label]) <= set(file.names) for row in predicted)
    code, out, err = run("evaluate", model, test, "--json")
    assert (code, bool(err)) == (0, bool(noted))
    # every file says something of its labels, but for the one of chance
    assert json.loads(out)["fbeta"] > (0.3 if name == "utf16" else 0.4)


KINDS = {
    "reviews": {"review_id": "id", "text": "text", "stars": "numeric"},
    "sensors": {"time": "date", "temp": "numeric", "status": "categorical"},
    "german": {"Groesse": "numeric", "Stra\u00dfe": "categorical", "Datum": "date"},
    "excel": {"Item No": "id", "Weight (kg)": "numeric", "Unit": "constant"},
    "pandas": {"Unnamed: 0": "id", "x": "numeric", "flag": "numeric"},
    "odd words": {"x": "numeric", "y": "numeric"},
    "constant": {"version": "constant", "empty": "empty", "x": "numeric"},
    "american": {"date": "date", "amount": "numeric", "zip": "numeric"},
    "json lists": {"x": "numeric", "uuid": "id"},
}


@pytest.mark.parametrize("name", KINDS)
def test_their_columns_are_what_one_would_say(name: str, tmp_path: Path, run: Run) -> None:
    file, train = FILES[name], tmp_path / f"a{FILES[name].suffix}"
    write(train, file, N)
    code, out, _ = run(
        "fit",
        train,
        "--label-column",
        file.label,
        "--alpha",
        1,
        "-o",
        tmp_path / "m.skops",
        "--json",
    )
    assert code == 0
    assert {c["name"]: c["kind"] for c in json.loads(out)["columns"]} == KINDS[name]
