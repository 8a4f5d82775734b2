"""The operators of a .tflite model, and the writers and readers of each tensor."""

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
from quaver.adapters.litert.load.names import OperatorNaming, op_names
from quaver.adapters.litert.load.structure import check_structure
from quaver.errors import ModelError
from quaver.types import Array, ModelLike

OPERATOR_KINDS = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
DTYPES: dict[int, np.dtype[Any]] = {
    code: np.dtype(name.lower())
    for name, code in vars(schema.TensorType).items()
    if name.lower() in np.sctypeDict and isinstance(code, int)
}
# Description of models that quaver converted: their tensors already have the names of ops.
NAMED_BY_QUAVER = b"quaver"

# The operand that is the weight, and the one that is the bias.
WEIGHT_AND_BIAS = {
    "CONV_2D": (1, 2),
    "DEPTHWISE_CONV_2D": (1, 2),
    "FULLY_CONNECTED": (1, 2),
    "TRANSPOSE_CONV": (1, 3),
    "BATCH_MATMUL": (1, None),
}
# Operators that only move values or compute shapes.
NON_COMPUTING = {
    "BROADCAST_ARGS", "BROADCAST_TO", "CAST", "EXPAND_DIMS", "FILL", "GATHER", "GATHER_ND", "MAX_POOL_2D",
    "MIRROR_PAD", "PAD", "RANGE", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "SHAPE", "SLICE", "SPACE_TO_DEPTH", "SPLIT",
    "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the graph. Tensors are indices; -1 stands for an operand that is left out."""

    index: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Graph:
    """The main graph of a .tflite model, parsed once."""

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
        """Return a hash of the model file."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def names(self) -> list[str]:
        """Return the name of each operator; see `quaver.adapters.litert.load.names`."""
        namings = [
            OperatorNaming(
                op.kind, [self.tensor_name(tensor) for tensor in op.outputs], self._weight_name(op), self._computes(op)
            )
            for op in self.operators
        ]
        if bytes(self.model.description or b"") == NAMED_BY_QUAVER:
            return [name.outputs[0] if name.outputs else f"{name.kind.lower()}:{at}" for at, name in enumerate(namings)]
        return op_names(namings)

    def tensor_name(self, tensor: int) -> str:
        """Return the name of a tensor as written in the file."""
        return bytes(self.main.tensors[tensor].name or b"").decode("utf-8", "replace")

    def tensor_at(self, name: str) -> int:
        """Return the index of the tensor with this name."""
        return self._places[name]

    def has_tensor(self, name: str) -> bool:
        """Return True if there is a tensor of this name."""
        return name in self._places

    @cached_property
    def _places(self) -> dict[str, int]:
        return {self.tensor_name(at): at for at in range(len(self.main.tensors))}

    def constant(self, tensor: int) -> Array | None:
        """Return the value of a constant; None for a tensor that is computed or fed."""
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
        """Return True if a tensor's value is stored in the file."""
        if tensor < 0:
            return False
        data = self.model.buffers[self.main.tensors[tensor].buffer].data
        return data is not None and len(data) > 0

    def is_float(self, tensor: int) -> bool:
        """Return True if a tensor is float32."""
        return tensor >= 0 and self.main.tensors[tensor].type == schema.TensorType.FLOAT32

    def integer_limits(self, tensor: int) -> tuple[int, int]:
        """Return the smallest and the largest integer that a tensor can hold."""
        info = np.iinfo(DTYPES[self.main.tensors[tensor].type])
        return int(info.min), int(info.max)

    def rank(self, tensor: int) -> int:
        """Return the number of axes of a tensor."""
        return len(as_list(self.main.tensors[tensor].shape))

    def input_specs(self) -> tuple[InputSpec, ...]:
        """Return the inputs of the model, by the names of its signature if it has one."""
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
            raise ModelError(f"input {name!r} has a type that cannot be calibrated, such as text")
        declared = entry.shapeSignature if entry.shapeSignature is not None else entry.shape
        shape = tuple(int(dim) if dim >= 0 else None for dim in as_list(declared))
        return InputSpec(name, DTYPES[entry.type], shape)

    def weight(self, op: Operator) -> int | None:
        """Return the constant that an operator multiplies with."""
        slot = WEIGHT_AND_BIAS.get(op.kind, (None, None))[0]
        if slot is None or slot >= len(op.inputs) or not self.is_constant(op.inputs[slot]):
            return None
        return op.inputs[slot] if self.is_float(op.inputs[slot]) else None

    def _weight_name(self, op: Operator) -> str:
        weight = self.weight(op)
        return "" if weight is None else self.tensor_name(weight)

    def _computes(self, op: Operator) -> bool:
        return op.kind not in NON_COMPUTING and bool(op.outputs) and self.is_float(op.outputs[0])


def read(content: bytes) -> Any:
    """Parse a file; arrays in the result are views into `content`."""
    try:
        model = flatbuffer_utils.read_model_from_bytearray(content)
    except Exception as error:
        raise ModelError(f"the .tflite file cannot be read ({type(error).__name__}: {error})") from error
    if not model.subgraphs or not model.subgraphs[0].operators:
        raise ModelError("the .tflite file holds no operators")
    check_structure(model)
    return model


def write(model: ModelLike) -> bytes:
    """Return the file of a parsed model."""
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def kind_of(model: ModelLike, operator: Any) -> str:
    """Return the type of an operator."""
    code = model.operatorCodes[operator.opcodeIndex]
    kind = OPERATOR_KINDS.get(max(code.builtinCode, code.deprecatedBuiltinCode), "UNKNOWN")
    return f"CUSTOM:{bytes(code.customCode).decode()}" if kind == "CUSTOM" and code.customCode else kind


def as_list(values: Any) -> list[Any]:
    """Return a vector of the file, which may be missing, as a list."""
    return [] if values is None else list(values)
