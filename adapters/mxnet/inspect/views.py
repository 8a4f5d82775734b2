"""View of a quantized network: scales, weights, and every op next to its float version."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from quaver.adapters.base import Adapter
from quaver.adapters.inspection import ModelView
from quaver.adapters.mxnet.build.builder import Builder
from quaver.adapters.mxnet.inspect.integers import QuantizedGraph, parameters
from quaver.adapters.mxnet.inspect.local_runs import LocalRuns, OutputReader
from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.adapters.mxnet.load.network import Network, load_network
from quaver.adapters.mxnet.ops.units import Unit
from quaver.adapters.mxnet.profile.op_profile import op_seconds, precisions
from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.errors import ModelError
from quaver.introspection import ActivationContext, LocalRun, OpContext, OpWeight, QuantizedRun
from quaver.ops import FLOAT, QuantConfig
from quaver.types import Array, Feed

_OUTER, _INNER = 0, 1
_QUANTIZED = "_quantize"
# MXNet's default for BatchNorm.
_EPSILON = 1e-3


def weight_of(unit: Unit, graph: Graph, network: Network, quantized: Network | None) -> OpWeight | None:
    """Return the weight of an op before and in `quantized`; unchanged where the op is in fp32; None without one."""
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
    """Return the weight multiplied by the BatchNorm behind it, as oneDNN does before it quantizes."""
    settings = unit.node.settings.get("BatchNorm")
    if settings is None:
        return weight
    names = {graph.variables[at] for at, _ in unit.node.inputs if at in graph.variables}
    ending = {end: next((name for name in names if name.endswith(end)), None) for end in ("gamma", "var")}
    if ending["var"] is None:
        return weight
    variance = network.parameters[ending["var"]].asnumpy()
    fixed = settings.get("fix_gamma", "True").lower() in ("true", "1") or ending["gamma"] is None
    gamma = 1.0 if fixed else network.parameters[ending["gamma"] or ""].asnumpy()
    factor = gamma / np.sqrt(variance + float(settings.get("eps", _EPSILON)))
    return np.asarray(weight * factor.reshape(-1, *([1] * (weight.ndim - 1))), np.float32)


def _by_channel(weight: Array) -> QuantizedTensor:
    """Return the weight in int8 with a scale for each output channel, which oneDNN makes from a float weight."""
    largest = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    scale = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    integers = np.rint(weight / scale.reshape(-1, *([1] * (weight.ndim - 1)))).astype(np.int8)
    return QuantizedTensor(integers, QuantizationParameters(scale, np.zeros(len(scale), np.int8), axis=_OUTER))


# The axis that holds channels in MXNet.
_CHANNELS = 1


class NetworkView(ModelView):
    """A quantized network, of a configuration or from a file, next to the float one."""

    def __init__(self, adapter: Adapter, quantized: QuantConfig | Any, builder: Builder, threads: int) -> None:
        is_config = isinstance(quantized, QuantConfig)
        config = quantized if is_config else QuantConfig((name, FLOAT) for name in builder.by_name)
        super().__init__(adapter, config)
        self._builder, self._threads = builder, threads
        self._network = builder.build(quantized) if is_config else _from_file(quantized, builder)
        self._graph = QuantizedGraph(self._network.symbol)

    @functools.cached_property
    def precisions(self) -> Mapping[str, str]:
        return precisions(self._graph, self._builder.by_name)

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        local_runs = LocalRuns(self._builder, self._network, ops, tensors, self._threads)
        return lambda feed: LocalRun(*local_runs.run(feed))

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        reader = OutputReader(self._network, ops, self._threads)
        return lambda feed: QuantizedRun(*reader.run(feed))

    def weights(self) -> Iterator[OpWeight]:
        for unit in self._builder.units:
            quantized = self._graph.quantized(unit.op.name) is not None
            network = self._builder.network
            op_weight = weight_of(unit, self._builder.graph, network, self._network if quantized else None)
            if op_weight is not None:
                yield op_weight

    def contexts(self) -> Mapping[str, OpContext]:
        return {unit.op.name: self._context(unit) for unit in self._builder.units}

    def _context(self, unit: Unit) -> OpContext:
        name, builder = unit.op.name, self._builder
        output = builder.output(unit.node)
        before = dict.fromkeys(op for tensor in builder.reads(unit.node) if (op := builder.origin(tensor)[0]))
        between = dict.fromkeys(kind for tensor in builder.reads(unit.node) for kind in builder.origin(tensor)[1])
        around = tuple(before), tuple(between)
        node = self._graph.quantized(name)
        if node is None:
            return OpContext(name, output, _CHANNELS, (), None, "", *around)
        reads = tuple(self._tensor(source) for source in self._graph.integers_read(node))
        writes = self._tensor(node) if len(self._graph.outputs(node)) >= 3 else None
        one_scale = "" if unit.op.kind == "Convolution" else "MXNet has one scale for all of it (tensor-wise)"
        return OpContext(name, output, _CHANNELS, reads, writes, one_scale, *around)

    def _tensor(self, node: Node) -> ActivationContext:
        """Return the integer output of a node, by the name of the float tensor."""
        low, high = self._graph.range_of(node)
        source = self._graph.float_source(node)
        graph = self._builder.graph
        name = self._builder.output(graph.by_name[source]) if source in graph.by_name else source
        origin, moved = self._builder.origin(name)
        kind = np.int8 if low < 0 else np.uint8
        ranges = {method: self._builder.ranges(name)[method] for method in self._builder.ranges(name)}
        return ActivationContext(name, parameters(kind, low, high), ranges, origin, moved, _CHANNELS)

    def seconds(self) -> Mapping[str, float]:
        sample = self._adapter.timing_feed
        return op_seconds(self._builder, self._network, sample, self._threads)


def _from_file(source: Any, builder: Builder) -> Network:
    network = load_network(source)
    graph = QuantizedGraph(network.symbol)
    if not any(graph.quantized(name) for name in builder.by_name):
        raise ModelError("no op of the float model runs in int8 here: this was made from another model, or is float")
    return network
