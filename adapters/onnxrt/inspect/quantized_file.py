"""A quantized file of any tool, read beside the float model it was made from.

Its nodes and tensors are found by their names: quantizers keep those of the float model, and put QuantizeLinear and
DequantizeLinear between them (QDQ), or integer operators in their place (QOperator).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from quaver.adapters.onnxrt.build.blocks import unpacked
from quaver.adapters.onnxrt.inspect.local_runs import RecordedTensor
from quaver.adapters.onnxrt.load.graph import integer
from quaver.adapters.onnxrt.load.module_names import original_name
from quaver.adapters.onnxrt.ops.passthrough import MOVEMENT
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.errors import ModelError
from quaver.types import Array, ModelLike


def read_file(source: ModelLike) -> ModelProto:
    """Read a quantized model from a path, bytes, or a ModelProto. Raises `ModelError`."""
    if isinstance(source, ModelProto):
        return source
    try:
        if isinstance(source, bytes | bytearray | memoryview):
            return onnx.load_model_from_string(bytes(source))
        if not Path(os.fspath(source)).is_file():
            raise ModelError(f"no model file at {os.fspath(source)!r}")
        return onnx.load_model(os.fspath(source))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"the quantized model cannot be read as an ONNX model ({error})") from error


# The input slot in which integer operators have the scale of their output (operator specifications of ONNX and ONNX
# Runtime). The zero point follows.
_RESULT_SCALE = {
    "QLinearAdd": 6, "QLinearAveragePool": 3, "QLinearConcat": 0, "QLinearConv": 6, "QLinearGlobalAveragePool": 3,
    "QLinearLeakyRelu": 3, "QLinearMatMul": 6, "QLinearMul": 6, "QLinearSigmoid": 3, "QLinearSoftmax": 3, "QGemm": 7,
}  # fmt: skip
# The slots with scale and zero point of the activation that the float node reads in a slot.
_READS: dict[str, Callable[[int], tuple[int, int]]] = {
    "MatMulIntegerToFloat": lambda slot: (2 + slot, 4 + slot),
    "QLinearConcat": lambda slot: (3 + 3 * slot, 4 + 3 * slot),
} | dict.fromkeys(
    [kind for kind in _RESULT_SCALE if kind != "QLinearConcat"], lambda slot: (3 * slot + 1, 3 * slot + 2)
)
_WEIGHT = {"QLinearConv": (3, 4, 5), "QLinearMatMul": (3, 4, 5), "QGemm": (3, 4, 5), "MatMulIntegerToFloat": (1, 3, 5)}
# The same slots for weights that are stored in blocks.
_IN_BLOCKS = {"MatMulNBits": (1, 2, 3), "GatherBlockQuantized": (0, 2, 3)}
# The slot of the bias, whose scale is that of the activation times that of the weight.
_BIAS = {"QLinearConv": 8, "QGemm": 6}
# Ops that files run on integers without a scale of their own.
_PASSTHROUGH = ("Clip", "Pad", "ReduceMax", "ReduceMin", "SpaceToDepth", "Resize", *MOVEMENT)


class QuantizedFile:
    """A quantized ONNX model, indexed by the names of its nodes and tensors."""

    def __init__(self, source: ModelLike) -> None:
        self.model = read_file(source)
        graph = self.model.graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        self._by_name = {node.name: node for node in graph.node if node.name}
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._given = {value.name for value in graph.output}
        self._added: list[NodeProto] = []

    def float_view_named(self, name: str, quantized: bool = True) -> str | None:
        """Return the float tensor that shows a tensor of the float model; None if the file does not have it.

        Without `quantized` it is the tensor before it goes through QuantizeLinear.
        """
        for candidate in (name, f"{name}_QuantizeLinear_Input"):
            if candidate in self._producers:
                return self._after_quantization(candidate) if quantized else candidate
        return None

    def node_named(self, name: str) -> NodeProto | None:
        """Return the node of the file that has the name of a float node."""
        for alias in dict.fromkeys([name, original_name(name)] if name else []):
            node: NodeProto | None = self._by_name.get(alias) or self._by_name.get(f"{alias}_quant")
            if node is not None:
                return node
        return None

    def writes_integers(self, node: NodeProto) -> bool:
        """Return True for an integer operator that also writes integers, with a scale among its inputs."""
        return node.op_type in _RESULT_SCALE and _RESULT_SCALE[node.op_type] < len(node.input)

    def dequantized_result(self, node: NodeProto | None) -> str | None:
        """Return the dequantized output of a node that looks up rows or hands on integers; None if it is not
        dequantized.
        """
        dequantizer = self._dequantizer(node)
        return None if dequantizer is None else str(dequantizer.output[0])

    def _dequantizer(self, node: NodeProto | None) -> NodeProto | None:
        read = [] if node is None else self._readers.get(node.output[0], [])
        return next((reader for reader in read if reader.op_type == "DequantizeLinear"), None)

    def _after_quantization(self, name: str) -> str:
        """Return a tensor as its readers see it: behind QuantizeLinear, if it goes through one."""
        for quantize in self._readers.get(name, []):
            if quantize.op_type == "QuantizeLinear" and quantize.input[0] == name:
                return self._as_float(quantize.output[0], list(quantize.input[1:]))
        return name

    def dequantized_output(self, node: NodeProto) -> str:
        """Return the float form of what an integer operator writes."""
        at = _RESULT_SCALE[node.op_type]
        return self._as_float(node.output[0], list(node.input[at : at + 2]))

    def _as_float(self, name: str, parameters: list[str]) -> str:
        """Return the float form of an integer tensor; a node that dequantizes it is added if there is none."""
        for reader in self._readers.get(name, []):
            if reader.op_type == "DequantizeLinear":
                return str(reader.output[0])
        result = f"{name}_seen_as_float"
        if result not in self._producers:
            dequantize = helper.make_node("DequantizeLinear", [name, *parameters], [result], f"{result}_node")
            self._producers[result] = dequantize
            self._added.append(dequantize)
        return result

    def parameters(self, tensor: str) -> QuantizationParameters | None:
        """Return the parameters of a float tensor that this class returned; None if it was never quantized."""
        node = self._producers.get(tensor)
        return None if node is None or node.op_type != "DequantizeLinear" else self._parameters(list(node.input[1:]))

    def recorded(self, tensor: str) -> RecordedTensor:
        """Return how to record a float tensor that this class returned: as integers, if it is dequantized."""
        parameters = None if tensor in self._given else self.parameters(tensor)
        if parameters is None or parameters.zero_point.dtype not in (np.uint8, np.int8):
            return RecordedTensor(tensor)
        return RecordedTensor(str(self._producers[tensor].input[0]), parameters)

    def input_parameters(self, node: NodeProto, slot: int) -> QuantizationParameters | None:
        """Return the parameters of the activation in a slot of the float node; None if it is float."""
        if node.op_type in _READS:
            at = _READS[node.op_type](slot)
            return self._parameters([node.input[place] if place < len(node.input) else "" for place in at])
        if slot >= len(node.input):
            return None
        return self.parameters(node.input[slot]) or self._integer_parameters(node.input[slot])

    def _integer_parameters(self, tensor: str) -> QuantizationParameters | None:
        """Return the parameters of an integer tensor, also behind nodes that hand it on; None if it is float."""
        names = self._scale_of(tensor)
        return None if names is None else self._parameters(names)

    def output_parameters(self, node: NodeProto) -> QuantizationParameters | None:
        """Return the parameters of the integers that a node writes; None if it writes float."""
        if node.op_type != "QuantizeLinear" and not self.writes_integers(node):
            return None
        return self._integer_parameters(node.output[0])

    def _scale_of(self, tensor: str) -> list[str] | None:
        """Return the names of scale and zero point of an integer tensor; None if it is float."""
        producer = self._producers.get(tensor)
        while producer is not None and producer.op_type in _PASSTHROUGH:
            if (
                real := self._dequantizer(producer)
            ) is not None:  # a Clip may be a HardSigmoid, with another scale behind
                return list(real.input[1:])
            producer = self._producers.get(producer.input[0])
        if producer is None or not (producer.op_type == "QuantizeLinear" or self.writes_integers(producer)):
            return None
        at = _RESULT_SCALE.get(producer.op_type, 1)
        return list(producer.input[at : at + 2])

    def float_output(self, node: NodeProto) -> str | None:
        """Return the float form of the integers that a node writes; None if it writes float."""
        names = self._scale_of(node.output[0])
        return None if names is None else self._as_float(node.output[0], names)

    def _parameters(self, names: list[str]) -> QuantizationParameters | None:
        scale = self._value(names[0])
        zero_point = self._value(names[1]) if len(names) > 1 and names[1] else None
        zeros = np.zeros((), np.uint8) if zero_point is None else zero_point
        if scale is None or scale.size != 1 or zeros.dtype.kind not in "iu":
            return None
        return QuantizationParameters(scale.astype(np.float32).reshape(()), zeros.reshape(()))

    def matching_node(self, unit: Unit, tensors: list[str]) -> NodeProto | None:
        """Return the node that does an op's arithmetic; None if it is missing, or computes only a part of the op.

        Where a BatchNormalization was left behind a convolution, the convolution computes something else than ours.
        """
        node = self.node_of(unit)
        if node is None or not node.output:
            return None
        return node if any(node.output[0].startswith(name) for name in tensors) else None

    def node_of(self, unit: Unit) -> NodeProto | None:
        """Return the node with an op's name, whatever it computes."""
        return self.node_named(unit.op.name)

    def is_int8(self, unit: Unit, node: NodeProto | None) -> bool:
        """Return True if an op computes in 8 bits: an integer operator, or one that reads only dequantized tensors."""
        if node is None:
            return False
        if unit.is_embedding:
            return self.weight(node) is not None
        if (unit.is_passthrough or unit.hard_sigmoid) and self._integer_parameters(node.input[0]) is not None:
            return True
        if node.op_type in _RESULT_SCALE or node.op_type in _WEIGHT:
            return True
        makers = [self._producers.get(name) for name in node.input[: 2 if unit.weight is not None else None] if name]
        return bool(makers) and all(
            producer is not None and producer.op_type == "DequantizeLinear" for producer in makers
        )

    def weight(self, node: NodeProto) -> QuantizedTensor | None:
        """Return the weight of an op as integers; None if it is float."""
        if node.op_type == "Gather":
            return self._table(node)
        if node.op_type in _WEIGHT:
            names = [node.input[at] if at < len(node.input) else "" for at in _WEIGHT[node.op_type]]
            first = node.op_type == "QLinearConv" or (node.op_type == "QGemm" and integer(node, "transB", 0) == 1)
            return self._quantized(names, 0 if first else -1)
        return self._dequantized_constant(node, 1)

    def _table(self, node: NodeProto) -> QuantizedTensor | None:
        """Return a table as integers, whether its rows are dequantized before or after the lookup."""
        values = self._value(node.input[0])
        if values is None or values.dtype not in (np.int8, np.uint8):
            return self._dequantized_constant(node, 0)
        dequantizer = self._dequantizer(node)
        if dequantizer is not None:
            return self._quantized([node.input[0], *dequantizer.input[1:]], 0)
        products = [
            after
            for cast in self._readers.get(node.output[0], [])
            for after in self._readers.get(cast.output[0], [])
            if cast.op_type == "Cast" and after.op_type == "Mul"
        ]
        scales = [
            producer.input[0] for after in products for name in after.input if (producer := self._producers.get(name))
        ]
        row_scales = next((scale for name in scales if (scale := self._value(name)) is not None), None)
        if row_scales is None:
            return None
        axis = integer(node, "axis", 0) % values.ndim
        zeros = np.zeros(row_scales.size, values.dtype)
        return QuantizedTensor(values, QuantizationParameters(row_scales.reshape(-1), zeros, axis))

    def float_weight(self, node: NodeProto) -> Array | None:
        """Return the weight of an op that runs in float."""
        slot = 0 if node.op_type == "Gather" else 1
        return self._value(node.input[slot]) if len(node.input) > slot else None

    def bits_in_blocks(self, node: NodeProto | None) -> int | None:
        """Return the number of bits of a weight that is stored in blocks; None for other weights."""
        return integer(node, "bits", 4) if node is not None and node.op_type in _IN_BLOCKS else None

    def weight_in_blocks(self, node: NodeProto) -> Array | None:
        """Return a weight in blocks of 4 or 8 bits as float, a row for each channel; None for other weights."""
        values, scale, zero = (self._stored(node.input[at]) for at in _IN_BLOCKS.get(node.op_type, (0, 0, 0)))
        bits = self.bits_in_blocks(node)
        if bits not in (4, 8) or values is None or scale is None or zero is None or zero.dtype != np.uint8:
            return None
        height = integer(node, "N", len(values))
        by = scale.reshape(height, -1)
        steps, zeros = values.reshape(height, -1), zero.reshape(height, -1)
        if bits == 4:
            steps, zeros = unpacked(steps), unpacked(zeros)[:, : by.shape[1]]
        blocks = np.repeat(np.stack([by, zeros]), integer(node, "block_size", 128), axis=2)[..., : steps.shape[1]]
        real = (steps.astype(np.float32) - blocks[1]) * blocks[0]
        return np.asarray(real[:, : integer(node, "K", real.shape[1])], np.float32)

    def bias(self, node: NodeProto) -> QuantizedTensor | None:
        """Return the bias of an op as integers; None if it is float, or there is none."""
        if node.op_type not in _BIAS:
            return None if node.op_type in _WEIGHT else self._dequantized_constant(node, 2)
        weight, read, at = self.weight(node), self.input_parameters(node, 0), _BIAS[node.op_type]
        values = self._value(node.input[at]) if len(node.input) > at else None
        if weight is None or read is None or values is None:
            return None
        scale = np.asarray(read.scale * weight.parameters.scale, np.float32)
        zero = np.zeros(scale.shape, values.dtype)
        return QuantizedTensor(values, QuantizationParameters(scale, zero, 0 if scale.size > 1 else None))

    def operand(self, node: NodeProto, slot: int) -> QuantizedTensor | None:
        """Return a constant operand as integers; None if it is float."""
        if node.op_type not in _READS:
            return self._dequantized_constant(node, slot)
        if node.op_type == "QLinearConcat" or 3 * slot + 2 >= len(node.input):
            return None
        return self._quantized(list(node.input[3 * slot : 3 * slot + 3]), 0)

    def _dequantized_constant(self, node: NodeProto, slot: int) -> QuantizedTensor | None:
        producer = self._producers.get(node.input[slot]) if slot < len(node.input) else None
        if producer is None or producer.op_type != "DequantizeLinear":
            return None
        return self._quantized(list(producer.input), integer(producer, "axis", 1))

    def _quantized(self, names: list[str], axis: int) -> QuantizedTensor | None:
        values, scale = self._value(names[0]), self._value(names[1])
        if values is None or scale is None:
            return None
        zero_point = self._value(names[2]) if len(names) > 2 and names[2] else None
        zero = np.zeros(scale.shape, values.dtype) if zero_point is None else zero_point
        if scale.size == 1:
            return QuantizedTensor(values, QuantizationParameters(scale.reshape(()), zero.reshape(())))
        if scale.ndim > 1 or scale.size not in values.shape:
            return None  # a scale for each block, which no record here describes
        is_axis = -values.ndim <= axis < values.ndim and values.shape[axis] == scale.size
        along = axis % values.ndim if is_axis else values.shape.index(scale.size)
        return QuantizedTensor(values, QuantizationParameters(scale, zero, along))

    def _stored(self, name: str) -> Array | None:
        """Return a constant, also behind the Reshape that lets a product read the table of a lookup."""
        producer = self._producers.get(name)
        is_reshaped = producer is not None and producer.op_type == "Reshape"
        return self._value(producer.input[0] if producer is not None and is_reshaped else name)

    def _value(self, name: str) -> Array | None:
        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def with_outputs(self, recorded: Iterable[RecordedTensor]) -> bytes:
        """Serialize the model with these tensors as outputs besides its own."""
        model = ModelProto()
        model.CopyFrom(self.model)
        added = {tensor.tensor: tensor for tensor in recorded if tensor.tensor not in self._given}
        model.graph.node.extend(node for node in self._added if node.output[0] in added)
        graph = GraphProto.FromString(b"".join(tensor.output() for tensor in added.values()))
        model.graph.output.extend(graph.output)
        return bytes(model.SerializeToString())

    def outputs(self) -> list[str]:
        """Return the names of the model's own outputs."""
        return [value.name for value in self.model.graph.output]

    def inputs(self) -> Iterator[str]:
        """Return the names of the model's inputs."""
        return (value.name for value in self.model.graph.input if value.name not in self._constants)
