"""The paper's table and figure: what is run, how it is stored, and what is drawn from it.

An experiment is data set x method x parameters. Running, tabulating and drawing are separate
steps: the stored results are enough for every table and figure.
"""

from fbeta.experiments.cells import Cell, Record, ResultError

__all__ = ["Cell", "Record", "ResultError"]
