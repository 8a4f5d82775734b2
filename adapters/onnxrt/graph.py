"""An ONNX graph taken apart: nodes, constants as arrays, who makes a tensor and who reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

Array = NDArray[Any]


@dataclass(slots=True)
class Graph:
    """A model's main graph and what surrounds it. Owned by the adapter; the user's model is never touched.

    Attributes:
        nodes: in topological order, with unique names.
        constants: initializers and the outputs of Constant nodes.
        shell: the model without nodes and initializers: inputs, outputs, opsets, functions, metadata.
        types: element type of every tensor that inference could tell, by name.
        ranks: number of dimensions of those whose shape is known.
    """

    nodes: list[NodeProto]
    constants: dict[str, Array]
    shell: ModelProto
    types: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, list[int]] = field(default_factory=dict)
    captured: set[str] = field(default_factory=set)

    @property
    def inputs(self) -> list[ValueInfoProto]:
        """The model's inputs."""
        return list(self.shell.graph.input)

    @property
    def outputs(self) -> list[ValueInfoProto]:
        """The model's outputs."""
        return list(self.shell.graph.output)

    @property
    def pinned(self) -> set[str]:
        """Tensors whose name others rely on: graph outputs, and what the bodies of If, Loop and Scan read."""
        return self.captured | {value.name for value in self.shell.graph.output}

    def index(self) -> None:
        """Find out anew who makes and who reads each tensor."""
        self.producers = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self.consumers = {}
        self.captured = set()
        for i, node in enumerate(self.nodes):
            inner = captures(node)
            self.captured |= inner
            for name in dict.fromkeys([*node.input, *sorted(inner)]):
                if name:
                    self.consumers.setdefault(name, []).append(i)

    def only_reader(self, name: str) -> NodeProto | None:
        """The one node that reads a tensor, if there is just one and nobody else relies on the name."""
        readers = self.consumers.get(name, [])
        if len(readers) != 1 or name in self.captured or any(value.name == name for value in self.shell.graph.output):
            return None
        return self.nodes[readers[0]]

    def fingerprint(self) -> str:
        """A hash of what the model computes: the same for a path, a ModelProto, bytes, or external data."""
        digest = hashlib.sha256()
        for node in self.nodes:
            digest.update(node.SerializeToString(deterministic=True))
        for value in [*self.shell.graph.input, *self.shell.graph.output]:
            digest.update(value.SerializeToString(deterministic=True))
        for opset in sorted(f"{entry.domain}:{entry.version}" for entry in self.shell.opset_import):
            digest.update(opset.encode())
        for name in sorted(self.constants):
            array = self.constants[name]
            digest.update(f"{name}|{array.dtype}|{array.shape}|".encode())
            if array.dtype == object:
                digest.update(repr(array.tolist()).encode())
            else:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def attribute(node: NodeProto, name: str) -> AttributeProto | None:
    """An attribute by name."""
    return next((entry for entry in node.attribute if entry.name == name), None)


def integer(node: NodeProto, name: str, default: int) -> int:
    """An integer attribute by name."""
    entry = attribute(node, name)
    return default if entry is None else entry.i


def real(node: NodeProto, name: str, default: float) -> float:
    """A float attribute by name."""
    entry = attribute(node, name)
    return default if entry is None else entry.f


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of a control-flow node."""
    for entry in node.attribute:
        if entry.type == AttributeProto.GRAPH:
            yield entry.g
        elif entry.type == AttributeProto.GRAPHS:
            yield from entry.graphs


def captures(node: NodeProto) -> set[str]:
    """Names that the bodies of a control-flow node read from the graph around it."""
    found: set[str] = set()
    for body in subgraphs(node):
        known = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        for inner in body.node:
            found |= {name for name in inner.input if name and name not in known}
            found |= {name for name in captures(inner) if name not in known}
            known |= set(inner.output)
        found |= {value.name for value in body.output if value.name not in known}
    return found


def infer_types(graph: Graph) -> None:
    """Fill in element types and ranks. Only shapes and types of large constants are shown to the inference."""
    model = ModelProto()
    model.CopyFrom(graph.shell)
    model.graph.node.extend(graph.nodes)
    given = {value.name for value in model.graph.input}
    for name, array in graph.constants.items():
        kind = _element_type(array)
        if array.size <= 256 and array.dtype != object:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        elif name not in given:
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        graph.types[name], graph.ranks[name] = kind, array.ndim
    try:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:
        pass  # what follows is then known only for inputs and outputs, and less is offered for int8
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        kind = value.type.tensor_type.elem_type
        if kind:
            graph.types[value.name] = kind
            if value.type.tensor_type.HasField("shape"):
                graph.ranks[value.name] = len(value.type.tensor_type.shape.dim)


def _element_type(array: Array) -> int:
    if array.dtype == object:
        return int(TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
