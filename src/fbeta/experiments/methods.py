"""Methods by name: a name, what it is called in tables, and how to make it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["METHODS", "Method", "available_methods", "make_method"]


@dataclass(frozen=True)
class Method:
    """How to make an estimator of the library.

    Attributes
    ----------
    title : str
        For tables.
    name : str
        Of the class.
    module : str
        Where it is, imported only when the method is used; if empty, in a file of
        :mod:`fbeta.rivals`.
    parameters : mapping
        Those that differ from the defaults of the class.
    """

    title: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""

    def load(self) -> Any:
        """Return the class."""
        if self.module:
            return getattr(importlib.import_module(self.module), self.name)
        return _find_rival(self.name)


def _find_rival(name: str) -> Any:
    """Find a class in the package that has one file for each rival."""
    package = importlib.import_module("fbeta.rivals")
    for info in pkgutil.iter_modules(package.__path__, "fbeta.rivals."):
        if not info.name.rpartition(".")[2].startswith("_"):
            found = getattr(importlib.import_module(info.name), name, None)
            if found is not None:
                return found
    raise ImportError(f"there is no {name} in fbeta.rivals")


def _ours(title: str, **parameters: Any) -> Method:
    return Method(title, "FBetaClassifier", parameters, "fbeta.models")


#: Every method that experiments and the command line know by name.
METHODS: dict[str, Method] = {
    "fbeta": _ours("FBeta"),
    "fbeta-all": _ours("FBeta, all sizes", cardinalities="all"),
    "fbeta-origin": _ours(
        "FBeta, all sizes, no intercept", cardinalities="all", fit_intercept=False
    ),
    "efp": Method("EFP", "ExactFPlugIn"),
    "limo": Method("LIMO", "Limo"),
    "br": Method("BR", "BinaryRelevance"),
    "chain": Method("Probabilistic chain", "ProbabilisticChain"),
    "threshold": Method("Thresholded BR", "ThresholdedRelevance"),
    "cost": Method("Cost-sensitive BR", "CostSensitiveRelevance"),
    "rml": Method("RML", "ReverseMultiLabel"),
    "sml": Method("SML", "SubmodularMultiLabel"),
    "macrof": Method("Macro-F SVM", "MacroFSvm"),
}


def make_method(name: str, beta: float = 1.0) -> Any:
    """Make the estimator of a method.

    Parameters
    ----------
    name : str
        One of ``METHODS``.
    beta : float > 0
        The measure to be optimal for.

    Returns
    -------
    estimator
        Not fitted.

    Raises
    ------
    ValueError
        If there is no such method, or this installation lacks it.

    Examples
    --------
    >>> make_method("fbeta-all", beta=2.0)
    FBetaClassifier(beta=2.0, cardinalities='all')
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}: expected one of {', '.join(METHODS)}")
    method = METHODS[name]
    try:
        factory = method.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"method {name!r} is not available: {error}") from error
    return factory(beta=beta, **method.parameters)


def available_methods() -> tuple[str, ...]:
    """Return the names of the methods that this installation can run.

    Examples
    --------
    >>> "fbeta" in available_methods()
    True
    """
    names = []
    for name in METHODS:
        try:
            make_method(name)
        except (ValueError, TypeError):
            continue
        names.append(name)
    return tuple(names)
