"""The nodes of a symbol with oneDNN's subgraphs, and their readers and writers."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quaver.types import PlainDict


@dataclass(frozen=True, slots=True)
class Node:
    """One node that computes.

    Attributes:
        index: its place in the graph.
        name: its name.
        operator: the operator that runs, such as `_sg_mkldnn_conv`.
        inputs: the index of each node that it reads, and the number of its output.
        attributes: its settings.
        inner: kinds of the nodes that were fused into it, by name.
        settings: settings of the nodes that were fused into it, by kind.
    """

    index: int
    name: str
    operator: str
    inputs: tuple[tuple[int, int], ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return the operator that the user wrote: the first of those that were fused."""
        return next(iter(self.inner.values()), self.operator)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the node in the user's graph."""
        return tuple(self.inner) or (self.name,)


class Graph:
    """Nodes by index and by name, and their readers."""

    def __init__(self, symbol: Any) -> None:
        graph = json.loads(symbol.tojson())
        self.symbol = symbol
        self.variables: dict[int, str] = {}
        self.nodes: dict[int, Node] = {}
        for index, node in enumerate(graph["nodes"]):
            if node["op"] == "null":
                self.variables[index] = node["name"]
            else:
                self.nodes[index] = _node(index, node)
        self.by_name = {node.name: node for node in self.nodes.values()}
        self.heads = [(at, output) for at, output, *_ in graph["heads"]]
        self.readers: dict[int, list[Node]] = {}
        for node in self.nodes.values():
            for at in dict.fromkeys(at for at, _ in node.inputs):
                self.readers.setdefault(at, []).append(node)
        self._outputs = _outputs(symbol)
        self._tensors = {name for names in self._outputs.values() for name in names}

    def outputs(self, node: Node) -> list[str]:
        """Return the names of the tensors that a node writes for others to read."""
        return self._outputs.get(node.name, [])

    def tensor(self, at: int, output: int = 0) -> str:
        """Return the name of a node's output, or of a variable."""
        if at in self.variables:
            return self.variables[at]
        return self.outputs(self.nodes[at])[output]

    def has_tensor(self, tensor: str) -> bool:
        """Return True if there is a tensor of this name."""
        return tensor in self._tensors

    def reads(self, node: Node, constants: Container[str]) -> list[str]:
        """Return the tensors that a node reads, without parameters."""
        names = dict.fromkeys(self.tensor(at, output) for at, output in node.inputs)
        return [name for name in names if name not in constants]

    def in_order(self) -> Iterator[Node]:
        """Return all nodes that compute."""
        return iter(self.nodes.values())


def _outputs(symbol: Any) -> dict[str, list[str]]:
    inner = symbol.get_internals()
    outputs: dict[str, list[str]] = {}
    for at, name in enumerate(inner.list_outputs()):
        outputs.setdefault(inner[at].name, []).append(name)
    return outputs


def _node(index: int, node: PlainDict) -> Node:
    parts = [part for graph in node.get("subgraphs", ()) for part in graph["nodes"] if part["op"] != "null"]
    inner = {part["name"]: part["op"] for part in parts}
    settings = {part["op"]: part.get("attrs", {}) for part in parts}
    inputs = tuple((at, output) for at, output, *_ in node["inputs"])
    return Node(index, node["name"], node["op"], inputs, node.get("attrs", {}), inner, settings)
