"""A graph under construction: values are names, operations add nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fbeta._array import optional_import

# versions of the operators and of the format, which onnxruntime 1.17 and later read
OPSET, IR_VERSION = 18, 10


class Graph:
    """Nodes and constants of a graph, or of the body of a scan within an outer one."""

    def __init__(self, outer: Graph | None = None) -> None:
        self.onnx = optional_import("onnx", "onnx", "the export to ONNX")
        self.nodes: list[Any] = []
        self.root: Graph = self if outer is None else outer.root
        self.constants: dict[tuple[Any, ...], str] = {}
        self.initializers: list[Any] = []
        self.count = 0

    def name(self, hint: str) -> str:
        """Return a name that no other value has."""
        self.root.count += 1
        return f"{hint}_{self.root.count}"

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Return a constant; equal ones are kept once."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.root.constants:
            name = self.root.constants[key] = self.name("constant")
            self.root.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return self.root.constants[key]

    def integer(self, value: Any) -> str:
        """Return a constant of integers."""
        return self.constant(value, np.int64)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation, and return its first result."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operation with several results."""
        outputs = [self.name(kind) for _ in range(results)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs

    def sum(self, value: str, axis: int, *, keep: bool = False) -> str:
        """Return the sum along an axis."""
        return self.op("ReduceSum", value, self.integer([axis]), keepdims=int(keep))

    def cut(self, value: str, axis: int, start: int, stop: int) -> str:
        """Return a part of an axis."""
        places = (self.integer([i]) for i in (start, stop, axis))
        return self.op("Slice", value, *places)

    def unsqueeze(self, value: str, axis: int) -> str:
        """Return the value with one more axis."""
        return self.op("Unsqueeze", value, self.integer([axis]))

    def descending(self, value: str, count: str) -> str:
        """Return the largest numbers of each row, the largest first."""
        return self.ops("TopK", 2, value, count, axis=1)[0]

    def scan(
        self,
        body: Callable[[Graph, list[str], list[str]], tuple[list[str], list[str]]],
        states: Sequence[str],
        over: Sequence[str],
        results: int = 0,
        *,
        backwards: bool = False,
    ) -> tuple[list[str], list[str]]:
        """Scan over the first axis of some values, all in double precision.

        The body makes new states and results of a graph, the states and the parts of ``over``.
        Returned are the last states, and the results of all steps, stacked in the order of the
        parts, also where the scan goes backwards.
        """
        inner, helper = Graph(self), self.onnx.helper
        before = [inner.name("state") for _ in states]
        parts = [inner.name("part") for _ in over]
        after, found = body(inner, before, parts)
        # the names of results are those of the body alone
        outputs = [inner.op("Identity", name) for name in (*after, *found)]
        double = self.onnx.TensorProto.DOUBLE
        given, made = (
            [helper.make_tensor_value_info(name, double, None) for name in names]
            for names in ((*before, *parts), outputs)
        )
        subgraph = helper.make_graph(inner.nodes, inner.name("body"), given, made)
        attributes: dict[str, Any] = {"body": subgraph, "num_scan_inputs": len(over)}
        if backwards:
            attributes["scan_input_directions"] = [1] * len(over)
            if results:  # an attribute cannot be an empty list
                attributes["scan_output_directions"] = [1] * results
        out = self.ops("Scan", len(states) + results, *states, *over, **attributes)
        return out[: len(states)], out[len(states) :]
