"""Fits to more rows than memory, and to more than one worker: ``python -m benchmarks.blocks``.

Each fit runs in a process of its own and prints what it took; ratios are of one run. Results go to
``benchmarks/RESULTS-BLOCKS.md``, with a chart of cost against rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, LABELS, PART = 100, 14, 100_000
ALLOWED = 1536 << 20  # bytes above those of the interpreter with the library
BUDGET = "900MB"  # what the fit is told
HERE = Path(__file__).parent
SIZES = (100_000, 400_000, 1_000_000, 2_000_000, 4_000_000)


def write_parts(folder: Path, rows: int) -> None:
    """Write parts of a synthetic law with about 150 to 200 problems, each part by its own seed."""
    rng = np.random.default_rng(0)
    W = (rng.normal(size=(FEATURES, LABELS)) * 1.2 / np.sqrt(FEATURES)).astype(np.float32)
    offset = rng.uniform(-3, -0.5, LABELS).astype(np.float32)
    for number in range(-(-rows // PART)):
        own = np.random.default_rng([1, number])
        count = min(PART, rows - number * PART)
        X = own.standard_normal((count, FEATURES), dtype=np.float32)
        chance = 1 / (1 + np.exp(-(X @ W + offset)))
        np.save(folder / f"X-{number:04d}.npy", X + 2)
        np.save(folder / f"Y-{number:04d}.npy", (own.random(chance.shape) < chance).astype(np.int8))


def load_parts(folder: Path, rows: int) -> tuple[Any, Any]:
    files = [sorted(folder.glob(f"{k}-*.npy"))[: -(-rows // PART)] for k in "XY"]
    X = np.empty((rows, FEATURES), np.float32)
    Y = np.empty((rows, LABELS), np.int8)
    for out, names in zip((X, Y), files, strict=True):
        for number, name in enumerate(names):
            part = out[number * PART : (number + 1) * PART]
            part[:] = np.load(name, mmap_mode="r")[: len(part)]
    return X, Y


def fit_in_memory(folder: Path, rows: int) -> dict[str, Any]:
    from fbeta import FBetaClassifier

    X, Y = load_parts(folder, rows)
    begin = time.perf_counter()
    clf = FBetaClassifier().fit(X, Y)
    return {"seconds": time.perf_counter() - begin, "problems": len(clf.coef_)}


def fit_blocks(folder: Path, rows: int, limited: bool) -> dict[str, Any]:
    from fbeta import FBetaClassifier
    from fbeta.blocks import RowBlocks
    from fbeta.blocks.passes import Streamed

    if limited:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ALLOWED, used + ALLOWED))
    times: dict[str, list[float]] = {"scan": [], "hold": [], "each": [], "evaluate": []}
    columns: list[int] = []
    held: list[int] = []

    def timed(name: str) -> None:
        work = getattr(Streamed, name)

        def run(self: Any, *args: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            out = work(self, *args, **options)
            times[name].append(time.perf_counter() - begin)
            if name == "evaluate":
                columns.append(sum(point.coef.shape[1] for point in args[1]))
            if name == "each":
                held.append(self._held.design.matrix.shape[0])
            return out

        setattr(Streamed, name, run)

    for name in times:
        timed(name)
    files = [sorted(folder.glob(f"{k}-*.npy"))[: -(-rows // PART)] for k in "XY"]
    blocks = RowBlocks.read([*files[0], *files[1]], memory=BUDGET)
    begin = time.perf_counter()
    clf = FBetaClassifier().fit(blocks)
    return {
        "seconds": time.perf_counter() - begin,
        "problems": len(clf.coef_),
        "passes": blocks.passes,
        "gigabytes": blocks.bytes_read / 1e9,
        "columns": columns,
        "held": held,
        **times,
        "certified": bool(clf._model.converged.all()),
    }


def fit_dask(folder: Path, rows: int, workers: int) -> dict[str, Any]:
    import dask.array as da
    from dask import delayed
    from distributed import Client, LocalCluster

    from fbeta import FBetaClassifier

    files = [sorted(folder.glob(f"{k}-*.npy"))[: -(-rows // PART)] for k in "XY"]
    X, Y = (
        da.concatenate([da.from_delayed(delayed(np.load)(f), (PART, width), dtype) for f in names])
        for names, width, dtype in zip(
            files, (FEATURES, LABELS), (np.float32, np.int8), strict=True
        )
    )
    options = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
    with LocalCluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        X, Y = client.persist([X, Y])
        FBetaClassifier().fit(X[: 2 * PART], Y[: 2 * PART])  # imports on the workers
        begin = time.perf_counter()
        clf = FBetaClassifier().fit(X, Y)
        return {"seconds": time.perf_counter() - begin, "problems": len(clf.coef_)}


def read_rate(folder: Path) -> float:
    """Bytes a second at which the parts are read as they are now, warm or cold."""
    begin, size = time.perf_counter(), 0
    for file in sorted(folder.glob("X-*.npy")):
        size += len(file.read_bytes())
    return size / (time.perf_counter() - begin)


def child(folder: Path, kind: str, rows: int, timeout: float) -> dict[str, Any]:
    """Run a fit in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.blocks", "--child", kind, "--folder", str(folder)]
    try:
        done = subprocess.run(
            [*command, "--rows", str(rows)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=os.environ | {"MALLOC_ARENA_MAX": "2"},
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {timeout:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["killed"])[-1]}
    out: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return out


KINDS = {
    "memory": fit_in_memory,
    "blocks": lambda folder, rows: fit_blocks(folder, rows, limited=False),
    "limited": lambda folder, rows: fit_blocks(folder, rows, limited=True),
    "dask1": lambda folder, rows: fit_dask(folder, rows, 1),
    "dask2": lambda folder, rows: fit_dask(folder, rows, 2),
}


def constants(at: dict[str, Any], rows: int) -> dict[str, float]:
    """Return the constants of the cost model, in seconds, by one fit to some rows.

    Each pass reads and checks every row, and multiplies with the problems that are open; the rows
    held are prepared once, solve all problems for the start, and turn after each pass those that
    were open.
    """
    columns = np.array(at["columns"], dtype=float)
    passes = np.array(at["evaluate"]) / rows
    design = np.stack([np.ones_like(columns), columns], axis=1)
    read, score = np.linalg.lstsq(design, passes, rcond=None)[0]
    turned = np.array(at["each"][1:]).sum() / (np.array(at["held"][1:]) * columns).sum()
    return {
        "scan": at["scan"][0] / rows,
        "read": float(max(read, 0.0)),
        "score": float(score),
        "hold": at["hold"][0] / at["held"][0],
        "start": at["each"][0] / (at["held"][0] * at["problems"]),
        "turn": float(turned),
    }


def predicted(c: dict[str, float], rows: int, at: dict[str, Any]) -> float:
    """Apply the cost model to a fit with its passes, open problems and rows held."""
    columns, held = np.array(at["columns"]), np.array(at["held"])
    reading = c["scan"] * rows + c["read"] * rows * len(columns)
    passes = c["score"] * rows * columns.sum()
    begin = c["hold"] * held[0] + c["start"] * held[0] * at["problems"]
    return float(reading + passes + begin + c["turn"] * (held[1:] * columns).sum())


def run(folder: Path, rows: int, dask_rows: int, timeout: float) -> list[str]:
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False, cwd=HERE).stdout
    lines = [
        "# Blocks of rows: timings",
        "",
        f"`python -m benchmarks.blocks` writes this page. commit {commit.strip()}, "
        f"{rows:,} x {FEATURES} in single precision, {platform.machine()}, {os.cpu_count()} cores, "
        f"NumPy {np.__version__}.",
        "",
    ]
    begin = time.perf_counter()
    write_parts(folder, rows)
    rate = read_rate(folder)
    lines += [f"Parts are read at {rate / 1e9:.1f} GB/s (pages warm).", ""]
    sizes = sorted({n for n in SIZES if n < rows} | {rows})
    found = {n: child(folder, "limited", n, timeout) for n in sizes}
    inside = child(folder, "memory", rows, timeout)
    lines += _out_of_core(found, inside, rows, rate)
    lines += _model(found)
    lines += _dask(folder, dask_rows, timeout)
    _chart(found)
    lines += ["", f"All of it took {time.perf_counter() - begin:.0f} s."]
    return lines


