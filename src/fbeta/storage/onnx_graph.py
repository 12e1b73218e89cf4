"""Graphs of ONNX under construction, in double precision, and features of tables and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import Chebyshev, cheb2poly
from scipy import sparse
from scipy.stats import norm
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    QuantileTransformer,
    StandardScaler,
)

from fbeta._array import optional_import
from fbeta.datasets import TableEncoder
from fbeta.datasets.cells import GAPS
from fbeta.datasets.table_encoder import CategoryColumn, DateColumn, NumberColumn, TextColumn

# versions of the operators and of the format, which onnxruntime 1.17 and later read
OPSETS, IR_VERSION = (("", 18), ("ai.onnx.ml", 3)), 10
_QUANTILE_END = 1e-7  # as in scikit-learn: how near to the ends quantiles are cut off
_NORMAL_DEGREE = 32  # of the polynomial for normal scores, whose error is that of rounding
# results that are not of the type of what they are made of
_COMPARISONS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "IsNaN")
_RESULTS: dict[str, type] = {"LabelEncoder": int, **dict.fromkeys(_COMPARISONS, bool)}
# operators along an axis, the second unless another is given
_ALONG_AXIS = ("Concat", "Gather", "GatherElements", "ScatterElements", "Softmax", "TopK")
# operators whose inputs beside the first are places, axes or shapes
_WITH_PLACES = {"CumSum", "Gather", "GatherElements", "ReduceMax", "ReduceMin", "ReduceSum"}
_WITH_PLACES |= {"Reshape", "Slice", "Squeeze", "TopK", "Unsqueeze"}


def _operator(kind: str, turned: bool = False) -> Callable[[Any, Any], Value]:
    """Return a method that makes a value of two, or of a value and a number."""
    return lambda self, other: self.graph.op(kind, *((other, self) if turned else (self, other)))


class Value:
    """Numbers or booleans in a graph, of type float (double), int, bool or str.

    ``x.Max(y)`` adds the operator ``Max`` of ONNX to x and y. A number beside a value becomes a
    constant of its type.
    """

    def __init__(self, graph: Graph, name: str, dtype: type = float) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    __add__, __sub__, __mul__, __truediv__ = map(_operator, ("Add", "Sub", "Mul", "Div"))
    __rsub__, __rtruediv__ = _operator("Sub", True), _operator("Div", True)
    __gt__, __ge__, __lt__ = map(_operator, ("Greater", "GreaterOrEqual", "Less"))
    __le__, __and__, __matmul__ = map(_operator, ("LessOrEqual", "And", "MatMul"))

    def __getattr__(self, kind: str) -> Callable[..., Value]:
        if not kind[:1].isupper():
            raise AttributeError(kind)
        return partial(self.graph.op, kind, self)

    def __getitem__(self, part: Any) -> Value:
        """Return a part of an axis, ``x[:, 2:5]``, or x with one axis more, ``x[:, None]``."""
        *before, last = part if isinstance(part, tuple) else (part,)
        if last is None:
            return self.Unsqueeze([len(before)])
        return self.Slice([last.start or 0], [last.stop], [len(before)])

    def cast(self, dtype: type) -> Value:
        """Return the value as another type."""
        return Value(self.graph, self.Cast(to=self.graph.type_code(dtype)).name, dtype)

    def columns(self) -> Value:
        """Return the columns of a value to scan over, of shape (columns, n, 1)."""
        return self.Transpose(perm=[1, 0])[:, :, None]

    def pad(self, *widths: int, fill: float = 0.0) -> Value:
        """Return the value with more (or fewer) entries before and after those of each axis."""
        return self.Pad(self.graph.constant(widths, int), fill)

    def top(self, count: Any, **options: Any) -> tuple[Value, Value]:
        """Return the largest numbers of each row, the largest first, and where they are."""
        values, places = self.graph.ops("TopK", 2, self, count, **options)
        return values, Value(self.graph, places.name, int)


class Graph:
    """Nodes and constants of a graph; those of a loop or a branch while its body is made."""

    def __init__(self) -> None:
        self.onnx = optional_import("onnx", "onnx", "the export to ONNX")
        self.nodes: list[Any] = []
        self.constants: dict[tuple[Any, ...], Value] = {}
        self.initializers: list[Any] = []
        self.count = 0
        self.beta = Value(self, "beta")

    def name(self, hint: str) -> str:
        """Return a name that no other value has."""
        self.count += 1
        return f"{hint}_{self.count}"

    def type_code(self, dtype: type) -> int:
        """Return the number of a type in ONNX."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, value: Any, dtype: type = float) -> Value:
        """Return a constant; equal ones are kept once."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = Value(self, self.name("constant"), dtype)
            made = self.onnx.numpy_helper.from_array(array, self.constants[key].name)
            self.initializers.append(made)
        return self.constants[key]

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """Add an operation, and return its first result."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: Any, **attributes: Any) -> list[Value]:
        """Add an operation with several results."""
        numbers = inputs[1:] if kind == "Where" else inputs
        dtype = next(value.dtype for value in numbers if isinstance(value, Value))
        beside = int if kind in _WITH_PLACES else dtype
        given = [v if isinstance(v, Value) else self.constant(v, beside) for v in inputs]
        outputs = [Value(self, self.name(kind), _RESULTS.get(kind, dtype)) for _ in range(results)]
        if kind in _ALONG_AXIS:
            attributes.setdefault("axis", 1)
        names = ([value.name for value in values] for values in (given, outputs))
        self.nodes.append(self.onnx.helper.make_node(kind, *names, **attributes))
        return outputs

    def scan(
        self,
        body: Callable[[list[Value], list[Value]], list[Value]],
        states: Sequence[Value],
        over: Sequence[Value],
        results: int = 0,
        *,
        backwards: bool = False,
    ) -> list[Value]:
        """Return last states and results of a body, scanned over the first axis of values."""
        before = [Value(self, self.name("state")) for _ in states]
        parts = [Value(self, self.name("part")) for _ in over]
        inner = self._inner([*before, *parts], lambda: body(before, parts))
        attributes: dict[str, Any] = {"body": inner, "num_scan_inputs": len(over)}
        if backwards:
            attributes["scan_input_directions"] = [1] * len(over)
        return self.ops("Scan", len(states) + results, *states, *over, **attributes)

    def choose(
        self, condition: Value, *branches: Callable[[], list[Value]], results: int
    ) -> list[Value]:
        """Return what one of two graphs makes, in double precision: the first if the condition."""
        yes, no = (self._inner([], make) for make in branches)
        made = self.ops("If", results, condition, then_branch=yes, else_branch=no)
        return [Value(self, value.name) for value in made]

    def _inner(self, inputs: list[Value], make: Callable[[], list[Value]]) -> Any:
        """Return a graph within this one; the names of its results are its own."""
        helper, (outer, self.nodes) = self.onnx.helper, (self.nodes, [])
        outputs = [value.Identity() for value in make()]
        given, made = (
            [helper.make_tensor_value_info(v.name, self.type_code(float), None) for v in values]
            for values in (inputs, outputs)
        )
        inner = helper.make_graph(self.nodes, self.name("body"), given, made)
        self.nodes = outer
        return inner


