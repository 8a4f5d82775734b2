"""Nodes that are no ops to tune, and read or write quantized tensors: pools, reshapes, a Softmax between products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from onnx import AttributeProto, NodeProto, TensorProto

from quaver.adapters.onnxrt.build import protobuf as wire
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.inspect.matching import node_point
from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.inspect.taps import Tap, constants, quantized
from quaver.affine import QuantizationParameters
from quaver.introspection import ActivationContext, OpContext, OtherOp
from quaver.ops import FP32, INT8


class Other(NamedTuple):
    """One such node.

    Attributes:
        node: of the float model.
        reads: what it reads in integers, or dequantized, by the names of the float model.
        writes: the scale of its output where that is quantized.
        reduced: whether it runs on integers.
        theirs: the tensor of a quantized file in which its output is seen; empty without a file.
    """

    node: NodeProto
    reads: Mapping[str, QuantizationParameters]
    writes: QuantizationParameters | None
    quantized: bool
    theirs: str = ""

    @property
    def output(self) -> str:
        """The tensor of the float model that it writes."""
        return str(self.node.output[0])

    def described(self) -> OtherOp:
        """The same in words that diagnosis knows."""
        reads = tuple(ActivationContext(name, parameters) for name, parameters in self.reads.items())
        writes = None if self.writes is None else ActivationContext(self.output, self.writes)
        context = OpContext(self.node.name, self.output, reads=reads, writes=writes)
        return OtherOp(context, self.node.op_type, str(INT8 if self.quantized else FP32))


def others_of_plan(assembler: Builder, plan: Emitter) -> dict[str, Other]:
    """Those of a configuration, by name."""
    found = {}

    def parameters(name: str) -> QuantizationParameters | None:
        root = assembler.root(name)
        known = name in plan.flowing and root in plan.schemes
        return assembler.params(root, plan.schemes[root]) if known else None

    for index, node in _candidates(assembler):
        if node.output[0] in plan.absorbed:  # its values are divided
            continue
        read = {name: parameters(name) for name in node.input if assembler.root(name) in plan.written}
        reads = {name: known for name, known in read.items() if known is not None}
        writes = parameters(node.output[0])
        if reads or writes is not None:
            quantized = index in assembler.moved and bool(reads) and writes is not None
            found[node.name] = Other(node, reads, writes, quantized)
    return found


def others_of_file(assembler: Builder, file: QuantizedFile) -> dict[str, Other]:
    """Those of a quantized file, by name; what is not found in it is left out."""
    found = {}
    for _, node in _candidates(assembler):
        point, theirs = node_point(node, file), file.of_name(node.name)
        if point is None:
            continue
        floats = [(slot, name) for slot, name in enumerate(node.input) if _is_float(assembler, name)]
        read = {} if theirs is None else {name: file.read(theirs, slot) for slot, name in floats}
        reads = {name: known for name, known in read.items() if known is not None}
        writes = file.parameters(point.theirs)
        if reads or writes is not None:
            quantized = bool(reads) and len(reads) == len(floats) and writes is not None
            found[node.name] = Other(node, reads, writes, quantized, point.theirs)
    return found


def _candidates(assembler: Builder) -> Iterator[tuple[int, NodeProto]]:
    """The nodes with a name that are part of no op, and compute float values of float values."""
    graph = assembler.graph
    for index, node in enumerate(graph.nodes):
        inner = any(entry.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for entry in node.attribute)
        if index in assembler.unit_of or not node.name or not node.output or inner:
            continue
        if graph.types.get(node.output[0]) == TensorProto.FLOAT and any(_is_float(assembler, at) for at in node.input):
            yield index, node


def _is_float(assembler: Builder, name: str) -> bool:
    return assembler.graph.types.get(name) == TensorProto.FLOAT and name not in assembler.graph.constants


def other_branches(assembler: Builder, trunk: Emitter, others: Mapping[str, Other]) -> dict[str, Tap]:
    """Those that run on integers beside the float trunk, fed with its values; by name what each branch ends in."""
    found = {}
    for number, (name, other) in enumerate(others.items()):
        if other.quantized and other.writes is not None:
            mark = f"{assembler.mark}other{number}{assembler.mark}"
            found[name] = _branch(trunk, other, other.writes, mark)
    return found


def _branch(trunk: Emitter, other: Other, writes: QuantizationParameters, mark: str) -> Tap:
    node = NodeProto()
    node.CopyFrom(other.node)
    node.name += mark
    read = {name: through(trunk, name, parameters, mark) for name, parameters in other.reads.items()}
    for slot, name in enumerate(node.input):
        node.input[slot] = read.get(name, name)
    for slot, name in enumerate(node.output):
        node.output[slot] = name and name + mark
    trunk.parts.append(wire.block(wire.GRAPH_NODE, node.SerializeToString(deterministic=True)))
    return quantized(trunk, node.output[0], writes)


def through(trunk: Emitter, name: str, parameters: QuantizationParameters, mark: str) -> str:
    """Quantize and dequantize a tensor by these constants; returns the name of the result."""
    inner, result, *by = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    trunk.parts.append(
        wire.node("QuantizeLinear", [name, *by], [inner], inner)
        + wire.node("DequantizeLinear", [inner, *by], [result], result)
    )
    trunk.entries.append(constants(by, parameters))
    return result
