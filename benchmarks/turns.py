"""Compare the solver of this tree with that of another one, in turns.

    python -m benchmarks.turns OTHER_TREE [OTHER_PYTHON] [--turns N] [--only WORD]

The other tree is a checkout of any commit with the solver's benchmarks, whose compiled part is
built in place; OTHER_PYTHON is an interpreter that has what it needs. Real data are those in the
folder FBETA_DATA. Each side keeps the cases in a process of its own, on the same threads, and
only one of them computes at a time; the order is reversed in every other turn. Fits are those of
``make bench``, of its paths over the strengths of regularisation, and of EFP.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]

# What runs in either tree: reads the name of a case in a line, and writes its seconds.
SERVER = """
import json, os, sys, time
from threadpoolctl import threadpool_limits
from benchmarks import bench_efp, cases, solver

folder = cases.data_folder()
known = {case.name: case for case in cases.solver_cases()}
paths = [name for name in known if "dense X" not in name and known[name].sample is None]
efp = []
if folder is not None:
    os.environ["FBETA_DATA"] = str(folder)
    efp = [bench_efp.problems()]

def run(job):
    kind, _, name = job.partition(": ")
    if kind == "fit":
        case = known[name]
        seconds, values = solver.objectives(case.X, case.targets, case.alpha)
        return seconds, float(values.sum())
    if kind == "path":
        return solver.run_path(known[name], repeats=1)["path_s"], 0.0
    solver.settle()
    with threadpool_limits(1):
        start = time.perf_counter()
        values = bench_efp.all_at_once(*efp[0], 1e-6)
    return time.perf_counter() - start, float(values.sum())

jobs = [f"fit: {name}" for name in known] + [f"path: {name}" for name in paths]
out = sys.stdout
sys.stdout = sys.stderr
print(json.dumps(jobs + ["efp: Enron"] * len(efp)), file=out, flush=True)
for line in sys.stdin:
    print(json.dumps(run(line.strip())), file=out, flush=True)
"""


class Side:
    """A tree whose solver answers in a process of its own."""

    def __init__(self, tree: Path, python: str) -> None:
        places = os.pathsep.join([str(tree / "src"), str(tree)])
        self.process = subprocess.Popen(
            [python, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": places},
        )
        self.jobs = self._read()

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"a side has ended with {self.process.wait()}: see above")
        return json.loads(line)

    def run(self, job: str) -> tuple[float, float]:
        """Return the seconds of a job, and the sum of the objectives."""
        print(job, file=self.process.stdin, flush=True)
        return tuple(self._read())


def repeats(seconds: float, turns: int) -> int:
    """Return how often a case is run: short ones several times in each turn."""
    return turns if seconds > 3 else turns * (3 if seconds > 0.3 else 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has this")
    options = parser.parse_args()
    sides = Side(options.tree.resolve(), options.python), Side(HERE, sys.executable)
    jobs = [job for job in sides[0].jobs if job in sides[1].jobs and options.only in job]
    print(f"{'':<44}{'other, s':>10}{'this, s':>10}{'medians':>9}{'minima':>8}{'objective':>11}")
    for job in jobs:
        first = [side.run(job) for side in sides]  # warm, and not counted
        times: list[list[float]] = [[], []]
        for turn in range(repeats(first[0][0], options.turns)):
            for k in (0, 1) if turn % 2 else (1, 0):
                times[k].append(sides[k].run(job)[0])
        middle, least = (list(map(f, times)) for f in (median, min))
        change = first[1][1] / first[0][1] - 1 if first[0][1] else 0.0
        print(
            f"{job:<44}{middle[0]:>10.4f}{middle[1]:>10.4f}{middle[1] / middle[0]:>9.2f}"
            f"{least[1] / least[0]:>8.2f}{change:>11.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
