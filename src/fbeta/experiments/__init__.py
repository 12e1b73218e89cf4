"""The paper's table and figure: what is run, how it is stored, and what is drawn from it.

An experiment is data set x method x parameters; tables and figures need its stored results only.
"""

from fbeta.experiments.cells import Cell, Record, ResultError

__all__ = ["Cell", "Record", "ResultError"]
