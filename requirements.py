"""Lists what the package and some extras need: pip installs that while the package is built."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text("utf-8"))["project"]


def requirements(name: str) -> list[str]:
    """List what an extra needs, with the extras that it names; or a package that is no extra."""
    found = []
    for line in PROJECT["optional-dependencies"].get(name, [name]):
        own = re.fullmatch(r"fbeta\[(.*)\]", line)
        found += [n for extra in own[1].split(",") for n in requirements(extra)] if own else [line]
    return found


if __name__ == "__main__":
    every = PROJECT["dependencies"] + [n for name in sys.argv[1:] for n in requirements(name)]
    print(*dict.fromkeys(every), sep="\n")
