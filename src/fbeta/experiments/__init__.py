"""The paper's table and figure: what is run, how it is stored, and what is drawn from it."""

from fbeta.experiments.cells import Cell, Record

__all__ = ["Cell", "Record"]
