"""The weights of ops, as the float model has them and as oneDNN computes with them."""

from __future__ import annotations

import numpy as np

from quaver.adapters.mxnet.look.integers import parameters
from quaver.adapters.mxnet.read.graph import Graph
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.read.units import Unit
from quaver.introspection import OpWeight
from quaver.quantization import Array, QuantizationParameters, QuantizedTensor

_OUTER, _INNER = 0, 1
_QUANTIZED = "_quantize"
# Of a BatchNorm, where the user did not say.
_EPSILON = 1e-3


def weight_of(unit: Unit, graph: Graph, network: Network, quantized: Network | None) -> OpWeight | None:
    """The weight of an op beside what it is in `quantized`, or as it is where the op is in fp32; None without one."""
    name = _weight_name(unit, graph)
    if name is None or name not in network.args:
        return None
    before = _folded(unit, graph, network, network.args[name].asnumpy())
    if quantized is None:
        return OpWeight(unit.op.name, before, before, _OUTER, _INNER)
    stored = quantized.args.get(name + _QUANTIZED)
    if stored is None:
        return OpWeight(unit.op.name, before, _by_channel(before), _OUTER, _INNER)
    ends = [float(quantized.args[f"{name}{_QUANTIZED}_{end}"].asnumpy().reshape(-1)[0]) for end in ("min", "max")]
    values = stored.asnumpy()
    return OpWeight(unit.op.name, before, QuantizedTensor(values, parameters(values.dtype, *ends)), _OUTER, _INNER)


def _weight_name(unit: Unit, graph: Graph) -> str | None:
    return graph.variables.get(unit.node.inputs[1][0]) if len(unit.node.inputs) > 1 else None


def _folded(unit: Unit, graph: Graph, network: Network, weight: Array) -> Array:
    """The weight with the BatchNorm behind it multiplied in, as oneDNN does before it quantizes."""
    told = unit.node.settings.get("BatchNorm")
    if told is None:
        return weight
    names = {graph.variables[at] for at, _ in unit.node.inputs if at in graph.variables}
    ending = {end: next((name for name in names if name.endswith(end)), None) for end in ("gamma", "var")}
    if ending["var"] is None:
        return weight
    variance = network.parameters[ending["var"]].asnumpy()
    fixed = told.get("fix_gamma", "True").lower() in ("true", "1") or ending["gamma"] is None
    gamma = 1.0 if fixed else network.parameters[ending["gamma"] or ""].asnumpy()
    factor = gamma / np.sqrt(variance + float(told.get("eps", _EPSILON)))
    return np.asarray(weight * factor.reshape(-1, *([1] * (weight.ndim - 1))), np.float32)


def _by_channel(weight: Array) -> QuantizedTensor:
    """In int8, with a scale for each output channel. MXNet keeps such weights in float, and oneDNN does this."""
    largest = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    scale = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    integers = np.rint(weight / scale.reshape(-1, *([1] * (weight.ndim - 1)))).astype(np.int8)
    return QuantizedTensor(integers, QuantizationParameters(scale, np.zeros(len(scale), np.int8), axis=_OUTER))
