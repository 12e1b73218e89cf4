"""The figures of the README are those of the results files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
GPU = json.loads((ROOT / "benchmarks" / "results-gpu.json").read_text(encoding="utf-8"))["cases"]
SHARES = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "sixth": 6}


def rows(heading):
    """Return the cells of the tables below a heading of the README, without their heads."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return [line for line in lines if not set("".join(line)) <= set("-: |") and len(line) > 2]


def digits(value, text):
    """Tell whether a text is a value, rounded to the digits that the text has."""
    _, _, after = text.partition(".")
    return f"{value:.{len(after)}f}" == text


def test_every_table_of_speed_is_that_of_the_benchmarks():
    cases = {
        (c["n"], c["d"], c["problems"]): c for c in RESULTS["solver"] if "dense X" not in c["case"]
    }
    named = {c["case"]: c for c in RESULTS["solver"]}
    body = rows("How fast")[1:]
    assert len(body) == 7
    for problem, ours, peer, ratio in body:
        shape = re.search(r"([\d,]+) x ([\d,]+), ([\d,]+) problems", problem)
        case = cases[tuple(int(part.replace(",", "")) for part in shape.groups())]
        if alpha := re.search(r"alpha = ([\d.]+)", problem):
            case = named[f"word indicators, alpha {alpha[1]}"]
        assert digits(case["ours_s"], ours.removesuffix(" s")), problem
        assert digits(case["peer_s"], peer.split(" s ")[0]), problem
        assert case["peer"].split(",")[0] in peer, problem
        assert digits(case["ratio"], ratio), problem


@pytest.mark.parametrize(
    ("pattern", "case"),
    [
        (r"takes a (\w+) of the time of 40 separate fits", "together"),
        (r"\(a (\w+) on Yeast", "yeast"),
        (r"a (\w+) on Scene\)", "scene"),
    ],
)
def test_shares_of_the_path(pattern, case):
    (ratio,) = (row["ratio"] for row in RESULTS["path"] if row["case"] == case)
    assert SHARES[re.search(pattern, README)[1]] == pytest.approx(ratio, rel=0.15)


def test_where_little_is_saved():
    saved, ratio = re.search(
        r"a fit to Scene saves ([\d.]+) seconds; cross-validation\s+on Yeast is only "
        r"([\d.]+) times",
        README,
    ).groups()
    (scene,) = (case for case in RESULTS["solver"] if case["case"] == "scene")
    assert digits(scene["peer_s"] - scene["ours_s"], saved)
    (yeast,) = (case for case in RESULTS["path"] if case["case"] == "yeast")
    assert digits(yeast["ratio"], ratio)


def test_speed_of_efp():
    fastest, default = re.search(
        r"fitted (\d+)\s+times as fast as by scikit-learn's fastest solver one at a time, "
        r"and (\d+)",
        README,
    ).groups()
    assert digits(RESULTS["efp"]["ratio"], fastest)
    assert digits(RESULTS["efp"]["ratio_default"], default)


def test_seconds_on_a_gpu():
    first, million, decode, search, relevance = re.search(
        r"first of these fits takes ([\d.]+) s, a million rows ([\d.]+) s, and the exact decode "
        r"of a million instances with 101\s+labels ([\d.]+) s; cross-validation over 8 alphas in 5 "
        r"folds takes ([\d.]+) s.*?80 labels ([\d.]+) s",
        README,
        re.DOTALL,
    ).groups()
    seconds = {case["case"]: case["seconds"] for case in GPU.values() if "seconds" in case}
    assert digits(seconds["fit, 31,000 x 120, certified at 1e-6"], first)
    assert digits(seconds["fit, 1,000,000 x 120"], million)
    assert digits(seconds["decode, 1,000,000 x 101 labels x 18 sizes"], decode)
    assert digits(seconds["CV, 8 alphas x 5 folds, 31,000 x 120"], search)
    assert digits(seconds["CV of binary relevance, 200,000 x 768 x 80"], relevance)


def test_scores_where_the_method_loses_are_those_of_the_gallery():
    body = rows("When the paper's method alone loses")[1:3]
    for place, _, plain, _, better in body:
        name = re.search(r"gallery/(\w+)\.md", place)[1]
        page = (ROOT / "docs" / "gallery" / f"{name}.md").read_text(encoding="utf-8")
        (output,) = (ROOT / "docs" / "gallery").glob(f"*_{name}.txt")
        text = page + output.read_text(encoding="utf-8")
        assert plain in text, place
        assert better in text, place


def test_scores_in_the_text_are_those_of_the_tables():
    table = {name: values for name, *values in rows("How good")[1:]}
    for data, efp, ours in re.findall(
        r"(Scene|Medical|Enron)\s+\(([\d.]+) against ([\d.]+)\)", README
    ):
        assert digits(float(table[data][1].split()[0]), efp), data
        assert digits(float(table[data][0].split()[0]), ours), data


@pytest.mark.parametrize("name", ["RESULTS.md", "RESULTS-GPU.md", "RESULTS-BLOCKS.md"])
def test_every_page_of_results_names_its_commit(name):
    text = (ROOT / "benchmarks" / name).read_text(encoding="utf-8")
    assert re.search(r"\bcommit [0-9a-f]{7,}\b", text)


def test_the_first_page_counts_its_scripts():
    number = {10: "ten", 11: "eleven", 12: "twelve"}[
        len(list((ROOT / "examples").glob("[0-9]*.py")))
    ]
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert f"[Gallery](gallery/index.md) | {number} scripts" in text
