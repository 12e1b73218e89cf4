"""One messy table in every format: the same kinds, the same labels, the same F."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fbeta.storage.model_files import load_model

from .toys import Run

for needed in ("typer", "skops", "pyarrow", "openpyxl"):
    pytest.importorskip(needed)

FIT = ("--label-column", "tags", "--alpha", 0.01)


def messy(n: int, seed: int, decimal: str = ".") -> pd.DataFrame:
    """Rows whose tags follow from a price, a share, a date and an answer."""
    rng = np.random.default_rng(seed)
    price, share = rng.uniform(500, 3000, n).round(2), rng.integers(0, 100, n)
    month, answer = rng.integers(1, 13, n), rng.choice(["yes", "no"], n)
    sides = (price > 1500, share > 50, month > 6, answer == "yes")
    names = ("dear", "half", "late", "sure")
    tags = [
        ";".join(t for t, on in zip(names, row, strict=True) if on) for row in np.array(sides).T
    ]
    money = [f"${value:,.2f}" for value in price]
    dates = [f"{m}/{1 + i % 28}/24" for i, m in enumerate(month)]
    if decimal == ",":
        money = [m[1:].replace(",", "_").replace(".", ",").replace("_", ".") for m in money]
        dates = [f"{1 + i % 28} {pd.Timestamp(2024, m, 1):%b} 2024" for i, m in enumerate(month)]
    return pd.DataFrame(
        {
            "sku": [f"{i:05d}" for i in range(n)],
            "price": money,
            "share": [f"{s} %" for s in share],
            "when": dates,
            "answer": answer,
            "tags": tags,
        }
    )


def write(path: Path, frame: pd.DataFrame) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    elif path.suffix == ".jsonl":
        lists = frame.assign(tags=frame["tags"].str.split(";").map(lambda t: [x for x in t if x]))
        lists.to_json(path, orient="records", lines=True)
    else:
        frame.assign(
            tags=frame["tags"].str.split(";").map(lambda t: [x for x in t if x])
        ).to_parquet(path)
    return path


def evaluate(run: Run, model: Path, data: Path) -> tuple[float, str]:
    code, out, err = run("evaluate", model, data, "--json")
    assert code == 0, err
    return float(json.loads(out)["fbeta"]), err


def test_every_format_gives_the_same(tmp_path: Path, run: Run) -> None:
    scores = set()
    for suffix in (".csv", ".xlsx", ".jsonl", ".parquet"):
        train = write(tmp_path / f"train{suffix}", messy(200, 0))
        code, out, err = run("fit", train, *FIT, "-o", tmp_path / "m.skops", "--json")
        assert (code, err) == (0, "")
        kinds = {c["name"]: c["kind"] for c in json.loads(out)["columns"]}
        assert kinds == {
            "sku": "id",
            "price": "numeric",
            "share": "numeric",
            "when": "date",
            "answer": "categorical",
        }
        scores.add(
            evaluate(run, tmp_path / "m.skops", write(tmp_path / f"t{suffix}", messy(80, 1)))[0]
        )
    assert len(scores) == 1
    assert scores.pop() > 0.85
    # other marks and dates, in the same columns
    plain = evaluate(run, tmp_path / "m.skops", write(tmp_path / "a.csv", messy(80, 1)))
    other = evaluate(run, tmp_path / "m.skops", write(tmp_path / "b.csv", messy(80, 1, ",")))
    assert plain == (other[0], "")
    assert "'price' is written with a decimal ','" in other[1]
    assert "'when' is written with dates such as '" in other[1]


def test_bad_cells_count_as_missing_and_are_told(tmp_path: Path, run: Run) -> None:
    model, new = tmp_path / "m.skops", tmp_path / "new.csv"
    assert run("fit", write(tmp_path / "a.csv", messy(100, 0)), *FIT, "-o", model)[0] == 0
    frame = messy(10, 1)
    frame.loc[[3, 4], "price"], frame.loc[5, "when"] = "on request", "soon"
    code, out, err = run("predict", model, write(new, frame))
    assert code == 0
    assert (
        "'price': 2 cells cannot be read as numbers and count as missing, the first in line 5"
        in err
    )
    assert (
        "'when': 1 cells cannot be read as dates with the month before the day and count as" in err
    )
    methods = ("--label-column", "tags", "--methods", "fbeta", "--alphas", 1, "--json")
    assert run("compare", tmp_path / "a.csv", new, *methods)[2] == err
    missing = frame.assign(price=frame["price"].replace("on request", ""))
    missing["when"] = missing["when"].replace("soon", "")
    assert out == run("predict", model, write(tmp_path / "gaps.csv", missing))[1]
    code, out, err = run("predict", model, new, "--errors", "raise")
    assert (code, out) == (2, "")
    assert "'price', line 5: expected a number, found 'on request'" in err


def test_a_column_without_any_known_category_is_told(tmp_path: Path, run: Run) -> None:
    rows = [f"{i % 7},{'TRUE' if i % 2 else 'FALSE'},{'ab'[i % 2]}" for i in range(300)]
    train, model = tmp_path / "a.csv", tmp_path / "m.skops"
    train.write_text("\n".join(["x,paid,tags", *rows]))
    fit = ("--label-column", "tags", "--categorical", "paid", "--alpha", 1)
    assert run("fit", train, *fit, "-o", model)[0] == 0
    new = write(tmp_path / "b.xlsx", pd.DataFrame({"x": [1, 2, 3], "paid": [True, None, False]}))
    words = (
        "column 'paid': none of {} cells has a value that the model knows, the first is 'True'\n"
    )
    code, _, err = run("predict", model, new)
    assert (code, err) == (0, "fbeta: " + words.format(2))
    # said once for a file in blocks; not where one category is known, or all cells are missing
    new = write(tmp_path / "b.csv", pd.DataFrame({"x": 1, "paid": ["True", "False"] * 150}))
    err = run("predict", model, new, "--memory", "100kB", "-o", tmp_path / "out.csv")[2]
    assert words.format(300) in err
    assert err.count("that the model knows") == 1
    for cells in (["True", "TRUE"], [None, None]):
        new = write(tmp_path / "c.csv", pd.DataFrame({"x": [1, 2], "paid": cells}))
        assert run("predict", model, new)[2] == ""


def test_dates_that_could_be_two_say_how_they_are_read(tmp_path: Path, run: Run) -> None:
    frame, model = messy(100, 0), tmp_path / "m.skops"
    train = write(tmp_path / "a.csv", frame.assign(when=pd.date_range("2024-01-01", periods=100)))
    assert run("fit", train, *FIT, "-o", model)[0] == 0
    code, _, err = run("predict", model, write(train, frame[:1].assign(when="03/04/2024")))
    words = "fbeta: column 'when' is written with dates such as '03/04/2024' with the day before "
    assert (code, err) == (0, words + "the month here\n")


def test_predictions_have_types(tmp_path: Path, run: Run) -> None:
    model, new = tmp_path / "m.skops", write(tmp_path / "new.csv", messy(20, 1))
    assert run("fit", write(tmp_path / "a.csv", messy(100, 0)), *FIT, "-o", model)[0] == 0
    found: dict[str, Any] = {}
    for suffix in (".jsonl", ".parquet", ".xlsx"):
        out = tmp_path / f"out{suffix}"
        code, _, err = run(
            "predict",
            model,
            new,
            "--form",
            "sets",
            "--proba",
            "--expected",
            "--keep",
            "share",
            "-o",
            out,
        )
        assert code == 0, err
        read = {
            ".jsonl": lambda p: pd.read_json(p, lines=True, dtype={"sku": str}),
            ".parquet": pd.read_parquet,
            ".xlsx": lambda p: pd.read_excel(p, dtype={"sku": str}),
        }[suffix]
        found[suffix] = read(out)
        assert found[suffix]["sku"].tolist() == [f"{i:05d}" for i in range(20)]
        assert list(found[suffix])[:3] == ["sku", "share", "tags"]
        assert "proba_dear" in found[suffix]
    assert all(isinstance(row, list) for row in found[".jsonl"]["tags"])
    lists = [list(row) for row in found[".parquet"]["tags"]]
    assert lists == found[".jsonl"]["tags"].tolist()
    assert found[".xlsx"]["tags"].fillna("").tolist() == [";".join(row) for row in lists]
    for name in ("x.xls", "x.pdf", "x.txt", "x.json"):
        code, _, err = run("predict", model, new, "-o", tmp_path / name)
        assert (code, f"{name}: predictions are written as one of .csv, .jsonl" in err) == (2, True)
    for name, options in (("x", ()), ("x.json", ("--json",))):
        assert run("predict", model, new, "-o", tmp_path / name, *options)[0] == 0
    assert (tmp_path / "x").read_text().startswith("sku,")
    assert len(json.loads((tmp_path / "x.json").read_text())) == 20


def test_text_in_a_sheet_is_no_formula(tmp_path: Path, run: Run) -> None:
    import openpyxl

    model, new = tmp_path / "m.skops", tmp_path / "new.csv"
    frame = messy(60, 0)
    assert run("fit", write(tmp_path / "a.csv", frame), *FIT, "-o", model)[0] == 0
    write(new, frame.assign(sku=[f"=1+{i}" for i in range(60)]))
    assert run("predict", model, new, "-o", tmp_path / "out.xlsx")[0] == 0
    sheet = openpyxl.load_workbook(tmp_path / "out.xlsx").active
    assert (sheet["A2"].value, sheet["A2"].data_type) == ("=1+0", "s")


def test_blocks_take_text_categories_and_dates(tmp_path: Path, run: Run) -> None:
    model, train = tmp_path / "m.skops", write(tmp_path / "a.csv", messy(300, 0))
    code, _, err = run("fit", train, *FIT, "-o", model, "--memory", "1MB")
    assert code == 0, err
    assert "by the first 300 rows: sku id, price numeric" in err
    test = write(tmp_path / "t.csv", messy(80, 1))
    assert evaluate(run, model, test)[0] > 0.85
    whole = run("predict", model, test, "--proba")[1]
    out = tmp_path / "out.csv"
    assert run("predict", model, test, "--proba", "--memory", "1MB", "-o", out)[0] == 0
    assert out.read_text() == whole
    frame = messy(300, 0)
    frame.loc[250, "price"] = "on request"
    code, _, err = run(
        "fit", write(train, frame), *FIT, "-o", model, "--memory", "1MB", "--numeric", "price"
    )
    assert code == 2
    assert "'price', line 252: expected a number, found 'on request'" in err


def test_long_cells_and_huge_numbers(tmp_path: Path, run: Run) -> None:
    frame = messy(60, 0)
    frame["note"] = [
        f"{'word ' * 40_000} {i}" if i == 7 else f"a short note {i}" for i in range(60)
    ]
    frame["size"] = [-1e308, *range(59)]
    for suffix in (".csv", ".parquet"):
        train = write(tmp_path / f"a{suffix}", frame)
        code, out, err = run("fit", train, *FIT, "-o", tmp_path / "m.skops")
        assert (code, err) == (0, "")
        assert "1 cells such as '-1e+308' count as missing" in out


def test_hints(tmp_path: Path, run: Run) -> None:
    train, model = write(tmp_path / "a.csv", messy(60, 0)), tmp_path / "m.skops"
    assert run("fit", train, *FIT, "-o", model)[0] == 0
    code, _, err = run("predict", train, model)
    assert code == 2
    assert "the model comes first, then the data" in err
    for option in (("--time-limit", 5), ("--preset", "quick")):
        code, _, err = run("fit", train, *FIT[:2], "--method", "br", *option, "-o", model)
        assert code == 2
        assert "has no time limit" in err
    few = write(tmp_path / "few.csv", messy(3, 0))
    code, _, err = run("fit", few, *FIT[:2], "-o", model)
    assert code == 2
    assert "there are only 3 rows" in err
    frame = messy(60, 0)
    code, out, _ = run(
        "fit", write(train, frame.assign(tags="a;b")), *FIT[:2], "--alpha", 1, "-o", model
    )
    assert "In every row, so that there is nothing to learn: 'a', 'b'" in out
    single = frame.assign(tags=["a" if i % 2 else "b" for i in range(60)])
    assert "exactly one label" in run("fit", write(train, single), *FIT, "-o", model)[1]
    twins = frame.assign(tags=["Gift" if i % 3 else "gift" for i in range(60)])
    out = run("fit", write(train, twins), *FIT, "-o", model)[1]
    assert "'Gift' (40) and 'gift' (20)" in out
    assert run("fit", train, *FIT, "--join-labels", "-o", model)[0] == 0
    assert load_model(model).label_names == ("Gift",)
    # other files may spell the label otherwise
    for i, names in enumerate((["gift"], ["gift", "Gift", "gift"], ["GIFT ", "gift"])):
        tags = [names[j % len(names)] for j in range(60)]
        other = write(tmp_path / f"{i}.csv", frame.assign(tags=tags))
        code, out, err = run("evaluate", model, other, "--json")
        assert code == 0, err
        assert [row["true"] for row in json.loads(out)["by_label"]] == [60]
        assert "never seen" not in err
    forms = frame.assign(tags=["caf\u00e9" if i % 3 else "cafe\u0301" for i in range(60)])
    assert "caf\u00e9' (40) and" in run("fit", write(train, forms), *FIT, "-o", model)[1]


def test_explain(tmp_path: Path, run: Run) -> None:
    train, model = write(tmp_path / "a.csv", messy(200, 0)), tmp_path / "m.skops"
    assert run("fit", train, *FIT, "-o", model)[0] == 0
    code, out, err = run("explain", model, train, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [next(iter(found[name])) for name in ("dear", "half")] == ["price", "share"]
    assert next(iter(found["sure"])).startswith("answer=")
    assert found["sure"].get("answer=yes", 1) > 0
    assert "price" in run("explain", model, train, "--only", "dear")[1]
    assert run("explain", model, train, "--only", "cheap")[0] == 2
