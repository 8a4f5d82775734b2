"""Trials: the float graph with some of its nodes in int8, made by MXNet's own pass with ranges that are known already."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from quaver.adapters.mxnet.read.graph import Graph, Node
from quaver.adapters.mxnet.read.importing import import_mxnet
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.read.units import find_followers, find_units
from quaver.adapters.ranges import Range
from quaver.adapters.repairs import refuse_repairs
from quaver.errors import BuildError
from quaver.ops import QuantConfig

BACKEND = "MKLDNN_QUANTIZE"
# Ranges are written with six digits behind the point; what is narrower would become no range at all.
NARROWEST = 1e-5


class Builder:
    """Builds any configuration of one network. MXNet says which nodes can be quantized, and quantizes them."""

    def __init__(self, given: Network) -> None:
        self._mx = import_mxnet()
        self.network = Network(given.symbol.get_backend_symbol(BACKEND), given.args, given.aux, given.inputs)
        self.graph = Graph(self.network.symbol)
        self.parameters = frozenset(self.network.parameters)
        self._whole = [node.name for node in self.graph.in_order()]
        possible, usual = (self._quantized(mode) for mode in ("full", "smart"))
        self.units = find_units(self.graph, possible, usual)
        self.by_name = {unit.op.name: unit for unit in self.units}
        self._followers = find_followers(self.graph, possible)
        self._ranges: Mapping[str, Mapping[str, Range]] = {}

    def needed(self) -> list[str]:
        """The tensors whose range some configuration may need: what ops read and write, moved about or not."""
        names = [*self.by_name, *self._followers]
        nodes = [self.graph.by_name[name] for name in names]
        tensors = (tensor for node in nodes for tensor in (*self.reads(node), self.output(node)))
        return list(dict.fromkeys(tensors))

    def reads(self, node: Node) -> list[str]:
        """What a node reads that is no parameter."""
        return self.graph.reads(node, self.parameters)

    def output(self, node: Node) -> str:
        """What a node writes."""
        return self.graph.outputs(node)[0]

    def calibrate(self, ranges: Mapping[str, Mapping[str, Range]]) -> None:
        """Use these ranges from now on."""
        missing = next((name for name in self.needed() if name not in ranges), None)
        if missing is not None:
            raise BuildError(f"the calibration holds no range of tensor {missing!r}: it was made for another model")
        self._ranges = ranges

    def ranges(self, tensor: str) -> Mapping[str, Range]:
        """What each calibration method found for a tensor."""
        return self._ranges.get(tensor, {})

    def build(self, config: QuantConfig | None) -> Network:
        """The network of a configuration; None is the float model, with oneDNN's subgraphs."""
        refuse_repairs(config, "mxnet")
        if config is None or not config.reduced_ops:
            return self.network
        if not self._ranges:
            raise BuildError("the model is not calibrated yet")
        from mxnet.contrib import quantization

        symbol, tensors = self._pass(self._in_float(config), "full")
        thresholds = {name: self._threshold(name, config) for name in tensors}
        symbol = quantization._calibrate_quantized_sym(symbol, thresholds)
        args = quantization._quantize_params(symbol, self.network.args, thresholds)
        return Network(symbol.get_backend_symbol(BACKEND), args, self.network.aux, self.network.inputs)

    def flows(self) -> dict[str, tuple[str, ...]]:
        """For each op, the ops that read what it wrote, moved about or not."""
        found: dict[str, list[str]] = {}
        for tensor, writer in self._writers.items():
            if writer:
                found.setdefault(writer, []).extend(self._readers.get(tensor, ()))
        return {writer: tuple(dict.fromkeys(readers)) for writer, readers in found.items() if readers}

    def _in_float(self, config: QuantConfig) -> list[str]:
        """The nodes to leave alone."""
        reduced = set(config.reduced_ops)
        for follower, moved in self._followers.items():  # in graph order
            if moved in reduced:
                reduced.add(follower)
        return [name for name in self._whole if name not in reduced]

    def _threshold(self, tensor: str, config: QuantConfig) -> Range:
        """The range of a tensor: by the method of the op that writes it, or else of the first that reads it in int8."""
        found = self.ranges(tensor)
        if not found:
            raise BuildError(f"there is no range of tensor {tensor!r}, which MXNet wants to quantize")
        low, high = found[self._method(tensor, config)]
        return (low, max(high, NARROWEST)) if low >= 0 else (min(low, -NARROWEST), high)

    def _method(self, tensor: str, config: QuantConfig) -> str:
        for name in (self._writers[tensor], *self._readers.get(tensor, ())):
            if name in config and config[name].reduced:
                return config[name].calibration
        return "minmax"

    @functools.cached_property
    def _writers(self) -> Mapping[str, str]:
        """For each tensor the op that wrote it, before it was moved about; empty if none did."""
        nodes = {self.output(node): node.name for node in self.graph.in_order()}
        found = {}
        for tensor in self.needed():
            writer = nodes.get(tensor, "")
            while writer in self._followers:
                writer = self._followers[writer]
            found[tensor] = writer if writer in self.by_name else ""
        return found

    @functools.cached_property
    def _readers(self) -> Mapping[str, list[str]]:
        """For each tensor the ops that read it."""
        found: dict[str, list[str]] = {}
        for unit in self.units:
            for tensor in self.reads(unit.node):
                found.setdefault(tensor, []).append(unit.op.name)
        return found

    def _quantized(self, mode: str) -> list[str]:
        """The nodes that MXNet quantizes when it may quantize all."""
        names = {node.name for node in Graph(self._pass([], mode)[0]).in_order()}
        return [name for name in self._whole if f"quantized_{name}" in names]

    def _pass(self, excluded: list[str], mode: str) -> tuple[Any, list[str]]:
        """MXNet's own pass: the quantized graph, and the tensors whose ranges it asks for."""
        from mxnet.contrib.quantization import _quantize_symbol

        symbol, tensors = _quantize_symbol(
            self.network.symbol,
            self._mx.cpu(),
            excluded_symbols=excluded,
            excluded_operators=[],
            offline_params=list(self.network.args),
            quantized_dtype="auto",
            quantize_mode=mode,
            quantize_granularity="tensor-wise",
        )
        return symbol, tensors
