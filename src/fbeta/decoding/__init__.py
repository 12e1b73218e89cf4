"""From statistics to the label set with the highest expected measure."""

from fbeta.decoding.exact import decode
from fbeta.decoding.expected import expected_fbeta, expected_measure

__all__ = ["decode", "expected_fbeta", "expected_measure"]
