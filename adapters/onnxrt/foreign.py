"""A quantized file, whoever made it, seen beside the float model it was made from.

Its nodes and tensors are found again by their names: quantizers keep those of the float model, and put QuantizeLinear
and DequantizeLinear between them (QDQ), or integer operators in their place (QOperator).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from quaver.adapters.onnxrt.graph import Array, integer
from quaver.adapters.onnxrt.units import Unit
from quaver.errors import ModelError

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


class Scaled(NamedTuple):
    """How a tensor of a file is scaled: its constants, as they are there."""

    scale: Array
    zero_point: Array

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value that it can hold."""
        step, offset, limits = float(self.scale), int(self.zero_point), np.iinfo(self.zero_point.dtype)
        return (int(limits.min) - offset) * step, (int(limits.max) - offset) * step


class Weight(NamedTuple):
    """A quantized weight of a file, as real numbers."""

    values: Array
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


class QuantizedFile:
    """A quantized ONNX model, taken apart as far as names are needed."""

    def __init__(self, source: Any) -> None:
        self.model = _read(source)
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

    def visible(self, unit: Unit, tensors: list[str]) -> str | None:
        """The float tensor in which readers of an op see its output; None if it cannot be found.

        `tensors` are those of the float model to look for, the last node's output first.
        """
        for name in tensors:
            for known in (name, name + "_QuantizeLinear_Input"):
                if known in self._producers:
                    return self._after_scaling(known)
        node = self.node(unit)
        if node is None or node.op_type not in _RESULT_SCALE:
            return None
        return self._dequantized(node)

    def _after_scaling(self, name: str) -> str:
        """A tensor as its readers see it: behind QuantizeLinear and DequantizeLinear, if it goes through them."""
        for quantize in self._readers.get(name, []):
            if quantize.op_type == "QuantizeLinear" and quantize.input[0] == name:
                for reader in self._readers.get(quantize.output[0], []):
                    if reader.op_type == "DequantizeLinear":
                        return str(reader.output[0])
        return name

    def _dequantized(self, node: NodeProto) -> str:
        """The float form of what an integer operator writes; a node that makes it is added if there is none."""
        name = node.output[0]
        for reader in self._readers.get(name, []):
            if reader.op_type == "DequantizeLinear":
                return str(reader.output[0])
        at = _RESULT_SCALE[node.op_type]
        result = f"{name}_seen_as_float"
        if result not in self._producers:
            made = helper.make_node("DequantizeLinear", [name, *node.input[at : at + 2]], [result], f"{result}_node")
            self._producers[result] = made
            self._added.append(made)
        return result

    def scaled(self, tensor: str) -> Scaled | None:
        """How a float tensor that `visible` gave was scaled; None if it never was in 8 bits."""
        node = self._producers.get(tensor)
        return None if node is None or node.op_type != "DequantizeLinear" else self._scaled(list(node.input[1:]))

    def read(self, node: NodeProto, slot: int) -> Scaled | None:
        """How the activation that an op reads at this place of the float node is scaled; None if it is float."""
        if node.op_type in _READS:
            at = _READS[node.op_type](slot)
            return self._scaled([node.input[place] if place < len(node.input) else "" for place in at])
        return self.scaled(node.input[slot]) if slot < len(node.input) else None

    def _scaled(self, names: list[str]) -> Scaled | None:
        scale = self._value(names[0])
        given = self._value(names[1]) if len(names) > 1 and names[1] else None
        zero = np.zeros((), np.uint8) if given is None else given
        if scale is None or scale.size != 1 or zero.dtype.kind not in "iu":
            return None
        return Scaled(scale.astype(np.float32).reshape(()), zero.reshape(()))

    def node(self, unit: Unit) -> NodeProto | None:
        """The node that does an op's arithmetic."""
        found: NodeProto | None = self._by_name.get(unit.op.name)
        return found or self._by_name.get(f"{unit.op.name}_quant")

    def is_int8(self, unit: Unit, node: NodeProto | None) -> bool:
        """Whether an op computes in 8 bits: an integer operator, or one that reads dequantized tensors alone."""
        if node is None:
            return False
        if node.op_type in _RESULT_SCALE or node.op_type in _WEIGHT:
            return True
        makers = [self._producers.get(name) for name in node.input[: 2 if unit.weight is not None else None] if name]
        return bool(makers) and all(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers)

    def weight(self, node: NodeProto | None) -> Weight | None:
        """The weight of an op in 8 bits; None if it is float."""
        if node is None:
            return None
        if node.op_type in _WEIGHT:
            names = [node.input[at] if at < len(node.input) else "" for at in _WEIGHT[node.op_type]]
            return self._unpacked(names, 0 if node.op_type == "QLinearConv" else 1)
        maker = self._producers.get(node.input[1]) if len(node.input) > 1 else None
        if maker is None or maker.op_type != "DequantizeLinear":
            return None
        return self._unpacked(list(maker.input), integer(maker, "axis", 1))

    def _unpacked(self, names: list[str], axis: int) -> Weight | None:
        values, scale = self._value(names[0]), self._value(names[1])
        if values is None or scale is None:
            return None
        given = self._value(names[2]) if len(names) > 2 and names[2] else None
        zero = np.zeros(scale.shape, np.int8) if given is None else given
        shape = [1] * values.ndim
        if scale.size > 1:
            shape[axis] = -1
        real = (values.astype(np.float32) - zero.reshape(shape).astype(np.float32)) * scale.reshape(shape)
        return Weight(real.astype(np.float32), tuple(map(float, scale.reshape(-1))), tuple(map(int, zero.reshape(-1))))

    def _value(self, name: str) -> Array | None:
        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def giving(self, tensors: list[str]) -> bytes:
        """The model with these float tensors as outputs besides its own."""
        model = ModelProto()
        model.CopyFrom(self.model)
        model.graph.node.extend(self._added)
        known = {value.name for value in model.graph.output}
        for name in dict.fromkeys(tensors):
            if name not in known:
                model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        return bytes(model.SerializeToString())

    def outputs(self) -> list[str]:
        """The names of the model's own outputs."""
        return [value.name for value in self.model.graph.output]

    def inputs(self) -> Iterator[str]:
        """The names of what the model takes."""
        return (value.name for value in self.model.graph.input if value.name not in self._constants)


def _read(source: Any) -> ModelProto:
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
