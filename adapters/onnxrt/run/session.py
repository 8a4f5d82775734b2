"""Sessions of ONNX Runtime, all made in one way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnxruntime as ort

from quaver.adapters.data import InputSpec
from quaver.errors import BuildError

Session: TypeAlias = ort.InferenceSession


def options(threads: int = 0) -> ort.SessionOptions:
    """Return session options: all optimisations, `threads` threads (0 lets the runtime decide), warnings off."""
    session_options = ort.SessionOptions()
    session_options.intra_op_num_threads = threads
    session_options.inter_op_num_threads = 1
    session_options.log_severity_level = 3
    # The memory planner takes half of the creation time of a large graph, and the arena reuses buffers without it.
    session_options.enable_mem_reuse = False
    return session_options


def create(
    model: bytes | str | os.PathLike[str], session_options: ort.SessionOptions, folder: Path | None = None
) -> Session:
    """Return an inference session. `folder` holds the model's external constants."""
    if folder is not None:
        session_options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder.resolve())
        )
    source = model if isinstance(model, bytes) else os.fspath(model)
    try:
        session: Session = ort.InferenceSession(source, session_options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise BuildError(f"ONNX Runtime cannot load the model: {error}") from error
    return session


def input_specs(session: Session) -> tuple[InputSpec, ...]:
    """Return what a model takes, as its session describes it."""
    return tuple(map(_spec, session.get_inputs()))


def _spec(value: ort.NodeArg) -> InputSpec:
    kinds = {"float": "float32", "double": "float64", "string": "object"}
    type_name = str(value.type).removeprefix("tensor(").removesuffix(")")
    shape = tuple(dim if isinstance(dim, int) and dim > 0 else None for dim in value.shape)
    names = tuple(dim if isinstance(dim, str) else "" for dim in value.shape)
    return InputSpec(value.name, np.dtype(kinds.get(type_name, type_name)), shape, names)
