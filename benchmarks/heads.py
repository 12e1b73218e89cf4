"""Cost of the heads of networks beside BCE's: python -m benchmarks.heads, the table of networks.md.

Time is that of the loss with its gradient for a batch of 256 rows in single precision on two
threads, the least of some runs in turns; memory is the growth of the process at its peak, with
the gradient.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.report import table
from fbeta.nn import CardinalityHead, JointHead

CASES = ((20, 5), (80, 15), (1000, 30), (5000, 20))  # labels and largest sizes
M_MMAP_THRESHOLD = -3  # of malloc.h
IN_FEATURES, ROWS, THREADS, TURNS = 512, 256, 2, 12
COLUMNS = {
    "case": "labels, sizes", "head": "head", "parameters": "parameters", "ms": "loss, ms",
    "ratio": "times BCE", "memory": "memory, MB",
}  # fmt: skip


def resident(name: str) -> int:
    """Return a size of the process in bytes, by Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def peak_bytes(work: Callable[[], object]) -> int:
    """Return by how much the memory of the process grows at most."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 14)  # what is freed goes back at once
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    work()
    return max(0, resident("VmHWM") - before)


def measure(s: int, largest: int, weigh: int) -> list[dict[str, str]]:
    """Return times, or memory, of each head."""
    torch.manual_seed(0)
    noise = torch.randn(ROWS, s) - 4.0
    Y = (torch.rand(ROWS, s) < torch.sigmoid(noise)).float()
    Y[Y.sum(1) > largest] = 0.0
    heads: list[tuple[str, int, Callable[..., torch.Tensor]]] = [
        ("BCE", s, binary_cross_entropy_with_logits)
    ]
    for kind in (CardinalityHead, JointHead):
        head = kind(IN_FEATURES, s, largest)
        heads.append((kind.__name__, head.n_logits, head.loss))

    def step(width: int, loss: Callable[..., torch.Tensor], rows: int) -> Callable[[], object]:
        logits = (torch.randn(rows, width) - 4.0).requires_grad_()

        def run() -> None:
            logits.grad = None
            loss(logits, Y[:rows]).backward()

        return run

    for _, width, loss in heads:
        step(width, loss, ROWS // 8)()  # what is set up once is not counted
    memory = [peak_bytes(step(width, loss, ROWS)) for _, width, loss in heads] if weigh else None
    steps, best = [step(width, loss, ROWS) for _, width, loss in heads], [float("inf")] * len(heads)
    for _ in range(0 if weigh else TURNS):
        for i, run in enumerate(steps):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    if memory is not None:
        return [{"memory": f"{taken / 1e6:.1f}"} for taken in memory]
    return [
        {
            "case": f"{s:,}, {largest}", "head": name,
            "parameters": f"{width * (IN_FEATURES + 1):,}",
            "ms": f"{1e3 * seconds:.2f}", "ratio": f"{seconds / best[0]:.1f}",
        }
        for (name, width, _), seconds in zip(heads, best, strict=True)
    ]  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    if len(sys.argv) > 1:
        print(json.dumps(measure(*map(int, sys.argv[1:]))))
    else:  # processes of their own: the setting of malloc slows down what follows
        rows = []
        for case in CASES:
            command = [sys.executable, "-m", "benchmarks.heads", *map(str, case)]
            times, memory = (
                json.loads(subprocess.run([*command, w], capture_output=True, check=True).stdout)
                for w in "01"
            )
            rows += [{**one, **other} for one, other in zip(times, memory, strict=True)]
        print(table(rows, COLUMNS))
