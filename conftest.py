"""What pytest leaves out where an optional dependency is missing."""

from importlib.util import find_spec

collect_ignore = []
if find_spec("torch") is None or find_spec("torchmetrics") is None:
    collect_ignore += ["src/fbeta/nn", "src/fbeta/experiments/network_heads.py"]
if find_spec("torch") is None or find_spec("triton") is None:
    collect_ignore += ["src/fbeta/nn/_triton.py", "src/fbeta/linear/_triton.py"]
if find_spec("skorch") is None:
    collect_ignore += ["src/fbeta/nn/net.py"]
if find_spec("onnx") is None:
    collect_ignore += ["src/fbeta/storage/onnx_export.py"]
