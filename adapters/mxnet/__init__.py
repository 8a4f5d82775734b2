"""The adapter for MXNet.

    from quaver.adapters.mxnet import mxnet as mx

imports MXNet beside a numpy that is newer than it; see `import_mxnet`.
"""

from __future__ import annotations

from typing import Any

from quaver.adapters.mxnet.load.onnx_export import to_onnx
from quaver.adapters.mxnet.load.sources import import_mxnet

__all__ = ["import_mxnet", "to_onnx"]


def __getattr__(name: str) -> Any:
    if name == "mxnet":
        return import_mxnet()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
