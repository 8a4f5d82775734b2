"""Ops that hand on what they read, written on integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import AttributeProto, NodeProto

from quaver.adapters.onnxrt.build import wire
from quaver.adapters.onnxrt.read.carriers import BOUNDED, bounds
from quaver.adapters.onnxrt.read.graph import Array
from quaver.adapters.onnxrt.read.rewrites.skeleton import opset_of
from quaver.adapters.onnxrt.read.units import Unit
from quaver.quantization import QuantizationParameters

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.assembler import Assembler

# From this opset on, ReduceMax takes its axes as an input.
_AXES_AS_INPUT = 18


class CarryParts(NamedTuple):
    """A node on integers, the constants it brings along, and the names of others that it reads."""

    node: bytes
    constants: bytes
    reads: tuple[str, ...]


def carry(
    assembler: Assembler, unit: Unit, parameters: QuantizationParameters, source: str, target: str, mark: str = ""
) -> CarryParts:
    """The node that makes the integers `target` of the integers `source`; both have these parameters."""
    graph, node = assembler.graph, NodeProto()
    node.CopyFrom(graph.nodes[unit.anchor])
    brought: dict[str, Array] = {}

    def constant(part: str, value: Array) -> str:
        name = assembler.label(unit.output, part) + mark
        brought[name] = value
        return name

    inputs = [source, *node.input[1:]]
    if node.op_type in BOUNDED:
        limits = zip(("low", "high"), bounds(graph, node), strict=True)
        inputs = [source, *("" if at is None else constant(part, _level(at, parameters)) for part, at in limits)]
        node = NodeProto(op_type="Clip", name=node.name)
    elif node.op_type == "GlobalMaxPool":
        axes = list(range(2, graph.ranks[unit.activations[0]]))
        as_input = opset_of(graph) >= _AXES_AS_INPUT
        inputs = [source, *([constant("axes", np.array(axes))] if as_input else [])]
        node = NodeProto(op_type="ReduceMax", name=node.name)
        if not as_input:
            node.attribute.add(name="axes", ints=axes, type=AttributeProto.INTS)
    elif node.op_type == "Pad":
        inputs = [*inputs[:2], constant("fill", parameters.zero_point), *inputs[3:]]
    del node.input[:], node.output[:]
    node.input.extend(inputs)
    node.output.append(target)
    node.name += mark
    return CarryParts(
        wire.block(wire.GRAPH_NODE, node.SerializeToString(deterministic=True)),
        b"".join(wire.tensor(name, value) for name, value in brought.items()),
        tuple(name for name in inputs[1:] if name and name not in brought),
    )


def _level(bound: float, parameters: QuantizationParameters) -> Array:
    """The integer of a bound, as QuantizeLinear would have it."""
    level = np.rint(np.float32(bound) / parameters.scale) + np.float32(parameters.zero_point)
    return np.asarray(np.clip(level, 0, 255), np.uint8)
