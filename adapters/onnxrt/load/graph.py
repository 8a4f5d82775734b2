"""An ONNX graph taken apart: nodes, constants as arrays, who makes a tensor and who reads it."""

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
    """A model's main graph and what surrounds it. Owned by the adapter; the user's model is never touched.

    Attributes:
        nodes: in topological order, with unique names.
        constants: initializers and the outputs of Constant nodes.
        shell: the model without nodes and initializers: inputs, outputs, opsets, functions, metadata.
        types: element type of every tensor that inference could tell, by name.
        ranks: number of dimensions of those whose shape is known.
        shapes: all dimensions of those of which none is open.
        producers: the node that makes a tensor, by name.
        consumers: the nodes that read a tensor, in their bodies too, by name.
        captured: what the bodies of If, Loop and Scan read from here.
        output_names: names of the model's outputs.
        body_names: every name that occurs in such a body.
        merged: for a node that stands for others of the user's too, the names of those.
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

    def copy(self) -> Graph:
        """A graph of its own nodes and table of constants. The arrays are the same ones."""
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
        known = dict.fromkeys([*self.merged.get(into, ()), *inherited])
        self.merged[into] = tuple(name for name in known if name != into)

    def index(self) -> None:
        """Find out anew who makes and who reads each tensor."""
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
        """Whether no tensor has this name, nor any in a body."""
        inputs = (value.name for value in self.shell.graph.input)
        return not (name in self.constants or name in self.producers or name in self.body_names or name in inputs)

    def free_name(self, wanted: str) -> str:
        """The name, or one like it that no tensor has yet."""
        name, count = wanted, 1
        while not self.is_free(name):
            count += 1
            name = f"{wanted}_{count}"
        return name

    def only_reader(self, name: str) -> NodeProto | None:
        """The one node that reads a tensor, if there is just one and nobody else relies on the name."""
        readers = self.consumers.get(name, ())
        if len(readers) != 1 or name in self.captured or name in self.output_names:
            return None
        return self.nodes[readers[0]]

    def fingerprint(self) -> str:
        """A hash of what the model computes: the same for a path, a ModelProto, bytes, or external data."""
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


def with_bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """These nodes and all that lie in their bodies."""
    for node in nodes:
        yield node
        for body in subgraphs(node):
            yield from with_bodies(body.node)


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


def inner_names(node: NodeProto) -> set[str]:
    """All tensor names in the bodies of a control-flow node."""
    found: set[str] = set()
    for body in subgraphs(node):
        found.update(value.name for value in itertools.chain(body.input, body.output, body.initializer))
        for inner in body.node:
            found.update(inner.input, inner.output, inner_names(inner))
    return found
