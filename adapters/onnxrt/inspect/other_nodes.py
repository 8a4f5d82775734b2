"""Nodes that are no ops to tune, and read or write quantized tensors: pools, reshapes, a Softmax between products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from onnx import AttributeProto, NodeProto, TensorProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.inspect.matching import match_node
from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.inspect.taps import RecordedTensor, constants, quantized
from quaver.affine import QuantizationParameters
from quaver.introspection import ActivationContext, OpContext, UntunedOp
from quaver.ops import FP32, INT8


class OtherNode(NamedTuple):
    """One such node.

    Attributes:
        node: of the float model.
        reads: what it reads in integers, or dequantized, by the names of the float model.
        writes: the scale of its output where that is quantized.
        quantized: whether it runs on integers.
        theirs: the tensor of a quantized file in which its output is seen; empty without a file.
    """

    node: NodeProto
    reads: Mapping[str, QuantizationParameters]
    writes: QuantizationParameters | None
    quantized: bool
    file_tensor: str = ""

    @property
    def output(self) -> str:
        """The tensor of the float model that it writes."""
        return str(self.node.output[0])

    def to_other_op(self) -> UntunedOp:
        """The same in words that diagnosis knows."""
        reads = tuple(ActivationContext(name, parameters) for name, parameters in self.reads.items())
        writes = None if self.writes is None else ActivationContext(self.output, self.writes)
        context = OpContext(self.node.name, self.output, reads=reads, writes=writes)
        return UntunedOp(context, self.node.op_type, str(INT8 if self.quantized else FP32))


def other_nodes_of_plan(builder: Builder, plan: Emitter) -> dict[str, OtherNode]:
    """Those of a configuration, by name."""
    found = {}

    def parameters(name: str) -> QuantizationParameters | None:
        root = builder.root(name)
        known = name in plan.quantized_tensors and root in plan.schemes
        return builder.params(root, plan.schemes[root]) if known else None

    for index, node in _candidates(builder):
        if node.output[0] in plan.rescaled_at_source:  # its values are divided
            continue
        read = {name: parameters(name) for name in node.input if builder.root(name) in plan.uint8_outputs}
        reads = {name: known for name, known in read.items() if known is not None}
        writes = parameters(node.output[0])
        if reads or writes is not None:
            quantized = index in builder.moved and bool(reads) and writes is not None
            found[node.name] = OtherNode(node, reads, writes, quantized)
    return found


def other_nodes_of_file(builder: Builder, file: QuantizedFile) -> dict[str, OtherNode]:
    """Those of a quantized file, by name; what is not found in it is left out."""
    found = {}
    for _, node in _candidates(builder):
        point, file_tensor = match_node(node, file), file.node_named(node.name)
        if point is None:
            continue
        floats = [(slot, name) for slot, name in enumerate(node.input) if _is_float(builder, name)]
        read = {} if file_tensor is None else {name: file.read(file_tensor, slot) for slot, name in floats}
        reads = {name: known for name, known in read.items() if known is not None}
        writes = file.parameters(point.file_tensor)
        if reads or writes is not None:
            quantized = bool(reads) and len(reads) == len(floats) and writes is not None
            found[node.name] = OtherNode(node, reads, writes, quantized, point.file_tensor)
    return found


def _candidates(builder: Builder) -> Iterator[tuple[int, NodeProto]]:
    """The nodes with a name that are part of no op, and compute float values of float values."""
    graph = builder.graph
    for index, node in enumerate(graph.nodes):
        inner = any(entry.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for entry in node.attribute)
        if index in builder.unit_of or not node.name or not node.output or inner:
            continue
        if graph.types.get(node.output[0]) == TensorProto.FLOAT and any(_is_float(builder, at) for at in node.input):
            yield index, node


def _is_float(builder: Builder, name: str) -> bool:
    return builder.graph.types.get(name) == TensorProto.FLOAT and name not in builder.graph.constants


def other_branches(builder: Builder, trunk: Emitter, others: Mapping[str, OtherNode]) -> dict[str, RecordedTensor]:
    """Those that run on integers beside the float trunk, fed with its values; by name what each branch ends in."""
    found = {}
    for number, (name, other) in enumerate(others.items()):
        if other.quantized and other.writes is not None:
            mark = f"{builder.mark}other{number}{builder.mark}"
            found[name] = _branch(trunk, other, other.writes, mark)
    return found


def _branch(trunk: Emitter, other: OtherNode, writes: QuantizationParameters, mark: str) -> RecordedTensor:
    node = NodeProto()
    node.CopyFrom(other.node)
    node.name += mark
    read = {name: quantize_dequantize(trunk, name, parameters, mark) for name, parameters in other.reads.items()}
    for slot, name in enumerate(node.input):
        node.input[slot] = read.get(name, name)
    for slot, name in enumerate(node.output):
        node.output[slot] = name and name + mark
    trunk.parts.append(protobuf.block(protobuf.GRAPH_NODE, node.SerializeToString(deterministic=True)))
    return quantized(trunk, node.output[0], writes)


def quantize_dequantize(trunk: Emitter, name: str, parameters: QuantizationParameters, mark: str) -> str:
    """Quantize and dequantize a tensor by these constants; returns the name of the result."""
    inner, result, *by = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    trunk.parts.append(
        protobuf.node("QuantizeLinear", [name, *by], [inner], inner)
        + protobuf.node("DequantizeLinear", [inner, *by], [result], result)
    )
    trunk.entries.append(constants(by, parameters))
    return result
