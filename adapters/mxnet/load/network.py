"""An MXNet model: a symbol, its parameters, and its inputs."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters.data import InputSpec
from quaver.adapters.mxnet.load import sources
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.errors import ModelError
from quaver.types import ModelLike, PlainDict, PlainMapping


@dataclass(frozen=True, eq=False)
class Network:
    """An MXNet model.

    Attributes:
        symbol: its graph.
        args: trained parameters by name, as NDArrays.
        aux: parameters that are not trained by gradients, such as the means of a BatchNorm.
        inputs: inputs of the model.
    """

    symbol: Any
    args: PlainMapping
    aux: PlainMapping
    inputs: tuple[InputSpec, ...]

    @property
    def parameters(self) -> PlainDict:
        """Return args and aux together."""
        return {**self.args, **self.aux}


def fingerprint(network: Network) -> str:
    """Return a hash of graph and parameters."""
    graph = json.dumps(json.loads(network.symbol.tojson()), sort_keys=True)
    digest = hashlib.sha256(graph.encode())
    for name, array in sorted(network.parameters.items()):
        values = array.asnumpy()
        digest.update(f"{name}\0{values.dtype}\0{values.shape}\0".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


# Output operators for training also read labels. These operators compute the same without.
_TRAINING_OUTPUTS = {
    "SoftmaxOutput": "softmax",
    "LogisticRegressionOutput": "sigmoid",
    "LinearRegressionOutput": "_copy",
    "MAERegressionOutput": "_copy",
}
# Attributes of a variable that describe its values; others are for training.
_VARIABLE_ATTRIBUTES = ("__shape__", "__dtype__")


def canonical(mx: Any, symbol: Any) -> Any:
    """Return the graph without labels and without traces of training, such as rates."""
    graph = json.loads(symbol.tojson())
    for node in graph["nodes"]:
        attributes = node.pop("attrs", {})
        if node["op"] == "null":
            attributes = {name: value for name, value in attributes.items() if name in _VARIABLE_ATTRIBUTES}
        elif node["op"] in _TRAINING_OUTPUTS:
            each_place = attributes.get("multi_output") in ("True", "true", "1")
            attributes = {"axis": "1"} if each_place else {}
            node.update(op=_TRAINING_OUTPUTS[node["op"]], inputs=node["inputs"][:1])
        node["inputs"] = [[at, output, 0] for at, output, *_ in node["inputs"]]
        node["attrs"] = attributes
    return mx.sym.load_json(json.dumps(graph))


# Name of the entry of a parameter file that holds the graph.
SYMBOL_ENTRY = "symbol"


def load_network(model: ModelLike) -> Network:
    """Load a model in any form that `sources.ACCEPTED_FORMS` names."""
    mx = import_mxnet()
    if isinstance(model, bytes):
        return _from_params(mx, mx.nd.load_frombuffer(model), None, "the file of parameters")
    if isinstance(model, str | os.PathLike):
        symbol_file, params_file = sources.find_files(model)
        return _from_params(mx, mx.nd.load(str(params_file)), symbol_file, repr(str(params_file)))
    if isinstance(model, tuple):
        symbol, args, aux = model
        return _network(mx, symbol, {**args, **aux})
    if isinstance(model, mx.gluon.HybridBlock):
        return _from_block(mx, model)
    if isinstance(model, mx.mod.BaseModule):
        if not model.params_initialized:
            raise ModelError("the Module has no parameters yet: bind it and set them, or give (symbol, args, aux)")
        args, aux = model.get_params()
        return _network(mx, model.symbol, {**args, **aux})
    if isinstance(model, mx.gluon.Block):
        raise ModelError(
            f"{type(model).__name__} is a Gluon Block without a graph: derive it from HybridBlock, and use "
            "nn.HybridSequential instead of nn.Sequential"
        )
    raise ModelError(f"a {type(model).__name__} of MXNet is not a model; quaver accepts {sources.ACCEPTED_FORMS}")


def _from_params(mx: Any, arrays: Any, symbol_file: Path | None, where: str) -> Network:
    if not isinstance(arrays, dict):
        raise ModelError(f"{where} holds arrays without names: save a dict of them")
    symbol_entry = arrays.pop(SYMBOL_ENTRY, None)
    if symbol_entry is not None:
        symbol = mx.sym.load_json(symbol_entry.asnumpy().tobytes().decode())
    elif symbol_file is not None:
        symbol = mx.sym.load(str(symbol_file))
    else:
        raise ModelError(f"{where} holds only parameters, and no {sources.SYMBOL!r} file of that name is next to it")
    return _network(mx, symbol, {name.partition(":")[2] or name: value for name, value in arrays.items()})


def symbol_text(path: Path) -> str:
    """Return the graph of a file as JSON, exactly as written there."""
    symbol_file, params_file = sources.find_files(path)
    arrays = import_mxnet().nd.load(str(params_file))
    symbol_entry = arrays.get(SYMBOL_ENTRY) if isinstance(arrays, dict) else None
    if symbol_entry is not None:
        return str(symbol_entry.asnumpy().tobytes().decode())
    return symbol_file.read_text(encoding="utf-8") if symbol_file is not None else "{}"


def _from_block(mx: Any, block: Any) -> Network:
    names = _input_names(block)
    flat = list(_flattened(block.forward(*(mx.sym.var(name) for name in names))))
    symbol = flat[0] if len(flat) == 1 else mx.sym.Group(flat)
    parameters = {parameter.name: parameter for parameter in block.collect_params().values()}
    values = {}
    for name in {*symbol.list_arguments(), *symbol.list_auxiliary_states()} - set(names):
        try:
            values[name] = parameters[name].data(parameters[name].list_ctx()[0])
        except (mx.gluon.parameter.DeferredInitializationError, RuntimeError) as error:
            raise ModelError(
                f"parameter {name!r} of the block has no values yet: load them, or run the block once on a batch"
            ) from error
    return _network(mx, symbol, values, names)


def _input_names(block: Any) -> list[str]:
    """Return the names that `export` uses: data, or data0, data1, ...; a block made from a graph keeps its own."""
    if type(block).__name__ == "SymbolBlock":
        return [symbol.name for symbol in block._cached_graph[0]]
    parameters = list(inspect.signature(block.hybrid_forward).parameters.values())[1:]  # without F
    count = sum(
        parameter.default is inspect.Parameter.empty
        and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in block._reg_params
        for parameter in parameters
    )
    return ["data"] if count == 1 else [f"data{at}" for at in range(count)]


def _flattened(outputs: Any) -> Any:
    if isinstance(outputs, list | tuple):
        for output in outputs:
            yield from _flattened(output)
    else:
        yield outputs


def _network(mx: Any, symbol: Any, values: PlainMapping, names: Sequence[str] = ()) -> Network:
    """Return the graph with copies of its parameters, which later training does not change."""
    if not isinstance(symbol, mx.sym.Symbol):
        raise ModelError(f"the first of (symbol, arg_params, aux_params) is a {type(symbol).__name__}, not a Symbol")
    symbol = canonical(mx, symbol)
    wanted, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    missing = next((name for name in states if name not in values), None)
    if missing is not None:
        raise ModelError(f"there is no value for the auxiliary parameter {missing!r}")
    inputs = names or [name for name in wanted if name not in values]
    unused = next((name for name in inputs if name not in wanted), None)
    if unused is not None:
        raise ModelError(f"input {unused!r} is not used by the model")
    args, aux = (
        {name: values[name].as_in_context(mx.cpu()).copy() for name in some if name in values}
        for some in (wanted, states)
    )
    return Network(symbol, args, aux, tuple(_spec(symbol, name) for name in inputs))


def _spec(symbol: Any, name: str) -> InputSpec:
    """Return the spec of an input. A symbol rarely contains a shape; without one any shape is accepted."""
    attributes = symbol.attr_dict().get(name, {})
    dtype = np.dtype(np.float32)
    shape: tuple[int | None, ...] | None = None
    declared = attributes.get("__shape__", "").strip("()[] ")
    if declared:
        dims = [int(part) for part in declared.split(",") if part.strip()]
        shape = (None, *(dim if dim > 0 else None for dim in dims[1:])) if dims else None
    return InputSpec(name, dtype, shape)
