"""Who knows a framework: ONNX Runtime, and others through the entry point group `quaver.adapters`."""

if __name__ == "adapters":
    raise ImportError("this folder is the package quaver.adapters: write `import quaver.adapters`")

from quaver.adapters.base import Adapter, AdapterOptions, RunnableModel
from quaver.adapters.registry import open_model

__all__ = ["Adapter", "AdapterOptions", "RunnableModel", "open_model"]
