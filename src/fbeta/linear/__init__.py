"""The solver: every problem of a reduction at once, on the same X.

``design`` holds X in coordinates in which the problems are easy, ``objectives`` what is minimised,
``newton`` the one method on arrays of any library, with the ``preconditioners`` it knows,
``compiled`` the same method in C++ where there is a compiler, ``problems`` hands them out,
``binary``, ``multinomial``, ``cardinality`` and ``labelsets`` are the kinds there are, ``path``
walks along the strengths of regularisation.
"""

from fbeta.linear.binary import LinearModel, LinearProblems, fit_linear
from fbeta.linear.cardinality import CardinalityModel, CardinalityProblems
from fbeta.linear.design import Design
from fbeta.linear.labelsets import LabelSetModel, LabelSetProblems
from fbeta.linear.multinomial import SoftmaxModel, SoftmaxProblems, fit_softmax
from fbeta.linear.path import solve_path

__all__ = [
    "CardinalityModel",
    "CardinalityProblems",
    "Design",
    "LabelSetModel",
    "LabelSetProblems",
    "LinearModel",
    "LinearProblems",
    "SoftmaxModel",
    "SoftmaxProblems",
    "fit_linear",
    "fit_softmax",
    "solve_path",
]
