"""The solver: every problem of a reduction at once, on the same X.

``design`` holds X in coordinates in which the problems are easy (``rotation``, ``tiles``),
``objectives`` what is minimised - ``binary``, ``multinomial``, ``cardinality``, ``label_sets`` are
the kinds there are -, ``driver`` the one Newton method over an oracle, ``in_memory`` the oracle for
arrays of any library, with ``conjugate`` gradients and ``preconditioners`` on a ``batch`` of
problems. ``compiled`` is the same method in C++ where there is a compiler, ``problems`` hands them
out and follows paths of alphas, ``learner`` is what estimators use, ``models`` what they get.
"""

from fbeta.linear.binary import LinearProblems
from fbeta.linear.cardinality import Cardinality
from fbeta.linear.design import Design
from fbeta.linear.label_sets import LabelSets
from fbeta.linear.models import LinearModel, LinearProbabilities, LinearScores
from fbeta.linear.multinomial import Multinomial
from fbeta.linear.problems import Problems, Solution, solve_path

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
