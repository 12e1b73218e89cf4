"""The solver: every problem of a reduction at once, on the same X.

``problems`` has the learners that estimators use; ``docs/solver.md`` says how it works.
"""

from fbeta.linear.cardinality import Cardinality
from fbeta.linear.design import Design
from fbeta.linear.learner import solve_path
from fbeta.linear.multinomial import LabelSets, Multinomial
from fbeta.linear.objectives import Binary, LinearModel, LinearScores
from fbeta.linear.problems import LinearLearner, Problems, Solution
from fbeta.losses import LinearProbabilities

__all__ = [
    "Binary",
    "Cardinality",
    "Design",
    "LabelSets",
    "LinearLearner",
    "LinearModel",
    "LinearProbabilities",
    "LinearScores",
    "Multinomial",
    "Problems",
    "Solution",
    "solve_path",
]
