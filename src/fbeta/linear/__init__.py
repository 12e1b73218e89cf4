"""The solver: every problem of a reduction at once, on the same X.

``problems`` has the learners that estimators use; ``docs/solver.md`` says how it works.
"""

from fbeta.linear.cardinality import Cardinality
from fbeta.linear.design import Design
from fbeta.linear.learner import solve_path
from fbeta.linear.multinomial import LabelSets, Multinomial
from fbeta.linear.objectives import LinearModel, LinearScores
from fbeta.linear.problems import LinearLearner, LinearProblems, Problems, Solution, SolverLearner
from fbeta.losses import LinearProbabilities

__all__ = [
    "Cardinality",
    "Design",
    "LabelSets",
    "LinearLearner",
    "LinearModel",
    "LinearProbabilities",
    "LinearProblems",
    "LinearScores",
    "Multinomial",
    "Problems",
    "Solution",
    "SolverLearner",
    "solve_path",
]
