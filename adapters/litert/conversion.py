"""TensorFlow, once: from a Keras model, a SavedModel, a frozen graph or a function to a float .tflite.

All take one way: a concrete function, its variables frozen into constants, and the converter. Freezing first matters:
the converter makes models that compute NaN of functions whose variables it has to find by itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.batches import Feed
from quaver.adapters.litert import sources
from quaver.adapters.litert.intake import DEFAULT, Source
from quaver.adapters.litert.sources import FrozenGraph
from quaver.errors import ModelError

log = logging.getLogger(__name__)

if "tensorflow" not in sys.modules:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

_VARIABLES = {"Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable"}
_NO_OUTPUT = {"Assert", "Const", "NoOp", "Placeholder", "PlaceholderWithDefault", "Assign", "SaveV2", "RestoreV2"}


@dataclass(frozen=True)
class Converted:
    """What the converter made.

    Attributes:
        content: a float .tflite.
        inputs: names of its inputs, in order.
        outputs: names of its outputs, in order.
        behind: for tensors that are called after the function's result, the graph node that computes it.
        source: runs the model as it was.
        versions: of the converter.
    """

    content: bytes
    inputs: list[str]
    outputs: list[str]
    behind: Mapping[str, str]
    source: Source
    versions: dict[str, str]


@dataclass(frozen=True)
class _Function:
    """A concrete function; `owner` keeps its variables alive."""

    concrete: Any
    outputs: list[str] | None
    owner: Any = None


def convert(model: Any, signature: str | None = None) -> Converted:
    """Convert a model in any form but .tflite."""
    with _quiet():
        try:
            return _convert(_function(model, signature, None))
        except _Unconvertible as error:
            first = error
        # Recurrent layers need a batch of known size.
        try:
            converted = _convert(_function(model, signature, 1))
        except (_Unconvertible, ModelError):
            raise ModelError(f"TensorFlow cannot convert the model to .tflite: {first}") from first.__cause__
    log.warning("the model converts with a batch of one sample only: feed it one by one")
    return converted


class _Unconvertible(Exception):
    """The converter refused."""


def _convert(function: _Function) -> Converted:
    try:
        frozen = convert_variables_to_constants_v2(function.concrete)
        content = tf.lite.TFLiteConverter.from_concrete_functions([frozen]).convert()
    except Exception as error:
        raise _Unconvertible(_first_lines(error)) from error
    inputs = [_node(tensor.name) for tensor in frozen.inputs]
    outputs = function.outputs or [f"output_{at}" for at in range(len(frozen.outputs))]
    return Converted(
        bytes(content), inputs, outputs, _behind(frozen), _source(function, inputs), {"tensorflow": tf.__version__}
    )


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "error:" in line or "Flex" in line or "needs" in line] or lines
    return " / ".join(line[:200] for line in told[:3])


def _behind(frozen: Any) -> dict[str, str]:
    names = {}
    for tensor in frozen.outputs:
        node = tensor.op
        while node.type in ("Identity", "IdentityN") and node.inputs:
            node = node.inputs[0].op
        if node.type not in ("Placeholder", "Const"):
            names.setdefault(_node(tensor.name), node.name)
    return {name: node for name, node in names.items() if list(names.values()).count(node) == 1}


def _node(name: str) -> str:
    return str(name).partition(":")[0]


def _source(function: _Function, names: Sequence[str]) -> Source:
    concrete = function.concrete
    structure = concrete.structured_input_signature

    def run(feed: Feed) -> list[NDArray[Any]]:
        tensors = {name: tf.constant(feed[name]) for name in names}
        if structure is None:
            result = concrete(*tensors.values())
        else:
            flat = [
                tensors[spec.name] if isinstance(spec, tf.TensorSpec) else spec
                for spec in tf.nest.flatten(structure, expand_composites=False)
            ]
            args, keywords = tf.nest.pack_sequence_as(structure, flat)
            result = concrete(*args, **keywords)
        return [np.asarray(part) for part in tf.nest.flatten(result)]

    run.owner = function.owner  # type: ignore[attr-defined]
    return run


def _function(model: Any, signature: str | None, batch: int | None) -> _Function:
    """A concrete function of any form; `batch` replaces an open batch size."""
    if isinstance(model, FrozenGraph):
        return _of_graph(Path(model.path), model.inputs, model.outputs)
    if isinstance(model, Path):
        if sources.is_saved_model(model):
            return _of_saved_model(model, signature)
        if model.name in sources.SAVED_MODEL:
            return _of_saved_model(model.parent, signature)
        if model.suffix.lower() in sources.GRAPH:
            return _of_graph(model, (), ())
        model = _load_keras(model)
    if hasattr(model, "get_concrete_function") and not hasattr(model, "layers"):
        return _of_tf_function(model)
    if hasattr(model, "structured_outputs") and hasattr(model, "inputs"):
        return _Function(model, None, model)
    if hasattr(model, "layers"):
        return _of_keras(model, batch)
    raise ModelError(f"a {type(model).__name__} is no model; quaver takes {sources.TAKES}")


def _load_keras(path: Path) -> Any:
    import keras

    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        raise ModelError(
            f"Keras cannot load {str(path)!r}: {_first_lines(error)}. A file of weights alone is no model; one with "
            "custom layers is best loaded by your own code, and the model object given"
        ) from error


def _of_keras(model: Any, batch: int | None) -> _Function:
    backend = getattr(getattr(sys.modules.get("keras"), "backend", None), "backend", lambda: "tensorflow")()
    if backend != "tensorflow" and type(model).__module__.partition(".")[0] != "tf_keras":
        raise ModelError(
            f"the Keras model runs on {backend}; save it, and give the file in a process with KERAS_BACKEND=tensorflow"
        )
    symbolic = getattr(model, "inputs", None)
    if not symbolic:
        raise ModelError(
            f"the inputs of the Keras model {model.name!r} are not known. Build it from keras.Input, wrap it as "
            "keras.Model(x, model(x)), or export it and give the SavedModel folder"
        )
    specs = []
    for tensor in symbolic:
        shape = list(tensor.shape)
        if shape and shape[0] is None:
            shape[0] = batch
        specs.append(tf.TensorSpec(shape, tensor.dtype, re.sub(r"[^\w.\\/-]", "_", _node(tensor.name))))

    def call(*tensors: Any) -> Any:
        return model(_as_called(model, tensors), training=False)

    return _Function(tf.function(call, autograph=False).get_concrete_function(*specs), None, model)


def _as_called(model: Any, tensors: Sequence[Any]) -> Any:
    """The inputs in the structure in which the model takes them."""
    structure = getattr(model, "input", None)
    if isinstance(structure, dict):
        names = {id(tensor): at for at, tensor in enumerate(model.inputs)}
        return {key: tensors[names[id(value)]] for key, value in structure.items()}
    return tensors[0] if len(tensors) == 1 and not isinstance(structure, list | tuple) else list(tensors)


def _of_tf_function(function: Any) -> _Function:
    try:
        return _Function(function.get_concrete_function(), None, function)
    except Exception as error:
        raise ModelError(
            f"the inputs of the tf.function are not known ({_first_lines(error)}). Give it an input_signature, or pass "
            "function.get_concrete_function(tf.TensorSpec(...))"
        ) from error


def _of_saved_model(path: Path, signature: str | None) -> _Function:
    try:
        root = tf.saved_model.load(str(path))
    except Exception as error:
        raise ModelError(f"the SavedModel {str(path)!r} cannot be loaded: {_first_lines(error)}") from error
    known = root.signatures
    name = signature or (DEFAULT if DEFAULT in known else next(iter(known), None) if len(known) == 1 else None)
    if name is None or name not in known:
        said = f"no signature {signature!r}" if signature else f"no signature {DEFAULT!r}"
        raise ModelError(
            f"the SavedModel {str(path)!r} has {said}; it has: {', '.join(map(repr, known)) or 'none'}. Choose one with "
            "quaver.adapters.litert.Signature(path, name)"
        )
    concrete = known[name]
    return _Function(concrete, sorted(concrete.structured_outputs), root)


def _of_graph(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> _Function:
    definition = tf.compat.v1.GraphDef()
    try:
        definition.ParseFromString(path.read_bytes())
    except Exception as error:
        raise ModelError(f"{str(path)!r} cannot be read as a frozen graph ({type(error).__name__})") from error
    nodes = {node.name: node for node in definition.node}
    loose = next((node.name for node in definition.node if node.op in _VARIABLES), None)
    if loose is not None:
        raise ModelError(f"the graph {str(path)!r} is not frozen: {loose!r} is a variable")
    ins = [_node(name) for name in inputs] or [node.name for node in definition.node if node.op == "Placeholder"]
    outs = [_node(name) for name in outputs] or _leaves(definition)
    for name in (*ins, *outs):
        if name not in nodes:
            raise ModelError(f"the graph {str(path)!r} has no node {name!r}")
    if not ins or not outs:
        raise ModelError(
            f"the {'inputs' if not ins else 'outputs'} of the graph {str(path)!r} cannot be inferred: name them with "
            "quaver.adapters.litert.FrozenGraph(path, inputs, outputs)"
        )
    wrapped = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(definition, name=""), [])
    ports = [name if ":" in name else f"{name}:0" for name in outputs] or [f"{name}:0" for name in outs]
    pruned = wrapped.prune([f"{name}:0" for name in ins], ports)
    return _Function(pruned, [name.replace(":0", "") for name in ports], wrapped)


def _leaves(definition: Any) -> list[str]:
    read = {_node(name.lstrip("^")) for node in definition.node for name in node.input}
    return [node.name for node in definition.node if node.name not in read and node.op not in _NO_OUTPUT]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the converter's notes on what it is about to deprecate."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
