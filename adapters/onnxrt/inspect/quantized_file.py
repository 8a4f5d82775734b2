"""A quantized file, whoever made it, seen beside the float model it was made from.

Its nodes and tensors are found again by their names: quantizers keep those of the float model, and put QuantizeLinear
and DequantizeLinear between them (QDQ), or integer operators in their place (QOperator).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from quaver.adapters.onnxrt.build.int4 import unpacked
from quaver.adapters.onnxrt.inspect.taps import RecordedTensor
from quaver.adapters.onnxrt.load.graph import integer
from quaver.adapters.onnxrt.ops.passthrough import MOVEMENT
from quaver.adapters.onnxrt.ops.units import Unit
from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.errors import ModelError
from quaver.types import Array


def read_file(source: Any) -> ModelProto:
    """A quantized model from a path, bytes, or a ModelProto. Raises `ModelError`."""
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


# Where integer operators keep the scale of what they write, and where the weight with its scale and zero point.
_RESULT_SCALE = {
    "QLinearAdd": 6, "QLinearAveragePool": 3, "QLinearConcat": 0, "QLinearConv": 6, "QLinearGlobalAveragePool": 3,
    "QLinearLeakyRelu": 3, "QLinearMatMul": 6, "QLinearMul": 6, "QLinearSigmoid": 3, "QLinearSoftmax": 3, "QGemm": 7,
}  # fmt: skip
# Where they keep the scale and zero point of the activation that the float node reads at a place.
_READS: dict[str, Callable[[int], tuple[int, int]]] = {
    "MatMulIntegerToFloat": lambda slot: (2 + slot, 4 + slot),
    "QLinearConcat": lambda slot: (3 + 3 * slot, 4 + 3 * slot),
} | dict.fromkeys(
    [kind for kind in _RESULT_SCALE if kind != "QLinearConcat"], lambda slot: (3 * slot + 1, 3 * slot + 2)
)
_WEIGHT = {"QLinearConv": (3, 4, 5), "QLinearMatMul": (3, 4, 5), "QGemm": (3, 4, 5), "MatMulIntegerToFloat": (1, 3, 5)}
# Where those that have it in blocks keep it, and its scales and zero points.
_IN_BLOCKS = {"MatMulNBits": (1, 2, 3), "GatherBlockQuantized": (0, 2, 3)}
# Where they keep the bias, whose scale is that of the activation times that of the weight.
_BIAS = {"QLinearConv": 8, "QGemm": 6}
# What files hand on in integers.
_HAND_ON = ("Clip", "Pad", "ReduceMax", "ReduceMin", "SpaceToDepth", "Resize", *MOVEMENT)


class QuantizedFile:
    """A quantized ONNX model, taken apart as far as names are needed."""

    def __init__(self, source: Any) -> None:
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
        """The float tensor in which readers see what goes by this name in the float model; None if it is not there.

        Without `quantized` it is the tensor before it goes through QuantizeLinear.
        """
        for known in (name, f"{name}_QuantizeLinear_Input"):
            if known in self._producers:
                return self._after_scaling(known) if quantized else known
        return None

    def node_named(self, name: str) -> NodeProto | None:
        """The node of the file that goes by the name of a float node."""
        found: NodeProto | None = self._by_name.get(name) or self._by_name.get(f"{name}_quant") if name else None
        return found

    def writes_integers(self, node: NodeProto) -> bool:
        """Whether a node is an integer operator that writes integers, too, with a scale that it names."""
        return node.op_type in _RESULT_SCALE and _RESULT_SCALE[node.op_type] < len(node.input)

    def dequantized_result(self, node: NodeProto | None) -> str | None:
        """The real numbers that come of what a node wrote in integers: rows of a table, or what it hands on."""
        found = self._dequantizer(node)
        return None if found is None else str(found.output[0])

    def _dequantizer(self, node: NodeProto | None) -> NodeProto | None:
        read = [] if node is None else self._readers.get(node.output[0], [])
        return next((reader for reader in read if reader.op_type == "DequantizeLinear"), None)

    def _after_scaling(self, name: str) -> str:
        """A tensor as its readers see it: behind QuantizeLinear, if it goes through that."""
        for quantize in self._readers.get(name, []):
            if quantize.op_type == "QuantizeLinear" and quantize.input[0] == name:
                return self._real(quantize.output[0], list(quantize.input[1:]))
        return name

    def dequantized(self, node: NodeProto) -> str:
        """The float form of what an integer operator writes."""
        at = _RESULT_SCALE[node.op_type]
        return self._real(node.output[0], list(node.input[at : at + 2]))

    def _real(self, name: str, parameters: list[str]) -> str:
        """The float form of a tensor in integers; a node that makes it is added if there is none."""
        for reader in self._readers.get(name, []):
            if reader.op_type == "DequantizeLinear":
                return str(reader.output[0])
        result = f"{name}_seen_as_float"
        if result not in self._producers:
            made = helper.make_node("DequantizeLinear", [name, *parameters], [result], f"{result}_node")
            self._producers[result] = made
            self._added.append(made)
        return result

    def parameters(self, tensor: str) -> QuantizationParameters | None:
        """Those of a float tensor that `visible` gave; None if it never was quantized."""
        node = self._producers.get(tensor)
        return None if node is None or node.op_type != "DequantizeLinear" else self._parameters(list(node.input[1:]))

    def tap(self, tensor: str) -> RecordedTensor:
        """Where to look at a float tensor that `visible` gave: before it is dequantized, if it is."""
        found = None if tensor in self._given else self.parameters(tensor)
        if found is None or found.zero_point.dtype not in (np.uint8, np.int8):
            return RecordedTensor(tensor)
        return RecordedTensor(str(self._producers[tensor].input[0]), found)

    def read(self, node: NodeProto, slot: int) -> QuantizationParameters | None:
        """Those of the activation that an op reads at this place of the float node; None if it is float."""
        if node.op_type in _READS:
            at = _READS[node.op_type](slot)
            return self._parameters([node.input[place] if place < len(node.input) else "" for place in at])
        if slot >= len(node.input):
            return None
        return self.parameters(node.input[slot]) or self._handed_on(node.input[slot])

    def _handed_on(self, tensor: str) -> QuantizationParameters | None:
        """Those of a tensor in integers, which nodes may have handed on; None if it is float."""
        names = self._scale_of(tensor)
        return None if names is None else self._parameters(names)

    def writes(self, node: NodeProto) -> QuantizationParameters | None:
        """Those of what a node makes integers of, or writes as an integer operator; None if it does neither."""
        if node.op_type != "QuantizeLinear" and not self.writes_integers(node):
            return None
        return self._handed_on(node.output[0])

    def _scale_of(self, tensor: str) -> list[str] | None:
        """The names of scale and zero point of a tensor in integers; None if it is float."""
        producer = self._producers.get(tensor)
        while producer is not None and producer.op_type in _HAND_ON:
            if (
                real := self._dequantizer(producer)
            ) is not None:  # a Clip may be a HardSigmoid, with another scale behind
                return list(real.input[1:])
            producer = self._producers.get(producer.input[0])
        if producer is None or not (producer.op_type == "QuantizeLinear" or self.writes_integers(producer)):
            return None
        at = _RESULT_SCALE.get(producer.op_type, 1)
        return list(producer.input[at : at + 2])

    def in_floats(self, node: NodeProto) -> str | None:
        """The float form of what a node writes in integers; None if it writes float."""
        names = self._scale_of(node.output[0])
        return None if names is None else self._real(node.output[0], names)

    def _parameters(self, names: list[str]) -> QuantizationParameters | None:
        scale = self._value(names[0])
        given = self._value(names[1]) if len(names) > 1 and names[1] else None
        zero = np.zeros((), np.uint8) if given is None else given
        if scale is None or scale.size != 1 or zero.dtype.kind not in "iu":
            return None
        return QuantizationParameters(scale.astype(np.float32).reshape(()), zero.reshape(()))

    def node(self, unit: Unit, tensors: list[str]) -> NodeProto | None:
        """The node that does an op's arithmetic; None if it is not there, or does only a part of it.

        Where a BatchNormalization was left behind a convolution, the convolution computes something else than ours.
        """
        found = self.node_of(unit)
        if found is None or not found.output:
            return None
        return found if any(found.output[0].startswith(name) for name in tensors) else None

    def node_of(self, unit: Unit) -> NodeProto | None:
        """The node of an op's name, whatever it computes."""
        return self.node_named(unit.op.name)

    def is_int8(self, unit: Unit, node: NodeProto | None) -> bool:
        """Whether an op computes in 8 bits: an integer operator, or one that reads dequantized tensors alone."""
        if node is None:
            return False
        if unit.is_embedding:
            return self.weight(node) is not None
        if (unit.is_passthrough or unit.hard_sigmoid) and self._handed_on(node.input[0]) is not None:
            return True
        if node.op_type in _RESULT_SCALE or node.op_type in _WEIGHT:
            return True
        makers = [self._producers.get(name) for name in node.input[: 2 if unit.weight is not None else None] if name]
        return bool(makers) and all(
            producer is not None and producer.op_type == "DequantizeLinear" for producer in makers
        )

    def weight(self, node: NodeProto) -> QuantizedTensor | None:
        """The weight of an op in integers; None if it is float."""
        if node.op_type == "Gather":
            return self._table(node)
        if node.op_type in _WEIGHT:
            names = [node.input[at] if at < len(node.input) else "" for at in _WEIGHT[node.op_type]]
            first = node.op_type == "QLinearConv" or (node.op_type == "QGemm" and integer(node, "transB", 0) == 1)
            return self._quantized(names, 0 if first else -1)
        return self._dequantized_constant(node, 1)

    def _table(self, node: NodeProto) -> QuantizedTensor | None:
        """A table whose rows become real after they were looked up, by one scale or one for each; or before that."""
        values = self._value(node.input[0])
        if values is None or values.dtype not in (np.int8, np.uint8):
            return self._dequantized_constant(node, 0)
        real = self._dequantizer(node)
        if real is not None:
            return self._quantized([node.input[0], *real.input[1:]], 0)
        products = [
            after
            for cast in self._readers.get(node.output[0], [])
            for after in self._readers.get(cast.output[0], [])
            if cast.op_type == "Cast" and after.op_type == "Mul"
        ]
        scales = [
            producer.input[0] for after in products for name in after.input if (producer := self._producers.get(name))
        ]
        found = next((scale for name in scales if (scale := self._value(name)) is not None), None)
        if found is None:
            return None
        axis = integer(node, "axis", 0) % values.ndim
        zeros = np.zeros(found.size, values.dtype)
        return QuantizedTensor(values, QuantizationParameters(found.reshape(-1), zeros, axis))

    def float_weight(self, node: NodeProto) -> Array | None:
        """The weight of an op that runs in float."""
        slot = 0 if node.op_type == "Gather" else 1
        return self._value(node.input[slot]) if len(node.input) > slot else None

    def bits_in_blocks(self, node: NodeProto | None) -> int | None:
        """How many bits the weight of an op has that is stored in blocks; None if it is not."""
        return integer(node, "bits", 4) if node is not None and node.op_type in _IN_BLOCKS else None

    def weight_in_blocks(self, node: NodeProto) -> Array | None:
        """A weight of four bits in blocks as real numbers, a row for each channel; None if it is another."""
        values, scale, zero = (self._value(node.input[at]) for at in _IN_BLOCKS.get(node.op_type, (0, 0, 0)))
        if self.bits_in_blocks(node) != 4 or values is None or scale is None or zero is None or zero.dtype != np.uint8:
            return None
        height = integer(node, "N", len(values))
        by = scale.reshape(height, -1)
        steps, zeros = unpacked(values.reshape(height, -1)), unpacked(zero.reshape(height, -1))[:, : by.shape[1]]
        blocks = np.repeat(np.stack([by, zeros]), integer(node, "block_size", 128), axis=2)[..., : steps.shape[1]]
        real = (steps - blocks[1]) * blocks[0]
        return np.asarray(real[:, : integer(node, "K", real.shape[1])], np.float32)

    def bias(self, node: NodeProto) -> QuantizedTensor | None:
        """The bias of an op in integers; None if it is float, or there is none."""
        if node.op_type not in _BIAS:
            return None if node.op_type in _WEIGHT else self._dequantized_constant(node, 2)
        weight, read, at = self.weight(node), self.read(node, 0), _BIAS[node.op_type]
        values = self._value(node.input[at]) if len(node.input) > at else None
        if weight is None or read is None or values is None:
            return None
        scale = np.asarray(read.scale * weight.parameters.scale, np.float32)
        zero = np.zeros(scale.shape, values.dtype)
        return QuantizedTensor(values, QuantizationParameters(scale, zero, 0 if scale.size > 1 else None))

    def operand(self, node: NodeProto, slot: int) -> QuantizedTensor | None:
        """A constant in integers that a node adds, say, at this place of the float node; None if it is float."""
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
        given = self._value(names[2]) if len(names) > 2 and names[2] else None
        zero = np.zeros(scale.shape, values.dtype) if given is None else given
        if scale.size == 1:
            return QuantizedTensor(values, QuantizationParameters(scale.reshape(()), zero.reshape(())))
        if scale.ndim > 1 or scale.size not in values.shape:
            return None  # a scale for each block, which no record here describes
        known = -values.ndim <= axis < values.ndim and values.shape[axis] == scale.size
        along = axis % values.ndim if known else values.shape.index(scale.size)
        return QuantizedTensor(values, QuantizationParameters(scale, zero, along))

    def _value(self, name: str) -> Array | None:
        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def with_outputs(self, taps: Iterable[RecordedTensor]) -> bytes:
        """The model with these tensors as outputs besides its own."""
        model = ModelProto()
        model.CopyFrom(self.model)
        wanted = {tap.tensor: tap for tap in taps if tap.tensor not in self._given}
        model.graph.node.extend(node for node in self._added if node.output[0] in wanted)
        graph = GraphProto.FromString(b"".join(tap.output() for tap in wanted.values()))
        model.graph.output.extend(graph.output)
        return bytes(model.SerializeToString())

    def outputs(self) -> list[str]:
        """The names of the model's own outputs."""
        return [value.name for value in self.model.graph.output]

    def inputs(self) -> Iterator[str]:
        """The names of what the model takes."""
        return (value.name for value in self.model.graph.input if value.name not in self._constants)