def _out_of_core(
    found: dict[int, dict[str, Any]], inside: dict[str, Any], rows: int, rate: float
) -> list[str]:
    lines = [
        "## Out of core",
        "",
        f"Each fit may use {ALLOWED >> 20} MiB of address space above that of the interpreter.",
        "",
        "| rows | seconds | passes | GB read | the disk's limit, s | problems | certified |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for n, own in found.items():
        if "error" in own:
            lines.append(f"| {n:,} | {own['error']} | | | | | |")
            continue
        lines.append(
            f"| {n:,} | {own['seconds']:.1f} | {own['passes']} | {own['gigabytes']:.1f} | "
            f"{own['gigabytes'] * 1e9 / rate:.1f} | {own['problems']} | {own['certified']} |"
        )
    last = found[rows]
    if "error" not in last and "error" not in inside:
        ratio = last["seconds"] / inside["seconds"]
        lines += ["", f"In memory without a limit: {inside['seconds']:.1f} s. Ratio {ratio:.2f}."]
    else:
        lines += ["", f"In memory: {inside}."]
    return lines


def _model(found: dict[int, dict[str, Any]]) -> list[str]:
    """Check the cost model, with constants from one size, at the others."""
    sound = {n: own for n, own in found.items() if "error" not in own and own["passes"] > 1}
    lines = ["", "## Cost model", ""]
    if len(sound) < 2:
        return [*lines, "Too few sizes beyond the memory to check it."]
    first, *others = sound
    c = constants(sound[first], first)
    words = {
        "scan": "the first pass, a row",
        "read": "reading and checking in another pass, a row",
        "score": "a row and problem that is open",
        "hold": "preparing a row held",
        "start": "the start, a row held and problem",
        "turn": "a direction, a row held and problem that is open",
    }
    lines += [f"Constants, from the fit to {first:,} rows:", "", "| | ns |", "| --- | --- |"]
    lines += [f"| {words[name]} | {1e9 * value:.3g} |" for name, value in c.items()]
    lines += ["", "| rows | held | problems a pass | predicted, s | measured, s | ratio |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for n in others:
        own = sound[n]
        guess = predicted(c, n, own)
        counts = ", ".join(map(str, own["columns"]))
        lines.append(
            f"| {n:,} | {own['held'][0]:,} | {counts} | {guess:.1f} | {own['seconds']:.1f} | "
            f"{guess / own['seconds']:.2f} |"
        )
    return lines


def _dask(folder: Path, rows: int, timeout: float) -> list[str]:
    inside = child(folder, "memory", rows, timeout)
    one, two = (child(folder, kind, rows, timeout) for kind in ("dask1", "dask2"))
    lines = [
        "",
        "## Dask",
        "",
        f"{rows:,} rows, workers of one thread in processes of their own.",
        "",
    ]
    if any("error" in own for own in (inside, one, two)):
        return [*lines, f"in memory {inside}, one worker {one}, two workers {two}"]
    speedup, overhead = one["seconds"] / two["seconds"], two["seconds"] / inside["seconds"]
    return [
        *lines,
        "| | seconds |",
        "| --- | --- |",
        f"| in memory, two threads | {inside['seconds']:.1f} |",
        f"| one worker | {one['seconds']:.1f} |",
        f"| two workers | {two['seconds']:.1f} |",
        "",
        f"Two workers against one: {speedup:.2f} times as fast. Two workers against the solver in "
        f"memory: {overhead:.2f} times its time.",
    ]


def _chart(found: dict[int, dict[str, Any]]) -> None:
    """Draw cost against rows, where there is something to draw with."""
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    sound = {n: own["seconds"] for n, own in found.items() if "error" not in own}
    figure, axes = pyplot.subplots(figsize=(5, 3.5))
    axes.loglog(list(sound), list(sound.values()), "o-", label="measured")
    last = max(sound, default=1)
    axes.loglog(list(sound), [sound[last] * n / last for n in sound], "--", label="linear in rows")
    axes.set(xlabel="rows", ylabel="seconds")
    axes.legend()
    figure.tight_layout()
    figure.savefig(HERE / "blocks.svg")
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=SIZES[-1], help="rows of the largest fit")
    parser.add_argument("--dask-rows", type=int, default=1_000_000, help="rows of the fits of Dask")
    parser.add_argument("--timeout", type=float, default=400, help="seconds for one fit at most")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=list(KINDS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(KINDS[options.child](options.folder, options.rows)))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = min(options.dask_rows, options.rows)
        lines = run(Path(folder), options.rows, rows, options.timeout)
    text = "\n".join(lines) + "\n"
    (HERE / "RESULTS-BLOCKS.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
