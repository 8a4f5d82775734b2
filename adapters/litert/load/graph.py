"""A .tflite model taken apart: its operators, who writes a tensor and who reads it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from quaver.adapters.data import InputSpec
from quaver.adapters.litert.load.names import Named, op_names
from quaver.adapters.litert.load.structure import check_structure
from quaver.errors import ModelError
from quaver.types import Array, ModelLike

KINDS = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
DTYPES: dict[int, np.dtype[Any]] = {
    code: np.dtype(name.lower())
    for name, code in vars(schema.TensorType).items()
    if name.lower() in np.sctypeDict and isinstance(code, int)
}
# Written into the models that quaver converts: their tensors carry the names of ops as they are.
NAMED = b"quaver"

# Which operand is the weight, and which is the bias.
WEIGHTS = {
    "CONV_2D": (1, 2),
    "DEPTHWISE_CONV_2D": (1, 2),
    "FULLY_CONNECTED": (1, 2),
    "TRANSPOSE_CONV": (1, 3),
    "BATCH_MATMUL": (1, None),
}
# What only moves values about or computes shapes.
STILL = {
    "BROADCAST_ARGS", "BROADCAST_TO", "CAST", "EXPAND_DIMS", "FILL", "GATHER", "GATHER_ND", "MAX_POOL_2D",
    "MIRROR_PAD", "PAD", "RANGE", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "SHAPE", "SLICE", "SPACE_TO_DEPTH", "SPLIT",
    "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the graph; tensors are given by index, -1 for an operand that is left out."""

    index: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Graph:
    """The main graph of a .tflite model, read once."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.model = read(content)
        self.main = self.model.subgraphs[0]
        self.operators = [
            Operator(
                index,
                kind_of(self.model, operator),
                tuple(int(tensor) for tensor in as_list(operator.inputs)),
                tuple(int(tensor) for tensor in as_list(operator.outputs)),
            )
            for index, operator in enumerate(self.main.operators)
        ]
        self.inputs = tuple(int(tensor) for tensor in self.main.inputs)
        self.outputs = tuple(int(tensor) for tensor in self.main.outputs)
        self.writers = {tensor: op.index for op in self.operators for tensor in op.outputs}
        self.readers: dict[int, list[int]] = defaultdict(list)
        for op in self.operators:
            for tensor in dict.fromkeys(op.inputs):
                self.readers[tensor].append(op.index)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model file."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def names(self) -> list[str]:
        """The name of each operator; see `naming`."""
        named = [
            Named(
                op.kind, [self.tensor_name(tensor) for tensor in op.outputs], self._weight_name(op), self._computes(op)
            )
            for op in self.operators
        ]
        if bytes(self.model.description or b"") == NAMED:
            return [name.outputs[0] if name.outputs else f"{name.kind.lower()}:{at}" for at, name in enumerate(named)]
        return op_names(named)

    def tensor_name(self, tensor: int) -> str:
        """The name of a tensor, as written in the file."""
        return bytes(self.main.tensors[tensor].name or b"").decode("utf-8", "replace")

    def tensor_at(self, name: str) -> int:
        """The tensor of this name."""
        return self._places[name]

    def knows(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self._places

    @cached_property
    def _places(self) -> dict[str, int]:
        return {self.tensor_name(at): at for at in range(len(self.main.tensors))}

    def constant(self, tensor: int) -> Array | None:
        """The value of a constant; None for what is computed or fed."""
        if tensor < 0:
            return None
        entry = self.main.tensors[tensor]
        data = self.model.buffers[entry.buffer].data
        if data is None or len(data) == 0 or entry.type not in DTYPES:
            return None
        content = data if isinstance(data, bytes | bytearray) else np.ascontiguousarray(data, np.uint8)
        array: Array = np.frombuffer(content, DTYPES[entry.type])
        return array.reshape([] if entry.shape is None else entry.shape)

    def is_constant(self, tensor: int) -> bool:
        """Whether a tensor's value lies in the file."""
        if tensor < 0:
            return False
        data = self.model.buffers[self.main.tensors[tensor].buffer].data
        return data is not None and len(data) > 0

    def is_float(self, tensor: int) -> bool:
        """Whether a tensor is float32."""
        return tensor >= 0 and self.main.tensors[tensor].type == schema.TensorType.FLOAT32

    def limits(self, tensor: int) -> tuple[int, int]:
        """The smallest and the largest integer that a tensor can hold."""
        found = np.iinfo(DTYPES[self.main.tensors[tensor].type])
        return int(found.min), int(found.max)

    def rank(self, tensor: int) -> int:
        """How many axes a tensor has."""
        return len(as_list(self.main.tensors[tensor].shape))

    def input_specs(self) -> tuple[InputSpec, ...]:
        """What the model takes, by the names of its signature if it has one."""
        names = {
            int(entry.tensorIndex): bytes(entry.name).decode()
            for signature in self.model.signatureDefs or []
            if not signature.subgraphIndex
            for entry in as_list(signature.inputs)
        }
        return tuple(self._input_spec(tensor, names.get(tensor, self.tensor_name(tensor))) for tensor in self.inputs)

    def _input_spec(self, tensor: int, name: str) -> InputSpec:
        entry = self.main.tensors[tensor]
        if entry.type not in DTYPES:
            raise ModelError(f"input {name!r} holds text or another type that cannot be calibrated")
        declared = entry.shapeSignature if entry.shapeSignature is not None else entry.shape
        shape = tuple(int(dim) if dim >= 0 else None for dim in as_list(declared))
        return InputSpec(name, DTYPES[entry.type], shape)

    def weight(self, op: Operator) -> int | None:
        """The constant that an operator multiplies with."""
        slot = WEIGHTS.get(op.kind, (None, None))[0]
        if slot is None or slot >= len(op.inputs) or not self.is_constant(op.inputs[slot]):
            return None
        return op.inputs[slot] if self.is_float(op.inputs[slot]) else None

    def _weight_name(self, op: Operator) -> str:
        weight = self.weight(op)
        return "" if weight is None else self.tensor_name(weight)

    def _computes(self, op: Operator) -> bool:
        return op.kind not in STILL and bool(op.outputs) and self.is_float(op.outputs[0])


def read(content: bytes) -> Any:
    """The file as an object; arrays in it are views into `content`."""
    try:
        model = flatbuffer_utils.read_model_from_bytearray(content)
    except Exception as error:
        raise ModelError(f"the .tflite file cannot be read ({type(error).__name__}: {error})") from error
    if not model.subgraphs or not model.subgraphs[0].operators:
        raise ModelError("the .tflite file holds no operators")
    check_structure(model)
    return model


def write(model: ModelLike) -> bytes:
    """The object as a file."""
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def kind_of(model: ModelLike, operator: Any) -> str:
    """The type of an operator."""
    code = model.operatorCodes[operator.opcodeIndex]
    kind = KINDS.get(max(code.builtinCode, code.deprecatedBuiltinCode), "UNKNOWN")
    return f"CUSTOM:{bytes(code.customCode).decode()}" if kind == "CUSTOM" and code.customCode else kind


def as_list(values: Any) -> list[Any]:
    """A vector of the file that may be left out."""
    return [] if values is None else list(values)
