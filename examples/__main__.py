"""Run every example and renew what the documentation shows of it: python examples [FOLDER]."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(folder: Path) -> None:
    """Write the picture and the printed numbers of each example into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(HERE.glob("[0-9]*.py")):
        done = subprocess.run(
            [sys.executable, str(script), str(folder)],
            capture_output=True,
            text=True,
            # the arrays are small: more threads would wait for each other
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if "ModuleNotFoundError" in done.stderr:
            print(f"{script.name} left out: {done.stderr.splitlines()[-1]}\n")
            continue
        sys.stderr.write(done.stderr)
        done.check_returncode()
        (folder / f"{script.stem}.txt").write_text(done.stdout, encoding="utf-8")
        print(f"{script.name}\n{done.stdout}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "docs" / "gallery")
