"""Fits, decode and loss on a GPU: python -m benchmarks.gpu [CASE ...] [--device cpu --scale 0.01].

Every case runs in a process of its own, so that one which fails leaves the others alone, and stands
beside what it cannot avoid: the products with X, or the bytes that it reads and writes. Results of
cases that are not run again are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

# scikit-learn passes tensors on only where SciPy, once imported, does so too
os.environ.setdefault("SCIPY_ARRAY_API", "1")

HERE = Path(__file__).resolve().parent
JSON, PAGE = HERE / "results-gpu.json", HERE / "RESULTS-GPU.md"
LIMIT = 540  # seconds for a case
PACKAGES = ("torch", "triton", "numpy", "scipy", "scikit-learn", "array-api-compat")
COLUMNS = {
    "case": "case",
    "seconds": "seconds",
    "most": "at most",
    "aim": "aim",
    "unavoidable_s": "unavoidable, s",
    "unavoidable": "what that is",
    "kernels": "kernels",
    "waits": "waits",
    "peak_gb": "memory, GB",
    "more": "more",
    "commit": "commit",
}


class Bench:
    """A device, how large the cases are, and the clock."""

    def __init__(self, device: str, scale: float) -> None:
        import torch

        self.torch, self.device, self.scale = torch, torch.device(device), scale

    def rows(self, n: int) -> int:
        """Return a number of rows, fewer where the benchmark itself is only to be tried."""
        return max(64, int(n * self.scale))

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def seconds(self, work: Callable[[], Any], repeats: int = 5, inner: int = 1) -> float:
        """Return the median time of some runs, each of several calls, after one to warm up."""
        work()
        times = []
        for _ in range(repeats):
            self.wait()
            start = time.perf_counter()
            for _ in range(inner):
                work()
            self.wait()
            times.append((time.perf_counter() - start) / inner)
        return median(times)

    def counts(self, work: Callable[[], Any]) -> dict[str, Any]:
        """Count kernels and waits of one run, and the memory that it takes at most."""
        if self.device.type != "cuda":
            return {}
        from torch.profiler import ProfilerActivity, profile

        self.wait()
        self.torch.cuda.reset_peak_memory_stats()
        before = self.torch.cuda.memory_allocated()
        work()
        self.wait()
        peak = (self.torch.cuda.max_memory_allocated() - before) / 2**30
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            work()
        events = {event.key: event.count for event in found.key_averages()}
        kernels = sum(count for key, count in events.items() if "LaunchKernel" in key)
        waits = sum(
            count for key, count in events.items()
            if key in ("cudaStreamSynchronize", "cudaMemcpy", "cudaEventSynchronize")
        )  # fmt: skip
        return {"kernels": kernels, "waits": waits, "peak_gb": peak}


def fit_case(bench: Bench, n: int, repeats: int) -> dict[str, Any]:
    """Fit the binary problems of Mediamill's shape; a million rows are its rows, repeated."""
    import numpy as np
    import scipy.sparse as sp
    from sklearn import config_context

    from benchmarks.cases import mediamill_shaped, problems_of
    from fbeta import FBetaClassifier
    from fbeta.linear import LinearLearner

    X, Y, targets = _mediamill(bench, mediamill_shaped, problems_of)
    if n > 31_000:
        times = -(-bench.rows(n) // len(X))
        X, Y = np.tile(X, (times, 1))[: bench.rows(n)], np.tile(Y, (times, 1))[: bench.rows(n)]
        # no two rows are equal
        X = X + 1e-3 * np.random.default_rng(1).standard_normal(X.shape)
        targets = sp.csc_array(sp.vstack([targets] * times)[: bench.rows(n)])
    T = bench.torch.tensor(X, dtype=bench.torch.float32, device=bench.device)
    last: list[Any] = []

    def solve() -> None:
        last[:] = [LinearLearner(tol=1e-6).fit(T, targets, None, 1.0)]

    def estimate() -> None:
        FBetaClassifier(alpha=1.0, tol=1e-6).fit(T, sp.csr_array(Y))

    with config_context(array_api_dispatch=True):
        seconds = bench.seconds(solve, repeats)
        whole = bench.seconds(estimate, max(1, repeats // 2))
        counted = bench.counts(solve)
    model = last[0]
    products = _products(bench, T, targets.shape[1])
    return {
        "seconds": seconds, **counted, "unavoidable_s": products,
        "unavoidable": "X @ W and X.T @ G, once",
        "more": f"{targets.shape[1]} problems; {seconds / products:.1f} pairs of products; "
        f"converged: {bool(np.all(model.converged))}; most iterations {int(model.n_iter.max())}; "
        f"FBetaClassifier.fit with its labels {whole:.3f} s",
    }  # fmt: skip


def _mediamill(bench: Bench, make: Callable[..., Any], problems: Callable[..., Any]) -> Any:
    X, Y = make()
    n = bench.rows(31_000)
    X, Y = X[:n], Y[:n]
    return X, Y, problems(Y)


def _products(bench: Bench, X: Any, problems: int) -> float:
    """Time the two products with X that a step of any method on all problems needs."""
    W = bench.torch.randn(X.shape[1], problems, device=X.device)

    def pair() -> None:
        # some columns at a time: the scores of a million rows are 7 GB
        for start in range(0, problems, 512):
            X.T @ (X @ W[:, start : start + 512])

    return bench.seconds(pair, 3)


def cv_case(bench: Bench) -> dict[str, Any]:
    """Choose alpha among 8 by 5 folds."""
    import numpy as np
    import scipy.sparse as sp

    from benchmarks.cases import mediamill_shaped, problems_of
    from fbeta import FBetaClassifierCV

    X, Y, targets = _mediamill(bench, mediamill_shaped, problems_of)
    search = FBetaClassifierCV(alphas=np.logspace(-4, 3, 8), cv=5)
    return _search(bench, search, X, sp.csr_array(Y), targets.shape[1])


def relevance_case(bench: Bench, n: int) -> dict[str, Any]:
    """Choose alpha among 8 by 5 folds for binary relevance on embeddings."""
    from fbeta import AlphaSearchCV
    from fbeta.rivals import BinaryRelevance

    X, Y, _, _ = embeddings(bench.rows(n))
    return _search(bench, AlphaSearchCV(BinaryRelevance()), X, Y, Y.shape[1])


def _search(bench: Bench, search: Any, X: Any, Y: Any, problems: int) -> dict[str, Any]:
    """Time a search over 8 alphas by 5 folds."""
    from sklearn import config_context

    T = bench.torch.tensor(X, dtype=bench.torch.float32, device=bench.device)

    def work() -> None:
        search.fit(T, Y)

    with config_context(array_api_dispatch=True):
        seconds, counted = bench.seconds(work, 3), bench.counts(work)
    products = 40 * _products(bench, T[: len(X) * 4 // 5], problems)
    return {
        "seconds": seconds, **counted, "unavoidable_s": products,
        "unavoidable": "X @ W and X.T @ G, once for each fold and alpha",
        "more": f"alpha {search.alpha_:g}, F_1 {search.best_score_:.4f}",
    }  # fmt: skip


def embeddings(n: int, test: int = 5_000) -> tuple[Any, ...]:
    """Draw embeddings of 768 numbers with 80 tags of a mildly nonlinear teacher, and test rows."""
    import numpy as np

    rng, rank, single = np.random.default_rng(0), 64, np.float32
    mixing, W, V = (
        rng.normal(size=shape) / scale
        for shape, scale in (((rank, 768), 8), ((rank, 96), 8), ((96, 80), 5))
    )
    Z = rng.normal(size=(n + test, rank)).astype(single)
    X = np.tanh(Z @ mixing.astype(single)) + 0.3 * rng.standard_normal((n + test, 768), single)
    hidden = Z @ W
    logits = 2.2 * (hidden + 0.5 * np.abs(hidden)) @ V - 2.8
    Y = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    return X[:n], Y[:n], X[n:], Y[n:]


def auto_case(bench: Bench) -> dict[str, Any]:
    """Fit FBetaAuto to embeddings within 20 seconds."""
    from sklearn import config_context

    from fbeta import FBetaAuto, fbeta_score

    X, Y, X_test, Y_test = embeddings(bench.rows(30_000))
    T, T_test = (bench.torch.tensor(part, device=bench.device) for part in (X, X_test))
    clf = FBetaAuto(time_limit=20, random_state=0)
    with config_context(array_api_dispatch=True):
        start = time.perf_counter()
        clf.fit(T, Y)
        seconds = time.perf_counter() - start
        score = fbeta_score(Y_test, bench.torch.as_tensor(clf.predict(T_test)).cpu().numpy())
    return {"seconds": seconds, "more": f"time_limit=20; F_1 of test rows {score:.4f}"}


def precision_case(bench: Bench, n: int) -> dict[str, Any]:
    """Compare the fit with products of rounded inputs (TF32) to that with full precision."""
    from contextlib import nullcontext

    import scipy.sparse as sp
    from sklearn import config_context

    from benchmarks.cases import mediamill_shaped, problems_of
    from fbeta.linear import LinearLearner, in_memory

    X, _, targets = _mediamill(bench, mediamill_shaped, problems_of)
    times = -(-bench.rows(n) // len(X))
    T = bench.torch.tensor(X, dtype=bench.torch.float32, device=bench.device).repeat(times, 1)
    T += 1e-3 * bench.torch.randn(T.shape, device=bench.device)
    many = sp.csc_array(sp.vstack([targets] * times))

    def solve() -> Any:
        return LinearLearner(tol=1e-6).fit(T, many, None, 1.0)

    rounded = in_memory.product_precision
    kinds = {"rounded": rounded, "full": lambda *_, **__: nullcontext()}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    most = {}
    for _ in range(3):  # in turns: the machine gets faster or slower meanwhile
        for name, precision in kinds.items():
            in_memory.product_precision = precision
            with config_context(array_api_dispatch=True):
                times[name].append(bench.seconds(solve, 3))
                most[name] = int(solve().n_iter.max())
    in_memory.product_precision = rounded
    ours, full = (median(times[name]) for name in kinds)
    return {
        "seconds": ours / full, "unavoidable_s": full, "unavoidable": "the fit in full precision",
        "more": f"times that; {len(T)} rows; most iterations {most['rounded']} and {most['full']}",
    }  # fmt: skip


def decode_case(bench: Bench) -> dict[str, Any]:
    """Decode statistics that are on the device."""
    import numpy as np

    import fbeta
    from benchmarks.decode import make_statistics
    from fbeta.nn import Statistics, decode

    torch, n, few = bench.torch, bench.rows(1_000_000), 2_000
    host = make_statistics(few, 101, 18, 4.4)
    joint = torch.tensor(host.joint, dtype=torch.float32, device=bench.device)
    joint = joint.repeat(-(-n // few), 1, 1)[:n]
    generator = torch.Generator(bench.device).manual_seed(0)
    for start in range(0, n, 50_000):
        part = joint[start : start + 50_000]
        # no two rows are equal, but for the first ones, which are compared
        part = part[few:] if start == 0 else part
        part *= 0.5 + torch.rand((len(part), 1, 101), generator=generator, device=bench.device)
    q = Statistics(torch.full((n,), 0.02, device=bench.device), joint, tuple(range(1, 19)))
    labels, value = decode(q, return_expected=True)
    exact, expected = fbeta.decode(
        fbeta.LabelStatistics(
            np.full(min(n, few), np.float32(0.02)), joint[:few].cpu().numpy(), range(1, 19)
        ),
        return_expected=True,
    )
    same = bool((labels[:few].cpu().numpy() == exact).all())
    close = bool(np.allclose(value[:few].cpu().numpy(), expected, rtol=1e-12))
    seconds = bench.seconds(lambda: decode(q))
    return {
        "seconds": seconds, **bench.counts(lambda: decode(q)),
        "unavoidable_s": bench.seconds(lambda: joint.sum()),
        "unavoidable": f"{joint.nbytes / 1e9:.1f} GB read once (a sum)",
        "more": f"same sets as fbeta.decode on {len(exact)} rows: {same}; same values: {close}",
    }  # fmt: skip


def host_case(bench: Bench) -> dict[str, Any]:
    """Compare the decode of tensors on the processor with that of the library."""
    import fbeta
    from benchmarks.decode import make_statistics
    from benchmarks.decode import seconds as on_host
    from fbeta.nn import Statistics, decode

    here = make_statistics(bench.rows(13_000), 101, 18, 4.4)
    empty, joint = (bench.torch.from_numpy(part) for part in (here.empty, here.joint))
    there = Statistics(empty, joint, tuple(range(1, 19)))
    theirs, ours = on_host(lambda: fbeta.decode(here), 5), on_host(lambda: decode(there), 5)
    return {
        "seconds": ours / theirs, "unavoidable_s": theirs, "unavoidable": "fbeta.decode",
        "more": f"times fbeta.decode: {ours:.3f} s and {theirs:.3f} s, on the processor",
    }  # fmt: skip


def loss_case(bench: Bench) -> dict[str, Any]:
    """Compare the cardinality loss with BCE on the same logits, each with its gradient."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    from fbeta.nn.functional import cardinality_loss

    torch, n, s, largest = bench.torch, bench.rows(1024), 1000, 30
    generator = torch.Generator(bench.device).manual_seed(0)
    noise = torch.randn(n, s + 1 + largest, generator=generator, device=bench.device)
    logits = (noise - 4.0).requires_grad_()
    size = torch.randint(0, largest + 1, (n, 1), generator=generator, device=bench.device)
    order = torch.rand(n, s, generator=generator, device=bench.device).argsort(1)
    target = (order < size).float()

    def ours() -> None:
        logits.grad = None
        cardinality_loss(logits, target, largest).backward()

    def bce() -> None:
        logits.grad = None
        binary_cross_entropy_with_logits(logits[:, :s], target).backward()

    def touch() -> None:
        (noise + 1.0).add_(target[:, :1])

    inner = 20 if bench.device.type == "cuda" else 1
    seconds, theirs = bench.seconds(ours, 7, inner), bench.seconds(bce, 7, inner)
    counted = bench.counts(ours)
    alone = bench.seconds(lambda: cardinality_loss(logits.detach(), target, largest), 7, inner)
    return {
        "seconds": seconds / theirs, **counted, "unavoidable_s": bench.seconds(touch, 7, inner),
        "unavoidable": "the logits read and written",
        "more": f"times BCE: ours {1e6 * seconds:.0f} us, BCE {1e6 * theirs:.0f} us; "
        f"without backward {1e6 * alone:.0f} us",
    }  # fmt: skip


# what is run, what it may take, and what is aimed at: seconds, or times the time of BCE
CASES: dict[str, tuple[str, Callable[[Bench], dict[str, Any]], float, float]] = {
    "fit": ("fit, 31,000 x 120, certified at 1e-6", lambda b: fit_case(b, 31_000, 7), 0.08, 0.03),
    "fit-million": ("fit, 1,000,000 x 120", lambda b: fit_case(b, 1_000_000, 3), 1.8, 1.0),
    "cv": ("CV, 8 alphas x 5 folds, 31,000 x 120", cv_case, 3.0, 1.0),
    "relevance": ("CV of binary relevance, 8 alphas x 5 folds, 30,000 x 768 x 80",
                  lambda b: relevance_case(b, 30_000), 1.0, 0.5),
    "relevance-200k": ("CV of binary relevance, 200,000 x 768 x 80",
                       lambda b: relevance_case(b, 200_000), 3.0, 1.5),
    "auto": ("FBetaAuto, 30,000 x 768 x 80", auto_case, 20.0, 20.0),
    "decode": ("decode, 1,000,000 x 101 labels x 18 sizes", decode_case, 0.5, 0.1),
    "loss": ("cardinality loss + backward over BCE's, 1,024 x 1,000, sizes to 30", loss_case,
             5.0, 2.0),
    "host": ("decode on the processor over fbeta.decode's, 13,000 x 101 x 18", host_case, 2.0, 1.0),
    "tf32": ("fit, TF32 over full precision, 31,000 x 120", lambda b: precision_case(b, 31_000),
             1.0, 0.95),
    "tf32-310k": ("fit, TF32 over full precision, 310,000 x 120",
                  lambda b: precision_case(b, 310_000), 1.0, 0.9),
}  # fmt: skip


def run_case(name: str, device: str, scale: float) -> dict[str, Any]:
    """Run a case in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.gpu", name, "--worker", "--device", device]
    title, _, most, aim = CASES[name]
    row: dict[str, Any] = {"case": title, "most": most, "aim": aim}
    try:
        done = subprocess.run(
            [*command, "--scale", str(scale)], cwd=HERE.parent, capture_output=True, text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {**row, "more": f"FAILED: not done after {LIMIT} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(done.stderr[-3000:], file=sys.stderr)
        return {**row, "more": f"FAILED: {reason}"[:300]}
    return {**row, **json.loads(lines[-1])}


def environment(device: str, scale: float) -> dict[str, str]:
    """Return what the results depend on."""
    import torch

    git = ["git", "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False, cwd=HERE).stdout
    except OSError:
        commit = ""
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": os.environ.get("FBETA_COMMIT") or commit.strip() or "unknown",
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "CUDA": str(torch.version.cuda),
        "python": platform.python_version(),
    }
    if scale != 1:
        found["scale"] = f"{scale:g} (a trial: no results)"
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "on the path" if name == "array-api-compat" else "-"
    return found


def page(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    from benchmarks.report import table

    where = ", ".join(f"{key} {value}" for key, value in results["environment"].items())
    rows = [
        {**dict.fromkeys(COLUMNS, ""), **results["cases"][name]}
        for name in CASES
        if name in results["cases"]
    ]
    text = (
        "Medians, on tensors that are on the device. `kernels` and `waits` are launches and "
        "synchronisations of one run; the rows of the loss, of the decode on the processor and of "
        "TF32 are ratios."
    )
    return "\n\n".join(
        ["# Benchmarks on a GPU", f"`make bench-gpu` writes this page. {where}.", text,
         table(rows, COLUMNS)]
    ) + "\n"  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, for a trial")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown cases {unknown}: choose from {', '.join(CASES)}")
    if given.worker:
        row = CASES[given.cases[0]][1](Bench(given.device, given.scale))
        print(json.dumps(row))
        return 0
    import torch

    if given.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device is here: try --device cpu --scale 0.01", file=sys.stderr)
        return 2
    kept = given.output / JSON.name
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"cases": {}}
    results["environment"] = environment(given.device, given.scale)
    commit = results["environment"]["commit"]
    given.output.mkdir(parents=True, exist_ok=True)
    for name in given.cases or CASES:
        print(f"== {name}", flush=True)
        try:
            row = run_case(name, given.device, given.scale)
            results["cases"][name] = {**row, "commit": commit}
        except Exception:
            results["cases"][name] = {"case": CASES[name][0], "more": "FAILED"}
            traceback.print_exc()
        print(results["cases"][name], flush=True)
        kept.write_text(json.dumps(results, indent=1) + "\n")
        (given.output / PAGE.name).write_text(page(results))
    return int(any("FAILED" in row["more"] for row in results["cases"].values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
