"""Run everything and write one table: python -m benchmarks [PART ...]."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import scipy
import sklearn
from threadpoolctl import threadpool_limits

from benchmarks import decode, models, solver
from benchmarks.cases import data_folder, solver_cases
from benchmarks.report import markdown
from fbeta._threads import n_threads

HERE = Path(__file__).resolve().parent
PARTS = ("solver", "path", "memory", "scaling", "decode", "factored", "efp", "wide",
         "decoder")  # fmt: skip


def run_part(part: str) -> Any:
    if part == "decode":
        return decode.run()
    if part == "factored":
        return decode.run_factored()
    if part == "wide":
        return models.run_wide()
    if part == "decoder":
        return models.run_decoder()
    if part == "memory":
        return solver.run_memory()
    if part == "scaling":
        return solver.run_scaling()
    if part == "efp":
        return run_efp()
    rows = []
    for case in solver_cases():
        if part == "path" and (
            case.name.endswith("dense X") or case.sample == 24 or "word" in case.name
        ):
            continue
        rows.append(solver.run_path(case) if part == "path" else solver.run_case(case))
        print(rows[-1], flush=True)
    return [*rows, solver.together(rows)] if part == "path" and rows else rows


def run_efp() -> Any:
    from benchmarks import bench_efp

    folder = data_folder()
    if folder is None:
        return {"skipped": "the Mulan data sets are not here: set FBETA_DATA to their folder"}
    os.environ["FBETA_DATA"] = str(folder)
    return bench_efp.run()


def environment() -> dict[str, str]:
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False, cwd=HERE).stdout
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.strip(),
        "cpu": names[0] if names else platform.processor(),
        "threads": str(n_threads()),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def main(parts: list[str]) -> None:
    unknown = [p for p in parts if p not in PARTS]
    if unknown:
        sys.exit(f"unknown parts {unknown}: choose from {PARTS}")
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if parts and path.exists() else {}
    results["environment"] = environment()
    with threadpool_limits(n_threads()):
        for part in parts or PARTS:
            print(f"== {part}", flush=True)
            results[part] = run_part(part)
            path.write_text(json.dumps(results, indent=1) + "\n")
            (HERE / "RESULTS.md").write_text(markdown(results))
    print((HERE / "RESULTS.md").read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
