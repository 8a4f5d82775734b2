"""A quantized model seen from inside: scales, weights, and every op beside its float self."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from quaver.adapters.base import Adapter
from quaver.adapters.batches import Feed
from quaver.adapters.mxnet.build.quantizing import Builder
from quaver.adapters.mxnet.look.branches import Branches
from quaver.adapters.mxnet.look.integers import parameters
from quaver.adapters.mxnet.look.observation import Observer
from quaver.adapters.mxnet.look.quantized_graph import QuantizedGraph
from quaver.adapters.mxnet.look.weights import weight_of
from quaver.adapters.mxnet.read.graph import Node
from quaver.adapters.mxnet.read.intake import take_in
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.read.units import Unit
from quaver.adapters.mxnet.time.kernels import precisions
from quaver.adapters.mxnet.time.profiling import op_seconds
from quaver.adapters.view import View
from quaver.errors import ModelError
from quaver.introspection import ActivationContext, LocalRun, OpContext, OpWeight, QuantizedRun
from quaver.ops import FLOAT, QuantConfig

# MXNet keeps channels there.
_CHANNELS = 1


class NetworkView(View):
    """A quantized network beside the float one: of a configuration, or from a file."""

    def __init__(self, adapter: Adapter, quantized: QuantConfig | Any, builder: Builder, threads: int) -> None:
        known = isinstance(quantized, QuantConfig)
        config = quantized if known else QuantConfig((name, FLOAT) for name in builder.by_name)
        super().__init__(adapter, config)
        self._builder, self._threads = builder, threads
        self._network = builder.build(quantized) if known else _from_file(quantized, builder)
        self._graph = QuantizedGraph(self._network.symbol)

    @functools.cached_property
    def precisions(self) -> Mapping[str, str]:
        return precisions(self._graph, self._builder.by_name)

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        branches = Branches(self._builder, self._network, ops, tensors, self._threads)
        return lambda feed: LocalRun(*branches.run(feed))

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        observer = Observer(self._network, ops, self._threads)
        return lambda feed: QuantizedRun(*observer.run(feed))

    def weights(self) -> Iterator[OpWeight]:
        for unit in self._builder.units:
            reduced = self._graph.quantized(unit.op.name) is not None
            network = self._builder.network
            found = weight_of(unit, self._builder.graph, network, self._network if reduced else None)
            if found is not None:
                yield found

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
        reads = tuple(self._tensor(one) for one in self._graph.integers_read(node))
        writes = self._tensor(node) if len(self._graph.outputs(node)) >= 3 else None
        one_scale = "" if unit.op.kind == "Convolution" else "MXNet has one scale for all of it (tensor-wise)"
        return OpContext(name, output, _CHANNELS, reads, writes, one_scale, *around)

    def _tensor(self, node: Node) -> ActivationContext:
        """What a node gives in integers, by the name of the float tensor."""
        low, high = self._graph.range_of(node)
        source = self._graph.float_source(node)
        graph = self._builder.graph
        name = self._builder.output(graph.by_name[source]) if source in graph.by_name else source
        origin, moved = self._builder.origin(name)
        kind = np.int8 if low < 0 else np.uint8
        found = {method: self._builder.ranges(name)[method] for method in self._builder.ranges(name)}
        return ActivationContext(name, parameters(kind, low, high), found, origin, moved, _CHANNELS)

    def seconds(self) -> Mapping[str, float]:
        sample = self._adapter.timing_feed
        return op_seconds(self._builder, self._network, sample, self._threads)


def _from_file(source: Any, builder: Builder) -> Network:
    found = take_in(source)
    graph = QuantizedGraph(found.symbol)
    if not any(graph.quantized(name) for name in builder.by_name):
        raise ModelError("no op of the float model is found in int8 in this one: it was made from another, or is float")
    return found
