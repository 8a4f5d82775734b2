"""Views of a quantized model: scales, weights, and every op next to its float version."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quaver.adapters.base import Adapter
from quaver.adapters.calibration.ranges import Range
from quaver.adapters.inspection import ModelView
from quaver.adapters.litert.build.builder import Builder
from quaver.adapters.litert.inspect.local_runs import LocalRuns
from quaver.adapters.litert.inspect.matching import (
    find_ops,
    find_untuned,
    is_integer,
    is_quantized,
    parameters_of,
    quantized_constant,
    read_parameters,
    weight_of,
    written_parameters,
)
from quaver.adapters.litert.load.graph import Graph, Operator
from quaver.adapters.litert.load.model_file import load_tflite
from quaver.adapters.litert.ops.units import Unit
from quaver.adapters.litert.profile.benchmark import op_seconds
from quaver.adapters.litert.run.calibrator import InspectableModel
from quaver.adapters.litert.run.session import quantize_inputs
from quaver.errors import ModelError
from quaver.introspection import ActivationContext, LocalRun, OpContext, OpWeight, QuantizedRun, UntunedOp
from quaver.ops import FLOAT, FP32, INT8, QuantConfig
from quaver.types import Feed


def channel_axis(graph: Graph, tensor: int) -> int | None:
    """Return the axis of a tensor that holds channels: the last one, as everywhere in TensorFlow."""
    return -1 if graph.rank(tensor) > 1 else None


def weight_axes(graph: Graph, unit: Unit) -> tuple[int | None, int | None]:
    """Return the axes of an op's weight that hold output channels and input channels."""
    kind = unit.operator.kind
    if kind in ("CONV_2D", "TRANSPOSE_CONV"):
        return 0, 3
    if kind == "DEPTHWISE_CONV_2D":
        return 3, 0
    if kind == "FULLY_CONNECTED":
        return 0, 1
    assert unit.weight is not None
    last = graph.rank(unit.weight) - 1
    turned = graph.main.operators[unit.operator.index].builtinOptions.adjY
    return (last - 1, last) if turned else (last, last - 1)


def why_one_scale(unit: Unit) -> str:
    """Return why an op's weight can have only one scale; empty if it can have more, or there is no weight."""
    if unit.weight is None or any(choice.granularity == "per_channel" for choice in unit.op.choices):
        return ""
    return f"LiteRT's int8 {unit.operator.kind} takes one scale for its constant"


def trace_movement(builder: Builder, tensor: int) -> tuple[int, tuple[str, ...]]:
    """Return the tensor that was moved into this one, and the kinds of the operators that did it, in order."""
    graph, kinds = builder.graph, list[str]()
    writer = graph.writers.get(tensor, -1)
    while writer in builder.passthrough:
        kinds.insert(0, graph.operators[writer].kind)
        tensor = builder.passthrough[writer]
        writer = graph.writers.get(tensor, -1)
    return tensor, tuple(kinds)


