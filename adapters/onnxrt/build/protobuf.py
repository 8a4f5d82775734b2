"""Protobuf by hand, for the few messages that a trial is joined from.

A trial differs from the last one in a handful of nodes. Serializing each node and tensor once and joining the bytes is
a hundred times faster than building a `ModelProto`, and large tensors need never be copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

# Field numbers of onnx.proto.
MODEL_PRODUCER = 2
MODEL_PRODUCER_VERSION = 3
MODEL_GRAPH = 7
MODEL_OPSET = 8
MODEL_PROPERTY = 14
GRAPH_NODE = 1
GRAPH_INITIALIZER = 5
GRAPH_OUTPUT = 12
TENSOR_DIMS = 1
TENSOR_TYPE = 2
TENSOR_NAME = 8
TENSOR_RAW = 9
TENSOR_EXTERNAL = 13
TENSOR_LOCATION = 14
ENTRY_KEY = 1
ENTRY_VALUE = 2

_VARINT, _BYTES = 0, 2


def varint(number: int) -> bytes:
    """Encode a non-negative integer in base 128, low end first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def head(field: int, length: int) -> bytes:
    """Encode the tag and length before a length-delimited field."""
    return varint(field << 3 | _BYTES) + varint(length)


def block(field: int, payload: bytes) -> bytes:
    """Encode a whole length-delimited field."""
    return head(field, len(payload)) + payload


def number(field: int, value: int) -> bytes:
    """Encode a whole varint field."""
    return varint(field << 3 | _VARINT) + varint(value)


def node(op_type: str, inputs: list[str], outputs: list[str], name: str, **attributes: Any) -> bytes:
    """Encode one entry of `graph.node`."""
    proto = helper.make_node(op_type, inputs, outputs, name=name, **attributes)
    return block(GRAPH_NODE, proto.SerializeToString())


def opset(domain: str, version: int) -> bytes:
    """Encode one entry of `model.opset_import`."""
    return block(MODEL_OPSET, helper.make_opsetid(domain, version).SerializeToString())


def float_output(name: str) -> bytes:
    """Encode one entry of `graph.output`: a float tensor of unknown shape."""
    proto = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    return block(GRAPH_OUTPUT, proto.SerializeToString())


def output(name: str) -> bytes:
    """Encode one entry of `graph.output`: a tensor whose type the runtime infers."""
    return block(GRAPH_OUTPUT, onnx.ValueInfoProto(name=name).SerializeToString())


def property_entry(field: int, key: str, value: str) -> bytes:
    """Encode one entry of a map from text to text, such as `model.metadata_props`."""
    return block(field, block(ENTRY_KEY, key.encode()) + block(ENTRY_VALUE, value.encode()))


def _tensor_start(name: str, dims: Iterable[int], data_type: int) -> bytes:
    parts = [number(TENSOR_DIMS, dim) for dim in dims]
    return b"".join([*parts, number(TENSOR_TYPE, data_type), block(TENSOR_NAME, name.encode())])


def tensor(name: str, array: NDArray[np.generic]) -> bytes:
    """Encode one entry of `graph.initializer`, with its data inside."""
    data = np.asarray(array, order="C")  # ascontiguousarray would make a scalar one-dimensional
    start = initializer_head(name, data.shape, helper.np_dtype_to_tensor_dtype(data.dtype), data.nbytes)
    return start + data.tobytes()


def initializer_head(name: str, dims: Iterable[int], data_type: int, nbytes: int) -> bytes:
    """Encode an entry of `graph.initializer` up to its raw data, which must follow at once."""
    start = _tensor_start(name, dims, data_type) + head(TENSOR_RAW, nbytes)
    return head(GRAPH_INITIALIZER, len(start) + nbytes) + start


def external_tensor(name: str, dims: Iterable[int], data_type: int, location: str, offset: int, nbytes: int) -> bytes:
    """Encode one entry of `graph.initializer` whose data lies in a file."""
    entries = {"location": location, "offset": str(offset), "length": str(nbytes)}
    parts = [_tensor_start(name, dims, data_type)]
    parts += [property_entry(TENSOR_EXTERNAL, key, value) for key, value in entries.items()]
    parts.append(number(TENSOR_LOCATION, onnx.TensorProto.EXTERNAL))
    return block(GRAPH_INITIALIZER, b"".join(parts))