def table_inputs(encoder: TableEncoder, names: Any) -> dict[str, list[str]]:
    """Return the columns of the inputs ``X`` (numbers and dates) and ``categories``, by name."""
    found: dict[str, list[str]] = {"X": [], "categories": []}
    for name, part in zip(map(str, names), encoder.parts_, strict=True):
        if isinstance(part, TextColumn):
            raise TypeError(
                f"the column {name!r} is text, and ONNX has no operator that finds its words as "
                f"the model does: fit a model without it (--drop {name!r}), or predict with fbeta"
            )
        if part is not None:
            found["categories" if isinstance(part, CategoryColumn) else "X"].append(name)
    return found


def encode_table(encoder: TableEncoder, X: Value) -> Value:
    """Return the features of the inputs of a table; X, (n, m), has days since 1970 for dates."""
    g, blocks, columns = X.graph, [], []  # columns of the table, one for each feature
    used = [(j, part) for j, part in enumerate(encoder.parts_) if part is not None]
    plain = [(j, part) for j, part in used if not isinstance(part, CategoryColumn)]
    numbers = [i for i, (_, part) in enumerate(plain) if isinstance(part, NumberColumn)]
    if numbers:
        blocks.append(_numbers([plain[i][1] for i in numbers], X.Gather(numbers)))
        columns += [plain[i][0] for i in numbers for _ in range(1 + plain[i][1].gaps)]
    for i, (j, part) in enumerate(plain):
        if isinstance(part, DateColumn):
            days = X[:, i : i + 1]
            days = days.IsNaN().Where(part.fill, days)
            turns = [days * (2 * np.pi) / period for period in part.periods]
            waves = [wave for turn in turns for wave in (turn.Sin(), turn.Cos())]
            blocks.append((days.Concat(*waves) - part.means) / part.scales)
            columns += [j] * (1 + len(waves))
    categories = [(j, part) for j, part in used if isinstance(part, CategoryColumn)]
    for i, (j, part) in enumerate(categories):
        if part.values:
            cells = Value(g, "categories", str)[:, i : i + 1]
            blocks.append(_one_hot(part.values, cells))
            columns += [j] * len(part.values)
    return g.op("Concat", *blocks).Gather(np.argsort(columns, kind="stable"))


