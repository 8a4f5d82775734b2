"""Get one concrete function from each form of a TensorFlow model."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from quaver.adapters.litert.load import sources
from quaver.adapters.litert.load.model_file import DEFAULT
from quaver.adapters.litert.load.sources import FrozenGraph
from quaver.errors import ModelError
from quaver.types import ModelLike, PlainMapping

_VARIABLES = {"Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable"}
_NO_OUTPUT = {"Assert", "Const", "NoOp", "Placeholder", "PlaceholderWithDefault", "Assign", "SaveV2", "RestoreV2"}
_UNNAMED = re.compile(r"Identity(_\d+)?:0")


@dataclass(frozen=True)
class Function:
    """A concrete function.

    Attributes:
        concrete: the function.
        owner: what keeps its variables alive.
        inputs: names of its inputs, in order; those of its placeholders if empty.
        outputs: names of its outputs, in order; numbered if empty.
        of_one: makes the same function for a batch of one; None where it cannot be traced again.
    """

    concrete: Any
    owner: Any
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    with_batch_of_one: Callable[[], Function] | None = None


def function_of(model: ModelLike, signature: str | None) -> Function:
    """Return the function of a model in any form."""
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
    if hasattr(model, "layers"):
        return _of_keras(model)
    if hasattr(model, "get_concrete_function"):
        return _of_tf_function(model)
    if hasattr(model, "structured_outputs") and hasattr(model, "inputs"):
        return Function(model, model)
    raise ModelError(f"a {type(model).__name__} is not a model; quaver accepts {sources.ACCEPTED_FORMS}")


def make_caller(concrete: Any) -> Callable[[PlainMapping], Any]:
    """Return a function that calls a concrete function with tensors by the names of its placeholders."""
    structure = concrete.structured_input_signature

    def call(tensors: PlainMapping) -> Any:
        if structure is None:
            return concrete(*tensors.values())
        flat = [
            tensors[spec.name] if isinstance(spec, tf.TensorSpec) else spec
            for spec in tf.nest.flatten(structure, expand_composites=False)
        ]
        args, keywords = tf.nest.pack_sequence_as(structure, flat)
        return concrete(*args, **keywords)

    return call


def node_name(tensor: str) -> str:
    """Return the name of the node that writes a tensor."""
    return str(tensor).partition(":")[0]


def summarize_error(error: Exception) -> str:
    """Return the message of a TensorFlow error without the pages of context around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    essential = [line for line in lines if "error:" in line or "Flex" in line or "needs" in line] or lines
    return " / ".join(line[:200] for line in essential[:3])


def _load_keras(path: Path) -> Any:
    import keras

    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        raise ModelError(
            f"Keras cannot load {str(path)!r}: {summarize_error(error)}. A file of weights alone is not a model. Load "
            "a model with custom layers in your own code, and pass the model object"
        ) from error


def _of_keras(model: ModelLike, batch: int | None = None) -> Function:
    backend = getattr(getattr(sys.modules.get("keras"), "backend", None), "backend", lambda: "tensorflow")()
    if backend != "tensorflow" and type(model).__module__.partition(".")[0] != "tf_keras":
        raise ModelError(
            f"the Keras model runs on {backend}; save it, and pass the file in a process with KERAS_BACKEND=tensorflow"
        )
    symbolic = getattr(model, "inputs", None)
    if not symbolic:
        raise ModelError(
            f"the inputs of the Keras model {model.name!r} are not known. Build it from keras.Input, wrap it as "
            "keras.Model(x, model(x)), or export it and pass the SavedModel folder"
        )
    specs = []
    for at, tensor in enumerate(symbolic):
        shape = list(tensor.shape)
        if shape and shape[0] is None:
            shape[0] = batch
        specs.append(tf.TensorSpec(shape, tensor.dtype, f"input_{at}"))

    def call(*tensors: Any) -> Any:
        return model(_as_called(model, tensors), training=False)

    traced = tf.function(call, autograph=False).get_concrete_function(*specs)
    names = [_input_name(tensor) for tensor in symbolic]
    return Function(traced, model, names, with_batch_of_one=lambda: _of_keras(model, 1))


