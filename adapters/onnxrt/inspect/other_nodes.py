"""Other nodes: those that are no op to tune, but read or write quantized tensors, such as reshapes and Softmax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from onnx import AttributeProto, NodeProto, TensorProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.inspect.local_runs import RecordedTensor, quantized, scale_entries
from quaver.adapters.onnxrt.inspect.matching import match_node
from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.affine import QuantizationParameters
from quaver.introspection import ActivationContext, OpContext, UntunedOp
from quaver.ops import FP32, INT8


class OtherNode(NamedTuple):
    """One such node.

    Attributes:
        node: the node of the float model.
        reads: the quantized tensors it reads, by their names in the float model.
        writes: the scale of its output, if that is quantized.
        is_int8: True if it runs on integers.
        file_tensor: the tensor of a quantized file that shows its output; empty without a file.
    """

    node: NodeProto
    reads: Mapping[str, QuantizationParameters]
    writes: QuantizationParameters | None
    is_int8: bool
    file_tensor: str = ""

    @property
    def output(self) -> str:
        """The tensor of the float model that it writes."""
        return str(self.node.output[0])

    def to_untuned_op(self) -> UntunedOp:
        """Convert the node to the form that diagnosis works on."""
        reads = tuple(ActivationContext(name, parameters) for name, parameters in self.reads.items())
        writes = None if self.writes is None else ActivationContext(self.output, self.writes)
        context = OpContext(self.node.name, self.output, reads=reads, writes=writes)
        return UntunedOp(context, self.node.op_type, str(INT8 if self.is_int8 else FP32))


def other_nodes_of_plan(plan: Emitter) -> dict[str, OtherNode]:
    """Return the other nodes of a configuration that quantized tensors touch, by name."""
    builder, other_nodes = plan.builder, {}

    def parameters(name: str) -> QuantizationParameters | None:
        root = builder.root(name)
        is_quantized = name in plan.quantized_tensors and root in plan.schemes
        return builder.parameters(root, plan.schemes[root]) if is_quantized else None

    for index, node in _candidates(builder):
        if node.output[0] in plan.rescaled_at_source:  # its values are divided
            continue
        scales = {name: parameters(name) for name in node.input if builder.root(name) in plan.uint8_outputs}
        reads = {name: scale for name, scale in scales.items() if scale is not None}
        writes = parameters(node.output[0])
        if reads or writes is not None:
            is_int8 = index in builder.moved and bool(reads) and writes is not None
            other_nodes[node.name] = OtherNode(node, reads, writes, is_int8)
    return other_nodes


def other_nodes_of_file(builder: Builder, file: QuantizedFile) -> dict[str, OtherNode]:
    """Return the other nodes that quantized tensors of a file touch, by name, as far as the file has them."""
    other_nodes = {}
    for _, node in _candidates(builder):
        match, file_node = match_node(node, file), file.node_named(node.name)
        if match is None:
            continue
        floats = [(slot, name) for slot, name in enumerate(node.input) if _is_float(builder, name)]
        scales = {} if file_node is None else {name: file.input_parameters(file_node, slot) for slot, name in floats}
        reads = {name: scale for name, scale in scales.items() if scale is not None}
        writes = file.parameters(match.file_tensor)
        if reads or writes is not None:
            is_int8 = bool(reads) and len(reads) == len(floats) and writes is not None
            other_nodes[node.name] = OtherNode(node, reads, writes, is_int8, match.file_tensor)
    return other_nodes


def _candidates(builder: Builder) -> Iterator[tuple[int, NodeProto]]:
    """Yield the named nodes that are part of no op and compute float values from float values."""
    graph = builder.graph
    for index, node in enumerate(graph.nodes):
        has_body = any(entry.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for entry in node.attribute)
        if index in builder.unit_of or not node.name or not node.output or has_body:
            continue
        reads_float = any(_is_float(builder, name) for name in node.input)
        if graph.types.get(node.output[0]) == TensorProto.FLOAT and reads_float:
            yield index, node


def _is_float(builder: Builder, name: str) -> bool:
    return builder.graph.types.get(name) == TensorProto.FLOAT and name not in builder.graph.constants


def other_branches(trunk: Emitter, other_nodes: Mapping[str, OtherNode]) -> dict[str, RecordedTensor]:
    """Add a branch for each node that runs on integers, fed with float values of the trunk.

    Returns:
        What each branch ends in, by name.
    """
    ends = {}
    for number, (name, other) in enumerate(other_nodes.items()):
        if other.is_int8 and other.writes is not None:
            mark = f"{trunk.builder.mark}other{number}{trunk.builder.mark}"
            ends[name] = _branch(trunk, other, other.writes, mark)
    return ends


def _branch(trunk: Emitter, other: OtherNode, writes: QuantizationParameters, mark: str) -> RecordedTensor:
    node = NodeProto()
    node.CopyFrom(other.node)
    node.name += mark
    inputs = {name: quantize_dequantize(trunk, name, parameters, mark) for name, parameters in other.reads.items()}
    for slot, name in enumerate(node.input):
        node.input[slot] = inputs.get(name, name)
    for slot, name in enumerate(node.output):
        node.output[slot] = name and name + mark
    trunk.nodes.append(protobuf.block(protobuf.GRAPH_NODE, node.SerializeToString(deterministic=True)))
    return quantized(trunk, node.output[0], writes)


def quantize_dequantize(trunk: Emitter, name: str, parameters: QuantizationParameters, mark: str) -> str:
    """Emit a QuantizeLinear and a DequantizeLinear with these parameters, and return the name of the result."""
    integers, result, *scale_names = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    trunk.nodes.append(
        protobuf.node("QuantizeLinear", [name, *scale_names], [integers], integers)
        + protobuf.node("DequantizeLinear", [integers, *scale_names], [result], result)
    )
    trunk.entries.append(scale_entries(scale_names, parameters))
    return result
