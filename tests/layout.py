"""The table of rooms in CONTRIBUTING.md, made from the docstrings of the packages.

``python -m tests.layout`` writes it; a test compares.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fbeta"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- layout -->\n", "<!-- end of layout -->\n"


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def table() -> str:
    """One row for each module at the top and for each room, with the modules in it."""
    rows = [
        f"| `{path.name}` | {first_line(path)} | |"
        for path in sorted(SOURCE.glob("*.py"))
        if path.name != "__init__.py"
    ]
    for room in sorted(path.parent for path in SOURCE.glob("*/__init__.py")):
        names = sorted(p.stem for p in room.glob("*.py") if not p.stem.startswith("__"))
        modules = ", ".join(f"`{name}`" for name in names)
        rows.append(f"| `{room.name}/` | {first_line(room / '__init__.py')} | {modules} |")
    return "\n".join(["| room | holds | modules |", "| --- | --- | --- |", *rows]) + "\n"


def with_table(text: str) -> str:
    """The page with the table of today between its two marks."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