def _numbers(parts: list[NumberColumn], X: Value) -> Value:
    """Return scaled numbers, (n, m), each followed by whether it is a gap where training had."""
    gaps = X.IsNaN()
    scaled = (X - [part.mean for part in parts]) / [part.scale for part in parts]
    both = gaps.Where(0.0, scaled).Concat(gaps.cast(float))
    places = [[i, len(parts) + i][: 1 + part.gaps] for i, part in enumerate(parts)]
    return both.Gather(np.concatenate(places))


def _one_hot(values: tuple[str, ...], cells: Value) -> Value:
    """Return a feature for each category of a column of text, (n, 1)."""
    codes = {value: code for code, value in enumerate(values)}
    if "" in codes:
        codes = {**dict.fromkeys(GAPS, codes[""]), **codes}
    options = {"keys_strings": list(codes), "values_int64s": list(codes.values())}
    found = cells.LabelEncoder(domain="ai.onnx.ml", default_int64=-1, **options)
    return found.Equal([range(len(values))]).cast(float)


def transform(step: Any, X: Value) -> Any:
    """Return what a fitted transformer, or a list or pipeline of some, makes of X."""
    match step:
        case None | "passthrough":
            return X
        case list():
            return reduce(lambda made, inner: transform(inner, made), step, X)
        case Pipeline():
            return transform([inner for _, inner in step.steps], X)
        case StandardScaler():
            scale = np.ones(step.n_features_in_) if step.scale_ is None else 1 / step.scale_
            return X * scale + (-step.mean_ * scale if step.with_mean else 0 * scale)
        case MinMaxScaler():
            scaled = X * step.scale_ + step.min_
            return scaled.Clip(*step.feature_range) if step.clip else scaled
        case MaxAbsScaler():
            scaled = X * (1 / step.scale_)
            return scaled.Clip(-1.0, 1.0) if getattr(step, "clip", False) else scaled
        case SimpleImputer() if np.isnan(step.missing_values):
            gaps, kept = X.IsNaN(), np.flatnonzero(~np.isnan(step.statistics_))
            marked = [] if step.indicator_ is None else step.indicator_.features_
            filled = gaps.Where(step.statistics_, X).Gather(kept)
            return filled.Concat(gaps.Gather(marked).cast(float)) if len(marked) else filled
        case QuantileTransformer(output_distribution="normal"):
            return _quantiles(step, X)
        case Normalizer(norm="l2"):
            return _unit_length(X)
        case TfidfTransformer(norm="l2", sublinear_tf=True, use_idf=True):
            # of no word there are no counts, and the logarithm is not taken
            none = X.Equal(0.0)
            return _unit_length(none.Where(X, none.Where(1.0, X).Log() + 1.0) * step.idf_)
        case Nystroem(kernel="rbf" | "laplacian"):
            return _kernel(step, X)
    raise TypeError(
        f"a pipeline with {type(step).__name__} cannot be exported: expected StandardScaler, "
        "MaxAbsScaler or MinMaxScaler before the classifier, a table of numbers, categories and "
        "dates, or the feature maps of FBetaAuto"
    )


