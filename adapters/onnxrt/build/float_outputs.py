"""Float outputs of int8 ops: for runtimes whose int8 kernels write float as fast as uint8.

Such a runtime moves the scale of an int8 op to what follows. These functions tell where that is wanted, and where a
guard must keep it from happening.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.ops.unit import FUSED_WITH_WEIGHT, Unit

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder
    from quaver.adapters.onnxrt.build.plan import Plan

# The maximum of a number and this is the number.
LOWEST = np.array(np.finfo(np.float32).min, np.float32)


def guard(builder: Builder, source: str, target: str, name: str) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return a Max that returns its input, and its constants: the lowest float if the runtime removes a single Max."""
    if not builder.rules.drops_single_max:
        return protobuf.node("Max", [source], [target], name), []
    lowest = builder.label("", "lowest")
    return protobuf.node("Max", [source, lowest], [target], name), [(lowest, protobuf.tensor(lowest, LOWEST))]


def feeds_int8_alone(plan: Plan, name: str) -> bool:
    """Return True if int8 ops are the only readers of a tensor, moved or not."""
    readers = plan.builder.graph.consumers.get(name, [])
    is_pinned = name in plan.builder.pinned
    return bool(readers) and not is_pinned and all(_reads_int8(plan, index, name) for index in readers)


def _reads_int8(plan: Plan, index: int, name: str) -> bool:
    """Return True if a node is an int8 op that reads this tensor, or only moves it to such ops."""
    unit = plan.builder.unit_of.get(index)
    if unit is not None:
        return index in plan.static_choices and name in unit.activations and index not in plan.rescaled_inputs
    outputs = plan.builder.graph.nodes[index].output
    return index in plan.builder.moved and all(feeds_int8_alone(plan, output) for output in outputs if output)


def may_be_integers(plan: Plan, name: str) -> bool:
    """Return True if a float tensor comes from an int8 op that hands on integers, through ops without weights."""
    builder, graph = plan.builder, plan.builder.graph
    waiting, visited = [name], {name}
    while waiting:
        index = graph.producers.get(tensor := waiting.pop())
        if builder.root(tensor) in plan.uint8_outputs:
            return True
        if index is None or graph.nodes[index].op_type in FUSED_WITH_WEIGHT:
            continue
        if index in plan.static_choices and graph.nodes[index].op_type in builder.rules.passing:
            return True
        fresh = [source for source in graph.nodes[index].input if source and source not in visited]
        waiting += fresh
        visited.update(fresh)
    return False


def is_shared_float(plan: Plan, unit: Unit) -> bool:
    """Return True for a float output of an int8 op that several nodes read, and that no Relu or Clip writes."""
    builder, graph = plan.builder, plan.builder.graph
    if builder.root(unit.output) in plan.uint8_outputs or unit.output not in graph.nodes[unit.anchor].output:
        return False
    tensors = [unit.output]
    for tensor in tensors:  # grows by what only moves the tensor
        readers = set(graph.consumers.get(tensor, ()))
        count = sum(list(graph.nodes[index].input).count(tensor) for index in readers)
        if count + (tensor in builder.pinned) > 1:
            return True
        tensors += [name for index in readers if index in builder.moved for name in graph.nodes[index].output]
    return False
