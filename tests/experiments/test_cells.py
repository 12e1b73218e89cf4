from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from fbeta.experiments.cells import Cell, Record, ResultStore, run_cells


def cells_of(n: int) -> list[Cell]:
    return [Cell("toy", "data", "method", {"seed": seed}) for seed in range(n)]


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    record = Record.now(Cell("toy", "a/../b", "m", {"x": [1, None]}), {"score": 0.1 + 0.2}, 1.5)
    store.write(record)
    assert store.find(record.cell) == record
    assert store.records("toy") == [record]
    assert [p.parent for p in tmp_path.rglob("*.json")] == [tmp_path / "cells" / "toy"]


def test_cells_that_differ_in_anything_have_other_keys() -> None:
    base = Cell("toy", "data", "method", {"seed": 0, "beta": 1.0})
    others = [
        Cell("other", "data", "method", {"seed": 0, "beta": 1.0}),
        Cell("toy", "date", "method", {"seed": 0, "beta": 1.0}),
        Cell("toy", "data", "methods", {"seed": 0, "beta": 1.0}),
        Cell("toy", "data", "method", {"seed": 1, "beta": 1.0}),
        Cell("toy", "data", "method", {"seed": 0, "beta": 2.0}),
        Cell("toy", "data-method", "", {"seed": 0, "beta": 1.0}),
    ]
    assert len({cell.key for cell in [base, *others]}) == 7
    assert base.key == Cell("toy", "data", "method", {"beta": 1.0, "seed": 0}).key
    # results that were stored before are found by it
    assert Cell("table2", "scene", "fbeta", {"beta": 1.0}).key == "scene-fbeta-e96f10fc"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', "[" * 100_000, '"x"', "null"])
def test_a_damaged_result_is_named_not_overwritten(tmp_path: Path, text: str) -> None:
    store = ResultStore(tmp_path)
    cell = cells_of(1)[0]
    path = tmp_path / "cells" / "toy" / f"{cell.key}.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ValueError, match=path.name):
        run_cells([cell], lambda cell: {"score": 1.0}, store)
    assert path.read_text() == text


def test_a_result_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format 1, found 2"):
        Record.from_json('{"format": 2}', "x.json")


def test_finished_cells_are_not_computed_again(tmp_path: Path) -> None:
    seen: list[int] = []

    def compute(cell: Cell) -> dict[str, float]:
        seen.append(cell.parameters["seed"])
        return {"score": float(cell.parameters["seed"])}

    store = ResultStore(tmp_path)
    assert run_cells(cells_of(2), compute, store)[1] == 2
    records, computed, _ = run_cells(cells_of(4), compute, store)
    assert seen == [0, 1, 2, 3]
    assert computed == 2
    assert [r.result["score"] for r in records] == [0.0, 1.0, 2.0, 3.0]
    assert not list(tmp_path.rglob("*.lock"))
    assert not list(tmp_path.rglob(".*"))


def test_a_failure_costs_one_cell_and_is_tried_again(tmp_path: Path) -> None:
    def compute(cell: Cell) -> dict[str, float]:
        if cell.parameters["seed"] == 1:
            raise RuntimeError("no luck")
        return {"score": 0.5}

    store = ResultStore(tmp_path)
    records, _, failures = run_cells(cells_of(3), compute, store)
    assert list(failures.values()) == ["RuntimeError: no luck"]
    assert len(records) == 2
    again = run_cells(cells_of(3), lambda cell: {"score": 0.7}, store)[0]
    assert [r.result["score"] for r in again] == [0.5, 0.7, 0.5]


def test_a_result_that_is_not_a_number_is_not_stored(tmp_path: Path) -> None:
    failures = run_cells(cells_of(1), lambda cell: {"score": float("nan")}, ResultStore(tmp_path))[
        2
    ]
    assert next(iter(failures.values())).startswith("ValueError")
    assert not list(tmp_path.rglob("*.json"))


def test_leftovers_of_a_killed_run_are_ignored_and_swept(tmp_path: Path) -> None:
    cell = cells_of(1)[0]
    folder = tmp_path / "cells" / "toy"
    folder.mkdir(parents=True)
    (folder / f".{cell.key}-abc123.fbeta-part.json").write_text('{"format": 1, "resu')
    (folder / f"{cell.key}.lock").touch()
    store = ResultStore(tmp_path)
    assert store.records("toy") == []
    assert run_cells([cell], lambda cell: {"score": 1.0}, store)[1] == 1
    assert [path.name for path in folder.iterdir()] == [f"{cell.key}.json"]


def test_runs_share_the_work_and_wait_for_each_other(tmp_path: Path) -> None:
    count = 6
    computed: list[int] = []

    def compute(cell: Cell) -> dict[str, float]:
        computed.append(cell.parameters["seed"])
        time.sleep(0.05)
        return {"score": float(cell.parameters["seed"])}

    reports = []
    threads = [
        threading.Thread(
            target=lambda: reports.append(
                run_cells(cells_of(count), compute, ResultStore(tmp_path))
            )
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(computed) == list(range(count))
    assert sum(computed for _, computed, _ in reports) == count
    assert all(
        [r.result["score"] for r in records] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        for records, _, _ in reports
    )


def test_a_cell_whose_owner_gave_up_is_taken_over(tmp_path: Path) -> None:
    store, cell = ResultStore(tmp_path), cells_of(1)[0]
    claimed, released = threading.Event(), threading.Event()

    def owner() -> None:
        with store.claim(cell) as ours:
            assert ours
            claimed.set()
            released.wait()

    thread = threading.Thread(target=owner)
    thread.start()
    assert claimed.wait(60)
    threading.Timer(0.2, released.set).start()
    computed = run_cells([cell], lambda cell: {"score": 1.0}, store)[1]
    thread.join()
    assert computed == 1
