"""Build the network of a configuration with MXNet's own pass and the calibrated ranges."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from quaver.adapters.calibration.ranges import Range
from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.adapters.mxnet.load.network import Network
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.adapters.mxnet.ops.units import QUANTIZE_GRANULARITY, find_units
from quaver.adapters.repairs.base import refuse_repairs
from quaver.errors import BuildError
from quaver.ops import QuantConfig

BACKEND = "MKLDNN_QUANTIZE"
# MXNet writes ranges with six decimal places; a narrower one would become empty.
MIN_RANGE = 1e-5


class Builder:
    """Builds any configuration of one network. MXNet decides which nodes can be quantized, and quantizes them."""

    def __init__(self, source: Network) -> None:
        self._mx = import_mxnet()
        self.network = Network(
            source.symbol.get_backend_symbol(BACKEND),
            source.args,
            source.aux,
            source.inputs,
        )
        self.graph = Graph(self.network.symbol)
        self.parameters = frozenset(self.network.parameters)
        quantizable = self._quantized([], "full")
        profitable = self._find_profitable(quantizable)
        self.units = find_units(self.graph, profitable)
        self.by_name = {unit.op.name: unit for unit in self.units}
        self.followers = {name: self.graph.by_name[name] for name in quantizable if name not in profitable}
        self._ranges: Mapping[str, Mapping[str, Range]] = {}

    def tensors_to_calibrate(self) -> list[str]:
        """Return the tensors whose range some configuration may need: inputs and outputs of ops and followers."""
        nodes = [*(unit.node for unit in self.units), *self.followers.values()]
        tensors = (tensor for node in nodes for tensor in (*self.reads(node), self.output(node)))
        return list(dict.fromkeys(tensors))

    def reads(self, node: Node) -> list[str]:
        """Return the tensors that a node reads, without parameters."""
        return self.graph.reads(node, self.parameters)

    def output(self, node: Node) -> str:
        """Return the tensor that a node writes."""
        return self.graph.outputs(node)[0]

    def calibrate(self, ranges: Mapping[str, Mapping[str, Range]]) -> None:
        """Use these ranges from now on."""
        missing = next((name for name in self.tensors_to_calibrate() if name not in ranges), None)
        if missing is not None:
            raise BuildError(f"the calibration holds no range of tensor {missing!r}: it belongs to another model")
        self._ranges = ranges

    def ranges(self, tensor: str) -> Mapping[str, Range]:
        """Return the range of a tensor by each calibration method."""
        return self._ranges.get(tensor, {})

    def build(self, config: QuantConfig | None) -> Network:
        """Return the network of a configuration.

        Args:
            config: how each op runs; None for the float model with oneDNN's subgraphs.
        """
        refuse_repairs(config, "mxnet")
        if config is None or not config.quantized_ops:
            return self.network
        if not self._ranges:
            raise BuildError("the model is not calibrated yet")
        from mxnet.contrib import quantization

        quantized = set(config.quantized_ops)
        symbol, tensors = self._pass([name for name in self.by_name if name not in quantized], "smart")
        thresholds = {name: self._threshold(name, config) for name in tensors}
        symbol = quantization._calibrate_quantized_sym(symbol, thresholds)
        args = quantization._quantize_params(symbol, self.network.args, thresholds)
        return Network(symbol.get_backend_symbol(BACKEND), args, self.network.aux, self.network.inputs)

    @functools.cached_property
    def owner_of(self) -> Mapping[str, str]:
        """Return the op that each op's or follower's time is added to: itself, or the op whose output it follows."""
        follow = {name: self.origin(self.output(node))[0] for name, node in self.followers.items()}
        return {**{name: name for name in self.by_name}, **{name: op for name, op in follow.items() if op}}

    def int8_edges(self) -> dict[str, tuple[str, ...]]:
        """Return for each op the ops that read its output, through followers or not."""
        edges = {name: self._readers.get(self.output(unit.node), ()) for name, unit in self.by_name.items()}
        return {name: readers for name, readers in edges.items() if readers}

    def _threshold(self, tensor: str, config: QuantConfig) -> Range:
        """Return the range of a tensor by the method of its writer, or else of its first int8 reader."""
        by_method = self.ranges(tensor)
        if not by_method:
            raise BuildError(f"there is no range of tensor {tensor!r}, which MXNet wants to quantize")
        low, high = by_method[self._method(tensor, config)]
        return (low, max(high, MIN_RANGE)) if low >= 0 else (min(low, -MIN_RANGE), high)

    def _method(self, tensor: str, config: QuantConfig) -> str:
        for name in (self.origin(tensor)[0], *self._readers.get(tensor, ())):
            if name in config and config[name].quantized:
                return config[name].calibration
        return "minmax"

    def origin(self, tensor: str) -> tuple[str, tuple[str, ...]]:
        """Return the op that a tensor comes from, empty if there is none, and the kinds of the followers in between."""
        kinds = []
        node = self._by_output.get(tensor)
        while node is not None and node.name in self.followers:
            kinds.append(node.kind)
            node = self.graph.nodes.get(node.inputs[0][0])
        is_op = node is not None and node.name in self.by_name
        return (node.name if node is not None and is_op else ""), tuple(reversed(kinds))

    @functools.cached_property
    def _by_output(self) -> Mapping[str, Node]:
        return {self.output(node): node for node in self.graph.in_order()}

    @functools.cached_property
    def _readers(self) -> Mapping[str, tuple[str, ...]]:
        """Return for each tensor the ops that it reaches through followers, in graph order."""
        readers: dict[str, dict[str, None]] = {}
        for node in reversed(list(self.graph.in_order())):
            if node.name in self.by_name:
                reached = {node.name: None}
            elif node.name in self.followers:
                reached = readers.get(self.output(node), {})
            else:
                continue
            for tensor in self.reads(node):
                readers[tensor] = {**reached, **readers.get(tensor, {})}
        return {tensor: tuple(reached) for tensor, reached in readers.items()}

    def _find_profitable(self, quantizable: Collection[str]) -> set[str]:
        """Return the nodes that MXNet quantizes even if no other node is, tried for each kind."""
        kinds: dict[tuple[str, str], set[str]] = {}
        for name in quantizable:
            node = self.graph.by_name[name]
            kinds.setdefault((node.operator, node.kind), set()).add(name)
        profitable = set()
        for names in kinds.values():
            profitable |= names & set(self._quantized([other for other in quantizable if other not in names], "smart"))
        return profitable

    def _quantized(self, excluded: list[str], mode: str) -> list[str]:
        """Return the nodes that MXNet quantizes when these are excluded."""
        names = {node.name for node in Graph(self._pass(excluded, mode)[0]).in_order()}
        return [node.name for node in self.graph.in_order() if f"quantized_{node.name}" in names]

    def _pass(self, excluded: list[str], mode: str) -> tuple[Any, list[str]]:
        """Run MXNet's own pass. Return the quantized graph, and the tensors whose ranges it needs."""
        from mxnet.contrib.quantization import _quantize_symbol

        symbol, tensors = _quantize_symbol(
            self.network.symbol,
            self._mx.cpu(),
            excluded_symbols=excluded,
            excluded_operators=[],
            offline_params=list(self.network.args),
            quantized_dtype="auto",
            quantize_mode=mode,
            quantize_granularity=QUANTIZE_GRANULARITY,
        )
        return symbol, tensors