def upstream(builder: Builder, unit: Unit) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ops whose outputs reach a unit directly or through other operators, and the kinds of those."""
    graph = builder.graph
    units = {tunable.operator.index: tunable.op.name for tunable in builder.units}
    ops: dict[str, None] = {}
    kinds: dict[str, None] = {}
    visited = {unit.operator.index}
    waiting = list(unit.operator.inputs)
    while waiting:
        index = graph.writers.get(waiting.pop())
        if index is None or index in visited:
            continue
        visited.add(index)
        if index in units:
            ops[units[index]] = None
        else:
            kinds[graph.operators[index].kind] = None
            waiting.extend(graph.operators[index].inputs)
    return tuple(ops), tuple(kinds)


log = logging.getLogger(__name__)

# Their kernels use one scale for all inputs and the output.
ONE_SCALE_KINDS = ("CONCATENATION", "PACK", "MAXIMUM")


class ConfigView(ModelView):
    """A model in one configuration, built and inspected like a file."""

    def __init__(self, adapter: Adapter, config: QuantConfig, builder: Builder, threads: int) -> None:
        super().__init__(adapter, config)
        self._builder, self._threads = builder, threads
        self._inputs = [spec.name for spec in adapter.inputs]

    @functools.cached_property
    def _file(self) -> Graph:
        return Graph(self._builder.build(self._config))

    @functools.cached_property
    def _found(self) -> Mapping[str, Operator]:
        """Return the operator in the quantized model of each op."""
        return find_ops(self._builder, self._file)

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        untuned = {name: op for name, (_, op) in self._untuned.items() if is_integer(self._file, op)}
        local_runs = LocalRuns(self._builder, self._file, self._found, self._inputs, self._threads, untuned)
        known_tensors = [name for name in tensors if self._builder.graph.has_tensor(name)]

        def run(feed: Feed) -> LocalRun:
            local_runs.run(feed)
            float_model = local_runs.float_model
            values = {name: float_model.value(name) for name in known_tensors}
            return LocalRun({name: local_runs.output(name) for name in ops}, values, float_model.outputs())

        return run

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        model = InspectableModel(self._file, [spec.name for spec in self._file.input_specs()], self._threads)
        operators = {**{name: op for name, (_, op) in self._untuned.items()}, **self._found}
        tensors = {name: self._file.tensor_name(operators[name].outputs[0]) for name in ops if name in operators}

        def run(feed: Feed) -> QuantizedRun:
            model.invoke(quantize_inputs(self._file, feed))
            return QuantizedRun({name: model.seen(tensor) for name, tensor in tensors.items()}, model.outputs())

        return run

    @functools.cached_property
    def _untuned(self) -> dict[str, tuple[Operator, Operator]]:
        """Return the operators that are no ops but read or write quantized tensors: ours, and the quantized model's."""
        return {
            name: (own, op)
            for name, (own, op) in find_untuned(self._builder, self._file).items()
            if any(read_parameters(self._file, tensor) for tensor in op.inputs)
            or written_parameters(self._file, op.outputs[0])
        }

    def others(self) -> Mapping[str, UntunedOp]:
        return {name: self._other(name, *pair) for name, pair in self._untuned.items()}

    def _other(self, name: str, own: Operator, op: Operator) -> UntunedOp:
        graph, output = self._builder.graph, self._builder.graph.tensor_name(own.outputs[0])
        reads = [
            ActivationContext(graph.tensor_name(ours), params)
            for ours, theirs in zip(own.inputs, op.inputs, strict=False)
            if ours >= 0 and not graph.is_constant(ours) and (params := read_parameters(self._file, theirs)) is not None
        ]
        written = written_parameters(self._file, op.outputs[0])
        writes = None if written is None else ActivationContext(output, written)
        context = OpContext(name, output, reads=tuple(reads), writes=writes, tensor_id=op.outputs[0])
        return UntunedOp(context, own.kind, str(INT8 if is_integer(self._file, op) else FP32))

    def weights(self) -> Iterator[OpWeight]:
        for unit in self._builder.units:
            if unit.weight is not None and unit.op.name in self._found:
                yield self._weight(unit, self._found[unit.op.name])

    def _weight(self, unit: Unit, op: Operator) -> OpWeight:
        graph, tensor = self._builder.graph, weight_of(self._file, op)
        assert unit.weight is not None and tensor is not None
        before, axes = graph.constant(unit.weight), weight_axes(graph, unit)
        assert before is not None
        constant = quantized_constant(self._file, tensor)
        if constant is not None:
            return OpWeight(unit.op.name, before, constant, *axes)
        after = self._file.constant(tensor)
        is_float = after is not None and after.dtype.kind == "f"
        return OpWeight(unit.op.name, before, np.asarray(after, np.float32) if is_float else before, *axes)

    def contexts(self) -> Mapping[str, OpContext]:
        return {unit.op.name: self._context(unit) for unit in self._builder.units}

    def _context(self, unit: Unit) -> OpContext:
        graph, op = self._builder.graph, self._found.get(unit.op.name)
        output = unit.operator.outputs[0]
        name, axis, around = graph.tensor_name(output), channel_axis(graph, output), upstream(self._builder, unit)
        if op is None or not is_quantized(self._file, op):
            return OpContext(unit.op.name, name, axis, (), None, "", *around)
        pairs = dict(zip(unit.operator.inputs, op.inputs, strict=False))
        reads = [
            self._tensor(ours, theirs)
            for ours, theirs in pairs.items()
            if graph.is_float(ours) and not graph.is_constant(ours)
        ]
        quantized_inputs = tuple(tensor for tensor in reads if tensor is not None)
        writes = self._tensor(output, op.outputs[0])
        context = OpContext(unit.op.name, name, axis, quantized_inputs, writes, why_one_scale(unit), *around)
        return replace(context, tensor_id=op.outputs[0])

    def _tensor(self, ours: int, theirs: int) -> ActivationContext | None:
        """Return a tensor of the float model with the scale of the quantized model's; None if that is float."""
        params = parameters_of(self._file, theirs)
        if params is None:
            return None
        graph = self._builder.graph
        root, moved = trace_movement(self._builder, ours)
        origin, axis = self._origins.get(root, ""), channel_axis(graph, ours)
        name, forced = graph.tensor_name(ours), self._forced.get(theirs, "")
        return ActivationContext(name, params, self._ranges(root), origin, moved, axis, forced)

    @functools.cached_property
    def _forced(self) -> dict[int, str]:
        """Return the tensors that must have the scale of an op's output, with the op."""
        forced_by: dict[int, str] = {}
        for name, op in self._found.items():
            if op.kind in ONE_SCALE_KINDS:
                result = parameters_of(self._file, op.outputs[0])
                forced = [tensor for tensor in op.inputs if result and parameters_of(self._file, tensor) == result]
                forced_by |= dict.fromkeys(forced, name)
        return forced_by

    @functools.cached_property
    def _origins(self) -> dict[int, str]:
        return {unit.operator.outputs[0]: unit.op.name for unit in self._builder.units}

    def _ranges(self, tensor: int) -> Mapping[str, Range]:
        """Return the range that each calibration method would have chosen."""
        return self._builder.ranges(tensor)


