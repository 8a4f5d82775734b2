"""Sessions of ONNX Runtime, all made in one way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from quaver.adapters.data import InputSpec
from quaver.errors import BuildError


def options(threads: int = 0) -> Any:
    """Session options: all optimisations, on `threads` threads (0 lets the runtime decide), warnings off."""
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = threads
    chosen.inter_op_num_threads = 1
    chosen.log_severity_level = 3
    # The memory planner takes half of the creation time of a large graph, and the arena reuses buffers anyway.
    chosen.enable_mem_reuse = False
    return chosen


def create(model: bytes | str | os.PathLike[str], chosen: Any, folder: Path | None = None) -> Any:
    """An inference session. `folder` is where the model's external constants lie."""
    if folder is not None:
        chosen.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.resolve()))
    source = model if isinstance(model, bytes) else os.fspath(model)
    try:
        return ort.InferenceSession(source, chosen, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise BuildError(f"ONNX Runtime cannot load the model: {error}") from error


def input_specs(session: Any) -> tuple[InputSpec, ...]:
    """What a model takes, as its session describes it."""
    return tuple(map(_spec, session.get_inputs()))


def _spec(value: Any) -> InputSpec:
    kinds = {"float": "float32", "double": "float64", "string": "object"}
    inner = str(value.type).removeprefix("tensor(").removesuffix(")")
    shape = tuple(dim if isinstance(dim, int) and dim > 0 else None for dim in value.shape)
    return InputSpec(value.name, np.dtype(kinds.get(inner, inner)), shape)
