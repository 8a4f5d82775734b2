"""The view of a configuration: scales, weights, and every op beside its float version."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from quaver.adapters.base import Adapter
from quaver.adapters.inspection import ModelView
from quaver.adapters.onnxrt.build import blocks
from quaver.adapters.onnxrt.build.affine import Float, quantize_table, quantize_weight
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.inspect.channel_axes import (
    channel_axis,
    movement_kinds,
    upstream,
    weight_axes,
    why_one_scale,
)
from quaver.adapters.onnxrt.inspect.local_runs import record_branches, record_quantized, trunk_with_branches
from quaver.adapters.onnxrt.inspect.other_nodes import OtherNode, other_branches, other_nodes_of_plan
from quaver.adapters.onnxrt.load.module_names import module_of
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.introspection import ActivationContext, LocalRun, OpContext, OpWeight, QuantizedRun, UntunedOp
from quaver.op_names import module_path
from quaver.ops import QuantConfig
from quaver.types import Feed


class ConfigView(ModelView):
    """A model in one configuration."""

    def __init__(self, adapter: Adapter, config: QuantConfig, builder: Builder, threads: int) -> None:
        super().__init__(adapter, config)
        self._builder, self._threads = builder, threads

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        trunk, branches = trunk_with_branches(self._builder, self._config, ops)
        other_nodes = {name: self._others[name] for name in ops if name in self._others}
        results = {name: recorded for name, (_, recorded) in branches.items()} | other_branches(trunk, other_nodes)
        ends = {name: other.output for name, other in other_nodes.items()}
        return record_branches(trunk, results, ops, tensors, self._threads, ends)

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        tensors = {name: other.output for name, other in self._others.items()}
        return record_quantized(self._builder, self._config, ops, self._threads, other_nodes=tensors)

    @functools.cached_property
    def _others(self) -> dict[str, OtherNode]:
        return other_nodes_of_plan(Emitter(self._builder, self._config))

    def others(self) -> Mapping[str, UntunedOp]:
        return {name: other.to_untuned_op() for name, other in self._others.items()}

    def weights(self) -> Iterator[OpWeight]:
        plan = Emitter(self._builder, self._config)
        for unit in self._builder.units:
            if unit.weight is not None:
                yield self._weight(unit, unit.weight, plan)

    def _weight(self, unit: Unit, name: str, plan: Emitter) -> OpWeight:
        builder = self._builder
        values = np.asarray(builder.store.array(name), np.float32)
        choice, (outer, inner) = self._config[unit.op.name], weight_axes(builder.graph, unit)
        if not choice.quantized:
            return OpWeight(unit.op.name, values, values, outer, inner)
        if choice.block_size:
            return OpWeight(unit.op.name, values, blocks.dequantized(builder, unit, choice), outer, inner)
        if unit.is_embedding and unit.writes_integers_as(choice):
            table = quantize_table(values, builder.store.table_parameters(name))
            return OpWeight(unit.op.name, values, table, outer, inner)
        per_channel = choice.granularity == "per_channel"
        axis = unit.axis if per_channel else None
        scale: Float | None = None
        if unit.bias is not None and choice.calibrated:
            read = plan.read_by(unit, unit.activations[0])
            scale = builder.bias(unit.anchor, plan.schemes[builder.root(read)], per_channel)[2]
        reduction = None if choice.mode == "weight_only" else builder.reduction(unit)
        scale = builder.store.scale(name, axis, reduction) if scale is None else scale
        return OpWeight(unit.op.name, values, quantize_weight(values, axis, scale, reduction), outer, inner)

    def contexts(self) -> Mapping[str, OpContext]:
        builder = self._builder
        plan = Emitter(builder, self._config)
        origins = {unit.output: unit.op.name for unit in builder.units}

        def tensor(name: str, axis: int | None) -> ActivationContext:
            root = builder.root(name)
            params, moved = (
                builder.parameters(root, plan.schemes[root]),
                tuple(movement_kinds(builder.graph, name, root)),
            )
            return ActivationContext(name, params, builder.ranges.get(root, {}), origins.get(root, ""), moved, axis)

        contexts = {}
        for unit in builder.units:
            name, axis = unit.op.name, channel_axis(builder.graph, unit, unit.output)
            surroundings = (
                *upstream(builder.graph, unit, builder.unit_of),
                module_of(builder.graph.nodes[unit.anchor]) or module_path(unit.op.name),
            )
            choice = self._config[name]
            if choice.calibrated or (choice.quantized and unit.is_embedding):
                # A tensor whose channels are divided has no single scale to report.
                whole = (
                    []
                    if unit.anchor in plan.rescaled_inputs
                    else [n for n in unit.activations if n not in plan.rescaled_tensors]
                )
                reads = tuple(tensor(read, channel_axis(builder.graph, unit, read)) for read in whole)
                is_written = builder.root(unit.output) in plan.uint8_outputs and unit.writes_integers_as(choice)
                integers = is_written and unit.output not in plan.rescaled_tensors
                writes = tensor(unit.output, axis) if integers else None
                contexts[name] = OpContext(
                    name, unit.output, axis, reads, writes, why_one_scale(builder.graph, unit), *surroundings
                )
            else:  # it reads and writes float
                one_scale = why_one_scale(builder.graph, unit) if choice.quantized else ""
                contexts[name] = OpContext(name, unit.output, axis, (), None, one_scale, *surroundings)
        return contexts
