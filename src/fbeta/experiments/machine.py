"""The machine that results were computed on, in a few words."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe_machine(cpuinfo: str = "/proc/cpuinfo") -> dict[str, str]:
    """Say what the machine is: its processor, the cores that we may use, memory and system.

    Parameters
    ----------
    cpuinfo : str
        Where Linux tells the name of the processor.

    Returns
    -------
    dict of str
        What the system does not tell is not in it.

    Examples
    --------
    >>> sorted(describe_machine())[0]
    'cores'
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {
        "processor": _processor(Path(cpuinfo)),
        "cores": str(cores or ""),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}".strip(),
    }
    return {key: words for key, words in found.items() if words}


def _processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return ""
    return f"{size / 2**30:.0f} GiB"
