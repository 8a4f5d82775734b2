"""Convert a Keras model, a SavedModel, a frozen graph or a function to a float .tflite with TensorFlow.

Each becomes a concrete function, whose variables are frozen into constants before the converter gets it. Freezing first
matters: of functions whose variables it has to find by itself, the converter makes models that compute NaN.

"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quaver.adapters.litert.load.model_file import SourceRunner
from quaver.errors import ModelError
from quaver.types import Feed

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from quaver.adapters.litert.load.functions import Function, function_of, make_caller, node_name, summarize_error
from quaver.types import Array, ModelLike

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Converted:
    """The result of the converter.

    Attributes:
        content: a float .tflite.
        inputs: names of its inputs, in order.
        outputs: names of its outputs, in order.
        output_nodes: for tensors named after the function's result, the graph node that computes them.
        source: runs the original model.
        versions: of the converter.
    """

    content: bytes
    inputs: list[str]
    outputs: list[str]
    output_nodes: Mapping[str, str]
    source: SourceRunner
    versions: dict[str, str]


class _Unconvertible(Exception):
    """The converter refused the model."""


def convert(model: ModelLike, signature: str | None = None) -> Converted:
    """Convert a model in any form except .tflite."""
    function = function_of(model, signature)
    with without_converter_warnings():
        try:
            return _convert(function)
        except _Unconvertible as error:
            first = error
        try:
            if function.with_batch_of_one is None:
                raise first
            converted = _convert(function.with_batch_of_one())
        except _Unconvertible:
            raise ModelError(f"TensorFlow cannot convert the model to .tflite: {first}") from first.__cause__
    log.warning("the model can be converted to .tflite only with a batch of one sample: feed it single samples")
    return converted


def _convert(function: Function) -> Converted:
    frozen = None
    try:
        frozen = convert_variables_to_constants_v2(function.concrete)
        _refuse_tensor_lists(frozen)
        content = tf.lite.TFLiteConverter.from_concrete_functions([frozen]).convert()
    except _Unconvertible:
        raise
    except Exception as error:
        raise _Unconvertible(f"{summarize_error(error)}{_float64_hint(frozen)}") from error
    nodes = [node_name(tensor.name) for tensor in frozen.inputs]
    inputs = list(function.inputs) or nodes
    outputs = list(function.outputs) or [f"output_{at}" for at in range(len(frozen.outputs))]
    source = _source_runner(function, dict(zip(nodes, inputs, strict=True)))
    return Converted(bytes(content), inputs, outputs, _output_nodes(frozen), source, {"tensorflow": tf.__version__})


def _refuse_tensor_lists(frozen: Any) -> None:
    """Refuse recurrent layers with an open batch: they keep lists of tensors, which need a known batch size."""
    definition = frozen.graph.as_graph_def()
    nodes = [*definition.node, *(node for part in definition.library.function for node in part.node_def)]
    has_open_batch = any(tensor.shape.rank and tensor.shape[0] is None for tensor in frozen.inputs)
    if has_open_batch and any(node.op == "TensorListReserve" for node in nodes):
        raise _Unconvertible(
            "its recurrent layers need a batch of known size. Export it with a batch of one, or pass the Keras model"
        )


def _float64_hint(frozen: Any) -> str:
    """Return a sentence about float64 weights, for which .tflite has few operators; empty if there are none."""
    nodes = [] if frozen is None else frozen.graph.get_operations()
    names = [repr(node.name) for node in nodes if node.type == "Const" and node.outputs[0].dtype == tf.float64]
    return f". Its weights are float64: pass the float32 model ({', '.join(names[:4])})" if names else ""


def _output_nodes(frozen: Any) -> dict[str, str]:
    names: dict[str, str] = {}
    for tensor in frozen.outputs:
        node = tensor.op
        while node.type in ("Identity", "IdentityN") and node.inputs:
            node = node.inputs[0].op
        if node.type not in ("Placeholder", "Const"):
            names.setdefault(node_name(tensor.name), node.name)
    return {name: node for name, node in names.items() if list(names.values()).count(node) == 1}


def _source_runner(function: Function, names: Mapping[str, str]) -> SourceRunner:
    call = make_caller(function.concrete)

    def run(feed: Feed, owner: Any = function.owner) -> list[Array]:
        tensors = {node: tf.constant(feed[name]) for node, name in names.items()}
        return [np.asarray(part) for part in tf.nest.flatten(call(tensors))]

    return run


@contextlib.contextmanager
def without_converter_warnings() -> Iterator[None]:
    """Suppress the converter's deprecation warnings."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
