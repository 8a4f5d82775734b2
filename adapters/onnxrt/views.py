"""A configuration seen from inside: scales, weights, and every op beside its float self."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from quaver.adapters.base import Adapter
from quaver.adapters.batches import Feed
from quaver.adapters.onnxrt import session as sessions
from quaver.adapters.onnxrt.affine import Float, quantize_weight
from quaver.adapters.onnxrt.assembly import Assembler, Pass
from quaver.adapters.onnxrt.foreign import QuantizedFile
from quaver.adapters.onnxrt.graph import Graph, integer
from quaver.adapters.onnxrt.observation import watch_local, watch_whole
from quaver.adapters.onnxrt.units import Unit
from quaver.adapters.view import View
from quaver.errors import ModelError
from quaver.inside import LocalRun, OpInside, OpWeight, Tensor8, WholeRun
from quaver.ops import FLOAT, FP32, INT8, QuantConfig

_CONVOLUTIONS = ("Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool")
_PRODUCTS = ("Gemm", "MatMul")


class ConfigView(View):
    """A model in one configuration."""

    def __init__(self, adapter: Adapter, config: QuantConfig, assembler: Assembler, threads: int) -> None:
        super().__init__(adapter, config)
        self._assembler, self._threads = assembler, threads

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        return watch_local(self._assembler, self._config, ops, tensors, self._threads)

    def whole(self, ops: Sequence[str]) -> Callable[[Feed], WholeRun]:
        return watch_whole(self._assembler, self._config, ops, self._threads)

    def weights(self) -> Iterator[OpWeight]:
        plan = Pass(self._assembler, self._config)
        for unit in self._assembler.units:
            if unit.weight is not None:
                yield self._weight(unit, unit.weight, plan)

    def _weight(self, unit: Unit, name: str, plan: Pass) -> OpWeight:
        a = self._assembler
        values = np.asarray(a.store.array(name), np.float32)
        pick, (outer, inner) = self._config[unit.op.name], weight_axes(a.graph, unit)
        if pick.precision is not INT8:
            return OpWeight(unit.op.name, values, values, outer, inner)
        per_channel = pick.granularity == "per_channel"
        axis = unit.axis if per_channel else None
        scale: Float | None = None
        if unit.bias is not None:
            scale = a.bias(unit.anchor, plan.schemes[a.root(unit.activations[0])], per_channel)[2]
        scale = a.store.scale(name, axis) if scale is None else scale
        steps = quantize_weight(values, axis, scale).values
        shape = [1] * values.ndim
        if axis is not None:
            shape[axis] = -1
        real = steps.astype(np.float32) * scale.reshape(shape)
        scales = tuple(map(float, np.atleast_1d(scale)))
        return OpWeight(unit.op.name, values, real, outer, inner, scales, (0,) * len(scales))

    def inside(self) -> Mapping[str, OpInside]:
        a = self._assembler
        plan = Pass(a, self._config)
        origins = {unit.output: unit.op.name for unit in a.units}

        def tensor(name: str, axis: int | None) -> Tensor8:
            root = a.root(name)
            scale, zero = a.params(root, plan.schemes[root])
            step, offset = float(scale), int(zero)
            low, high = -offset * step, (255 - offset) * step
            moved = tuple(movers(a.graph, name, root))
            return Tensor8(name, step, offset, low, high, a.ranges[root], origins.get(root, ""), moved, axis)

        found = {}
        for unit in a.units:
            name, axis = unit.op.name, channel_axis(a.graph, unit, unit.output)
            if self._config[name].precision is INT8:
                reads = tuple(tensor(read, channel_axis(a.graph, unit, read)) for read in unit.activations)
                writes = tensor(unit.output, axis) if unit.quantized_output else None
                found[name] = OpInside(name, unit.output, axis, reads, writes, why_one_scale(a.graph, unit))
            else:
                found[name] = OpInside(name, unit.output, axis)
        return found


class FileView(View):
    """A quantized file. Its ops cannot be run one by one, so errors are those of the running model alone."""

    def __init__(self, adapter: Adapter, source: Any, assembler: Assembler, threads: int) -> None:
        super().__init__(adapter, QuantConfig((unit.op.name, FLOAT) for unit in assembler.units))
        self._assembler, self._threads = assembler, threads
        self._file = QuantizedFile(source)
        self._check_inputs()

    def _check_inputs(self) -> None:
        ours, theirs = [spec.name for spec in self._adapter.inputs], list(self._file.inputs())
        if sorted(ours) != sorted(theirs):
            raise ModelError(
                f"the quantized model takes {', '.join(theirs)} and the float model {', '.join(ours)}: "
                "it was made from another model"
            )

    @functools.cached_property
    def precisions(self) -> Mapping[str, str]:  # type: ignore[override]
        return {
            unit.op.name: str(INT8 if self._file.is_int8(unit, self._file.node(unit)) else FP32)
            for unit in self._assembler.units
        }

    @functools.cached_property
    def _visible(self) -> dict[str, str]:
        """Of each op that can be found in the file, the float tensor in which its readers see its output."""
        graph, found = self._assembler.graph, {}
        for unit in self._assembler.units:
            tensors = [graph.nodes[index].output[0] for index in reversed(unit.nodes)]
            name = self._file.visible(unit, tensors)
            if name is not None:
                found[unit.op.name] = name
        if not found:
            raise ModelError("no op of the float model can be found in the quantized one: it was made from another model")
        return found

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        floats = QuantConfig((unit.op.name, FLOAT) for unit in self._assembler.units)
        return watch_local(self._assembler, floats, ops, tensors, self._threads)

    def whole(self, ops: Sequence[str]) -> Callable[[Feed], WholeRun]:
        names = {name: self._visible[name] for name in ops if name in self._visible}
        given = self._file.outputs()
        wanted = list(dict.fromkeys([*given, *names.values()]))
        session = sessions.create(self._file.giving(wanted), sessions.options(self._threads))

        def run(feed: Feed) -> WholeRun:
            values = dict(zip(wanted, session.run(wanted, feed), strict=True))
            return WholeRun({name: values[tensor] for name, tensor in names.items()}, [values[name] for name in given])

        return run

    def weights(self) -> Iterator[OpWeight]:
        a = self._assembler
        for unit in a.units:
            if unit.weight is None:
                continue
            values = np.asarray(a.store.array(unit.weight), np.float32)
            (outer, inner), found = weight_axes(a.graph, unit), self._file.weight(self._file.node(unit))
            if found is None or found.values.shape != values.shape:
                yield OpWeight(unit.op.name, values, values, outer, inner)
            else:
                yield OpWeight(unit.op.name, values, found.values, outer, inner, found.scales, found.zero_points)

    def inside(self) -> Mapping[str, OpInside]:
        graph, found = self._assembler.graph, {}
        for unit in self._assembler.units:
            name, axis = unit.op.name, channel_axis(self._assembler.graph, unit, unit.output)
            scaled = self._file.scaled(self._visible.get(name, ""))
            writes = None if scaled is None else Tensor8(unit.output, *scaled, origin=name, axis=axis)
            found[name] = OpInside(name, unit.output, axis, (), writes, why_one_scale(graph, unit))
        return found

    def seconds(self) -> Mapping[str, float]:
        return {}


def movers(graph: Graph, name: str, root: str) -> list[str]:
    """The kinds of the nodes that moved a tensor about since it was `root`."""
    kinds: list[str] = []
    while name != root:
        node = graph.nodes[graph.producers[name]]
        kinds.insert(0, node.op_type)
        name = node.input[0]
    return kinds


def channel_axis(graph: Graph, unit: Unit, name: str) -> int | None:
    """Which axis of a tensor that an op reads or writes holds channels, going by what the op is."""
    kind = graph.nodes[unit.anchor].op_type
    if kind in _CONVOLUTIONS:
        return 1
    if kind in _PRODUCTS:
        return -1
    rank = graph.ranks.get(name)
    return None if rank is None or rank < 2 else 1 if rank > 3 else -1


def weight_axes(graph: Graph, unit: Unit) -> tuple[int | None, int | None]:
    """Which axes of an op's weight hold output channels and input channels."""
    node = graph.nodes[unit.anchor]
    assert unit.weight is not None
    rank = graph.constants[unit.weight].ndim
    if node.op_type == "Conv":
        return 0, 1
    if node.op_type == "ConvTranspose":
        return (1, 0) if integer(node, "group", 1) == 1 else (None, 0)
    if node.op_type == "Gemm" and integer(node, "transB", 0):
        return 0, 1
    return rank - 1, rank - 2


def why_one_scale(graph: Graph, unit: Unit) -> str:
    """Why an op's weight can have only one scale; empty if it can have more, or there is none."""
    if unit.weight is None or unit.axis is not None:
        return ""
    kind = graph.nodes[unit.anchor].op_type
    if kind == "ConvTranspose":
        return "ONNX Runtime has no int8 kernel for ConvTranspose, and its 8-bit weight takes one scale"
    return f"ONNX Runtime's int8 {kind} takes one scale for a weight of {graph.constants[unit.weight].ndim} axes"
