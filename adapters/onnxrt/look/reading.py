"""A quantized ONNX model in whichever form it is given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from quaver.errors import ModelError


def read_file(source: Any) -> ModelProto:
    """A quantized model from a path, bytes, or a ModelProto. Raises `ModelError`."""
    if isinstance(source, ModelProto):
        return source
    try:
        if isinstance(source, bytes | bytearray | memoryview):
            return onnx.load_model_from_string(bytes(source))
        if not Path(os.fspath(source)).is_file():
            raise ModelError(f"no model file at {os.fspath(source)!r}")
        return onnx.load_model(os.fspath(source))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"the quantized model cannot be read as an ONNX model ({error})") from error
