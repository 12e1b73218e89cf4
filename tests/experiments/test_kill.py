"""Kills at random moments cost at most the cell that was being computed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fbeta.experiments.cells import ResultStore
from fbeta.experiments.tables import score_tables

from ..children import child

pytestmark = pytest.mark.slow  # each starts several interpreters

DRIVER = """
import sys, time
from fbeta.datasets import CalibratedLaw, Dataset, join_split
from fbeta.experiments.benchmark import benchmark_cells, compute_benchmark, register_dataset
from fbeta.experiments.cells import ResultStore, run_cells

def toy(seed):
    law = CalibratedLaw(3, 12, seed)
    parts = [law.sample(n, seed) for n in (60, 80)]
    return join_split(*[Dataset(p.X, p.Y, tuple("abc")) for p in parts], "toy")

def compute(cell):
    time.sleep(0.1)
    return compute_benchmark(cell)

names = ["toy0", "toy1", "toy2"]
for seed, name in enumerate(names):
    register_dataset(name, lambda seed=seed: toy(seed))
methods = ["fbeta", "fbeta-all", "fbeta-origin"]
cells = benchmark_cells(names, methods, alphas=[0.1, 1.0], cv=2)
print("ready", flush=True)
_, computed, failures = run_cells(cells, compute, ResultStore(sys.argv[1]))
assert not failures, failures
print(computed, flush=True)
"""
CELLS = 9


@contextmanager
def started(folder: Path) -> Iterator[Any]:
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with child("-c", DRIVER, folder, text=True, env={**os.environ, **threads}) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


def finish(process: Any) -> int:
    output = process.stdout.read()
    assert process.wait(timeout=60) == 0
    return int(output)


def run(folder: Path) -> int:
    with started(folder) as process:
        return finish(process)


def table_of(folder: Path) -> str:
    (table,) = score_tables(ResultStore(folder).records("table2"))
    return table.to_markdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run(folder) == CELLS
    return table_of(folder)


def test_kills_at_random_moments_change_nothing(tmp_path: Path, undisturbed: str) -> None:
    rng = random.Random(7)
    finished: dict[Path, bytes] = {}
    for _ in range(2):
        with started(tmp_path):
            # leaving the block kills it
            time.sleep(rng.uniform(0, 0.6))
        # every file that is there is whole, and none of the earlier ones has been touched
        now = {p: p.read_bytes() for p in (tmp_path / "cells").rglob("[!.]*.json")}
        assert all(now[path] == content for path, content in finished.items())
        finished = now
        assert len(ResultStore(tmp_path).records("table2")) == len(finished)
    computed = run(tmp_path)
    assert computed == CELLS - len(finished)
    assert all(path.read_bytes() == content for path, content in finished.items())
    assert table_of(tmp_path) == undisturbed


def test_two_runs_in_one_folder_share_the_cells(tmp_path: Path, undisturbed: str) -> None:
    with started(tmp_path) as first, started(tmp_path) as second:
        assert finish(first) + finish(second) == CELLS
    assert table_of(tmp_path) == undisturbed
