"""Child processes that no test leaves behind, however it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# A shell that starts a command in the background has it ignore SIGINT, and children inherit that:
# Python then installs no handler, and a test of interruption would wait for ever.
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@contextmanager
def child(*arguments: object, timeout: float = 120, **options: Any) -> Iterator[Any]:
    """Start Python with arguments; it is killed at the end, or when the time is over."""
    command = [sys.executable, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, **options) as process:
        # whoever reads from a child that was killed finds the end of its output
        watchdog = threading.Timer(timeout, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()