def _unit_length(X: Value) -> Value:
    """Return rows of Euclidean length 1; rows of zeros stay."""
    squares = (X * X).ReduceSum([1])
    return X / squares.Equal(0.0).Where(1.0, squares).Sqrt()


def squared_distances(X: Value, rows: Any) -> Any:
    """Return the squared Euclidean distances of X, (n, d), from constant rows, (n, m)."""
    rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    squares = (X * X).ReduceSum([1]) + X @ (-2 * rows.T) + (rows * rows).sum(axis=1)
    return squares.Max(0.0)


def _kernel(step: Nystroem, X: Value) -> Any:
    """Return the features of a kernel with landmarks."""
    marks = step.components_
    marks = marks.toarray() if sparse.issparse(marks) else np.asarray(marks)
    gamma = 1 / marks.shape[1] if step.gamma is None else step.gamma

    def add(sums: list[Value], parts: list[Value]) -> list[Value]:
        return [sums[0] + (parts[0] - parts[1]).Abs()]

    if step.kernel == "rbf":
        distances = squared_distances(X, marks)
    else:
        over = [X.columns(), X.graph.constant(marks.T[:, None, :])]
        (distances,) = X.graph.scan(add, [X[:, :1] * np.zeros((1, len(marks)))], over)
    return (distances * -gamma).Exp() @ step.normalization_.T


def _quantiles(step: QuantileTransformer, values: Value) -> Any:
    """Return normal scores of the quantiles of each column, cut off as in scikit-learn."""
    # between the last and between the first of equal knots
    p = (_levels(step, values, "LessOrEqual") + _levels(step, values, "Less")) * 0.5
    low, high = step.quantiles_[0] + _QUANTILE_END, step.quantiles_[-1] - _QUANTILE_END
    p = (values < low).Where(0.0, (values > high).Where(1.0, p))
    end = _QUANTILE_END - np.spacing(1)
    p = p.Clip(end, 1 - end)
    rest = 1.0 - p
    root = (p.Min(rest).Log() * -1.0).Sqrt()
    # the inverse of the normal distribution is a smooth function of sqrt(-ln p): a polynomial
    fitted = Chebyshev.interpolate(
        lambda r: -norm.ppf(np.exp(-r * r)),
        _NORMAL_DEGREE,
        domain=[np.sqrt(np.log(2)), np.sqrt(-np.log(end))],
    )
    shift, scale = fitted.mapparms()
    x = root * scale + shift
    value = x * 0.0
    for coefficient in cheb2poly(fitted.coef)[::-1]:
        value = value * x + float(coefficient)
    return (p - rest).Sign() * value


def _levels(step: QuantileTransformer, X: Value, kind: str) -> Value:
    """Interpolate between knots, of which those below compare so with X, found by bisection."""
    g, (count, width) = X.graph, step.quantiles_.shape
    knots, levels = g.constant(step.quantiles_.T.ravel()), g.constant(step.references_)
    starts = count * np.arange(width)[None, :] - 1

    def knot(rank: Value) -> Value:
        return knots.Gather((rank.Min(count) + starts).cast(int), axis=0)

    def halve(ranks: list[Value], parts: list[Value]) -> list[Value]:
        further = ranks[0] + parts[0]
        below = (further <= count) & g.op(kind, knot(further), X)
        return [below.Where(further, ranks[0])]

    steps = g.constant(2.0 ** np.arange(count.bit_length())[::-1, None])
    (rank,) = g.scan(halve, [X * 0.0], [steps])
    rank = rank.Max(1.0).Min(count - 1)
    low, place = knot(rank), rank.cast(int)
    gap = knot(rank + 1.0) - low
    share = (X - low) / gap.Equal(0.0).Where(1.0, gap)
    below = levels.Gather(place - 1, axis=0)
    return below + (levels.Gather(place, axis=0) - below) * share
