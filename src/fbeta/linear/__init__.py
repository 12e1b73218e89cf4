"""The solver: every binary problem of the reduction at once, on the same X.

``design`` holds X in coordinates in which the problems are easy, ``newton`` solves a block of
problems together on arrays of any library, ``lanes`` comes before it with a compiled solver where
there is one, ``problems`` leaves out what needs no solving and hands out the rest, ``path`` walks
along the strengths of regularisation.
"""

from fbeta.linear.design import Design
from fbeta.linear.path import solve_path
from fbeta.linear.problems import LinearModel, LinearProblems, fit_linear

__all__ = ["Design", "LinearModel", "LinearProblems", "fit_linear", "solve_path"]
