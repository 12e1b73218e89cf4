"""Averages of label statistics that cross-validation chooses; the automatic classifier."""

from fbeta.ensemble.auto import FBetaAuto
from fbeta.ensemble.average import FBetaEnsemble

__all__ = ["FBetaAuto", "FBetaEnsemble"]
