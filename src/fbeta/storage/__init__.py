"""Model files, their limits, and ONNX graphs."""

from fbeta.storage.model_files import ModelFileError, load_model, save_model

__all__ = ["ModelFileError", "load_model", "save_model"]
