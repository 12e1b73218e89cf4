"""The solver: every problem of a reduction at once, on the same X.

``learner`` is what estimators use, ``models`` what they get; ``docs/solver.md`` says how it works.
"""

from fbeta.linear.cardinality import Cardinality
from fbeta.linear.design import Design
from fbeta.linear.learner import solve_path
from fbeta.linear.models import LinearModel, LinearProbabilities, LinearScores
from fbeta.linear.multinomial import LabelSets, Multinomial
from fbeta.linear.problems import LinearProblems, Problems, Solution

__all__ = [
    "Cardinality",
    "Design",
    "LabelSets",
    "LinearModel",
    "LinearProbabilities",
    "LinearProblems",
    "LinearScores",
    "Multinomial",
    "Problems",
    "Solution",
    "solve_path",
]