class FileView(ConfigView):
    """A quantized .tflite, made by any tool."""

    def __init__(self, adapter: Adapter, source: Any, builder: Builder, threads: int) -> None:
        super().__init__(adapter, QuantConfig((unit.op.name, FLOAT) for unit in builder.units), builder, threads)
        self._content = load_tflite(source)
        self._check()

    @functools.cached_property
    def _file(self) -> Graph:
        return Graph(self._content)

    @functools.cached_property
    def precisions(self) -> Mapping[str, str]:
        return {
            unit.op.name: str(INT8 if name in self._found and is_quantized(self._file, self._found[name]) else FP32)
            for unit in self._builder.units
            for name in (unit.op.name,)
        }

    def _check(self) -> None:
        """Check that it was made from the float model, and warn of ops that it does not contain.

        Raises:
            ModelError: if it was made from another model.
        """
        theirs = [spec.name for spec in self._file.input_specs()]
        ends = len(self._builder.graph.outputs), len(self._file.outputs)
        if sorted(self._inputs) != sorted(theirs) or ends[0] != ends[1]:
            raise ModelError(
                f"the quantized model takes {', '.join(theirs)} and gives {ends[1]} output(s), the float model takes "
                f"{', '.join(self._inputs)} and gives {ends[0]}: it was made from another model"
            )
        missing = [unit.op.name for unit in self._builder.units if unit.op.name not in self._found]
        if len(missing) == len(self._builder.units):
            raise ModelError("no op of the float model is found in the quantized one: it was made from another model")
        if missing:
            log.warning(
                "%d of %d ops are missing from the quantized model or built differently there, and are left out: %s",
                len(missing),
                len(self._builder.units),
                ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else ""),
            )

    def _ranges(self, tensor: int) -> Mapping[str, Range]:
        return {}

    def seconds(self) -> Mapping[str, float]:
        sample = self._adapter.timing_feed
        seconds = op_seconds(self._builder, self._file, sample, self._threads)
        return {name: value for name, value in seconds.items() if not name or name in self._found}
