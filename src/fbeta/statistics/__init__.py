"""What a decoder needs to know of the labels of an instance: codes, statistics, their laws."""

from fbeta.statistics.encoding import encode, encode_labels, observed_cardinalities
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["LabelStatistics", "encode", "encode_labels", "observed_cardinalities"]
