"""The graph: an ONNX model taken apart into nodes, constants as arrays, and who writes and reads each tensor."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from quaver.types import Array


@dataclass(slots=True)
class Graph:
    """A model's main graph and what surrounds it. The adapter owns it; the user's model is never changed.

    Attributes:
        nodes: in topological order, with unique names.
        constants: initializers and the outputs of Constant nodes.
        shell: the model without nodes and initializers: inputs, outputs, opsets, functions, metadata.
        types: by tensor, its element type as far as inference knows it.
        ranks: by tensor, its number of dimensions if its shape is known.
        shapes: by tensor, its shape if all dimensions are fixed.
        producers: by tensor, the index of the node that writes it.
        consumers: by tensor, the indices of the nodes that read it, in their bodies too.
        captured: tensors that the bodies of If, Loop and Scan read from this graph.
        output_names: names of the model's outputs.
        body_names: every name that occurs in such a body.
        merged: for a node that stands for other nodes of the user too, the names of those.
        tied: by the constant of a product, the table of which it is the transpose; the table alone is stored.
    """

    nodes: list[NodeProto]
    constants: dict[str, Array]
    shell: ModelProto
    types: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, list[int]] = field(default_factory=dict)
    captured: set[str] = field(default_factory=set)
    output_names: frozenset[str] = frozenset()
    body_names: set[str] = field(default_factory=set)
    merged: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[ValueInfoProto]:
        """The model's inputs."""
        return list(self.shell.graph.input)

    @property
    def outputs(self) -> list[ValueInfoProto]:
        """The model's outputs."""
        return list(self.shell.graph.output)

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return next(int(entry.version) for entry in self.shell.opset_import if entry.domain in ("", "ai.onnx"))

    @property
    def pinned(self) -> set[str]:
        """Tensors whose names others rely on: graph outputs, and what the bodies of If, Loop and Scan read."""
        return self.captured | {value.name for value in self.shell.graph.output}

    def copy(self) -> Graph:
        """Return a graph with nodes and tables of its own. The arrays are shared."""
        shell = ModelProto()
        shell.CopyFrom(self.shell)
        nodes = []
        for node in self.nodes:
            nodes.append(NodeProto())
            nodes[-1].CopyFrom(node)
        tables = dict(self.types), dict(self.ranks), dict(self.shapes)
        twin = Graph(nodes, dict(self.constants), shell, *tables, merged=dict(self.merged))
        twin.index()
        return twin

    def merge(self, into: str, *names: str) -> None:
        """Note that a node stands for others too, and for all they stood for."""
        inherited = [other for name in names for other in (name, *self.merged.get(name, ()))]
        merged = dict.fromkeys([*self.merged.get(into, ()), *inherited])
        self.merged[into] = tuple(name for name in merged if name != into)

    def index(self) -> None:
        """Recompute who writes and who reads each tensor. Call it after nodes have changed."""
        self.producers = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self.consumers = {}
        self.captured, self.body_names = set(), set()
        self.output_names = frozenset(value.name for value in self.shell.graph.output)
        for i, node in enumerate(self.nodes):
            captured = captures(node)
            self.captured |= captured
            self.body_names |= inner_names(node)
            for name in dict.fromkeys([*node.input, *sorted(captured)]):
                if name:
                    self.consumers.setdefault(name, []).append(i)

    def is_free(self, name: str) -> bool:
        """Return True if no tensor has this name, here or in a body."""
        inputs = (value.name for value in self.shell.graph.input)
        return not (name in self.constants or name in self.producers or name in self.body_names or name in inputs)

    def free_name(self, wanted: str) -> str:
        """Return the name, or a similar one if a tensor has it."""
        name, count = wanted, 1
        while not self.is_free(name):
            count += 1
            name = f"{wanted}_{count}"
        return name

    def only_reader(self, name: str) -> NodeProto | None:
        """Return the only node that reads a tensor; None if there are more, or others rely on its name."""
        readers = self.consumers.get(name, ())
        if len(readers) != 1 or name in self.captured or name in self.output_names:
            return None
        return self.nodes[readers[0]]

    def fingerprint(self) -> str:
        """Return a hash of what the model computes. It is equal for a path, a ModelProto, bytes and external data."""
        digest = hashlib.sha256()
        for node in self.nodes:
            digest.update(node.SerializeToString(deterministic=True))
        for value in [*self.shell.graph.input, *self.shell.graph.output]:
            digest.update(value.SerializeToString(deterministic=True))
        for function in self.shell.functions:
            digest.update(function.SerializeToString(deterministic=True))
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
    """Return an attribute by name, or None."""
    return next((entry for entry in node.attribute if entry.name == name), None)


def integer(node: NodeProto, name: str, default: int) -> int:
    """Return an integer attribute by name."""
    entry = attribute(node, name)
    return default if entry is None else entry.i


def real(node: NodeProto, name: str, default: float) -> float:
    """Return a float attribute by name."""
    entry = attribute(node, name)
    return default if entry is None else entry.f


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the bodies of a control-flow node."""
    for entry in node.attribute:
        if entry.type == AttributeProto.GRAPH:
            yield entry.g
        elif entry.type == AttributeProto.GRAPHS:
            yield from entry.graphs


def with_bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield these nodes and all nodes in their bodies."""
    for node in nodes:
        yield node
        for body in subgraphs(node):
            yield from with_bodies(body.node)


def captures(node: NodeProto) -> set[str]:
    """Return the names that the bodies of a control-flow node read from the graph around it."""
    captured: set[str] = set()
    for body in subgraphs(node):
        local_names = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        for inner in body.node:
            captured |= {name for name in inner.input if name and name not in local_names}
            captured |= {name for name in captures(inner) if name not in local_names}
            local_names |= set(inner.output)
        captured |= {value.name for value in body.output if value.name not in local_names}
    return captured


def inner_names(node: NodeProto) -> set[str]:
    """Return all tensor names in the bodies of a control-flow node."""
    names: set[str] = set()
    for body in subgraphs(node):
        names.update(value.name for value in itertools.chain(body.input, body.output, body.initializer))
        for inner in body.node:
            names.update(inner.input, inner.output, inner_names(inner))
    return names
