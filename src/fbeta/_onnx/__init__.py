"""Graphs of ONNX, node by node: nothing but the package ``onnx`` is needed to write them."""