def _input_name(tensor: Any) -> str:
    """Return the name of the input layer, which a saved model keeps; the name of its tensor is generated each time."""
    history = getattr(tensor, "_keras_history", None)
    return str(getattr(getattr(history, "operation", None), "name", None) or node_name(tensor.name))


def _as_called(model: ModelLike, tensors: Sequence[Any]) -> Any:
    """Return the inputs in the structure in which the model takes them."""
    structure = getattr(model, "input", None)
    if isinstance(structure, dict):
        places = {id(tensor): at for at, tensor in enumerate(model.inputs)}
        return {key: tensors[places[id(value)]] for key, value in structure.items()}
    return tensors[0] if len(tensors) == 1 and not isinstance(structure, list | tuple) else list(tensors)


def _of_tf_function(function: Any) -> Function:
    try:
        return Function(function.get_concrete_function(), function)
    except Exception as error:
        raise ModelError(
            f"the inputs of the tf.function are not known ({summarize_error(error)}). Give it an input_signature, "
            "or pass function.get_concrete_function(tf.TensorSpec(...))"
        ) from error


def _of_saved_model(path: Path, signature: str | None) -> Function:
    try:
        root = tf.saved_model.load(str(path))
    except Exception as error:
        raise ModelError(f"the SavedModel {str(path)!r} cannot be loaded: {summarize_error(error)}") from error
    signatures = root.signatures
    name = signature or (next(iter(signatures)) if len(signatures) == 1 else DEFAULT)
    if name not in signatures:
        raise ModelError(
            f"the SavedModel {str(path)!r} has no signature {name!r}; it has: "
            f"{', '.join(map(repr, signatures)) or 'none'}. "
            "Choose one with quaver.adapters.litert.Signature(path, name)"
        )
    concrete = signatures[name]
    return Function(concrete, root, outputs=sorted(concrete.structured_outputs))


def _of_graph(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> Function:
    definition = tf.compat.v1.GraphDef()
    try:
        definition.ParseFromString(path.read_bytes())
    except Exception as error:
        raise ModelError(f"{str(path)!r} cannot be read as a frozen graph ({type(error).__name__})") from error
    variable = next((node.name for node in definition.node if node.op in _VARIABLES), None)
    if variable is not None:
        raise ModelError(f"the graph {str(path)!r} is not frozen: {variable!r} is a variable")
    placeholders = [node.name for node in definition.node if node.op == "Placeholder"]
    ins, outs = [
        [_port(name) for name in names] for names in (inputs or placeholders, outputs or _unread_nodes(definition))
    ]
    nodes = {node.name for node in definition.node}
    unknown = next((port for port in (*ins, *outs) if node_name(port) not in nodes), None)
    if unknown is not None:
        raise ModelError(f"the graph {str(path)!r} has no node {node_name(unknown)!r}")
    if not ins or not outs:
        raise ModelError(
            f"the {'outputs' if ins else 'inputs'} of the graph {str(path)!r} cannot be inferred: name them with "
            "quaver.adapters.litert.FrozenGraph(path, inputs, outputs)"
        )
    wrapped = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(definition, name=""), [])
    output_names = [] if all(map(_UNNAMED.fullmatch, outs)) else [port.removesuffix(":0") for port in outs]
    return Function(wrapped.prune(ins, outs), wrapped, outputs=output_names)


def _port(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _unread_nodes(definition: Any) -> list[str]:
    """Return the nodes that no other node reads."""
    read = {node_name(name.lstrip("^")) for node in definition.node for name in node.input}
    return [node.name for node in definition.node if node.name not in read and node.op not in _NO_OUTPUT]
