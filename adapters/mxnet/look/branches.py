"""Every op in int8 beside its float self, in one pass: the float graph with an int8 branch at each op.

A branch quantizes the float tensors that an op reads, with the ranges that the quantized model has for them, and runs
the op's int8 kernel as it stands in that model. So the error of an op is seen without those of the ops before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from quaver.adapters.batches import Feed
from quaver.adapters.mxnet.build.quantizing import Builder
from quaver.adapters.mxnet.look.integers import Seen, seen
from quaver.adapters.mxnet.look.quantized_graph import QUANTIZING, QuantizedGraph
from quaver.adapters.mxnet.read.graph import Graph
from quaver.adapters.mxnet.read.importing import import_mxnet
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.run.session import Session, shown
from quaver.quantization import Array

_BRANCH = "beside_"


class Branches:
    """The float network with a branch for each of these ops that is in int8 in the quantized one."""

    def __init__(
        self, builder: Builder, quantized: Network, ops: Sequence[str], tensors: Sequence[str], threads: int
    ) -> None:
        graft = _Graft(builder.graph, QuantizedGraph(quantized.symbol))
        branches = {name: branch for name in ops if (branch := graft.add(name))}
        symbol = import_mxnet().sym.load_json(graft.json())
        graph = Graph(symbol)
        self._ops = {name: builder.output(builder.by_name[name].node) for name in ops}
        self._written = {name: graph.outputs(graph.by_name[branch])[:3] for name, branch in branches.items()}
        self._others = [name for name in tensors if builder.graph.knows(name)]
        written = (name for names in self._written.values() for name in names)
        self._names = list(dict.fromkeys([*self._ops.values(), *self._others, *written]))
        parameters = {**builder.network.parameters, **quantized.parameters}
        self._ends = len(builder.graph.heads)
        self._session = Session(shown(symbol, self._names), parameters, threads)

    def run(self, feed: Feed) -> tuple[dict[str, tuple[Array, Seen | None]], dict[str, Array], list[Array]]:
        """Of each op its float output and that of its branch; the other tensors; the outputs of the float model."""
        values = self._session.run(feed)
        found = dict(zip(self._names, values, strict=False))
        ops = {
            op: (found[tensor], seen([found[name] for name in self._written[op]]) if op in self._written else None)
            for op, tensor in self._ops.items()
        }
        return ops, {name: found[name] for name in self._others}, values[len(self._names) :][: self._ends]


class _Graft:
    """A graph that grows."""

    def __init__(self, trunk: Graph, quantized: QuantizedGraph) -> None:
        self._graph = json.loads(trunk.symbol.tojson())
        self._nodes: list[dict[str, Any]] = self._graph["nodes"]
        self._quantized = quantized
        self._source = json.loads(quantized.symbol.tojson())["nodes"]
        self._places = {node["name"]: at for at, node in enumerate(self._nodes)}
        self._branches: list[str] = []

    def add(self, op: str) -> str:
        """Add the branch of an op; its name, or nothing for an op in fp32."""
        node = self._quantized.quantized(op)
        if node is None:
            return ""
        made = dict(self._source[node.index])
        made["name"] = _BRANCH + op
        made["inputs"] = [self._input(at, output) for at, output in node.inputs]
        self._branches.append(self._append(made))
        return self._branches[-1]

    def json(self) -> str:
        """The graph, whose outputs are those of the trunk, and then the branches."""
        self._graph.pop("node_row_ptr", None)
        self._graph["heads"] += [[self._places[name], 0, 0] for name in self._branches]
        self._graph["arg_nodes"] = [at for at, node in enumerate(self._nodes) if node["op"] == "null"]
        return json.dumps(self._graph)

    def _append(self, node: dict[str, Any]) -> str:
        self._places[node["name"]] = len(self._nodes)
        self._nodes.append(node)
        return str(node["name"])

    def _input(self, at: int, output: int) -> list[int]:
        """What a branch reads in place of an output of the quantized graph."""
        if at in self._quantized.variables:
            name = self._quantized.variables[at]
            if name not in self._places:
                self._append({"op": "null", "name": name, "inputs": []})
            return [self._places[name], 0, 0]
        node = self._quantized.nodes[at]
        name = f"{_BRANCH}quantize_{node.name}"
        if name not in self._places:
            low, high = self._quantized.range_of(node)
            source = [self._places[self._quantized.float_source(node)], 0, 0]
            attributes = {"out_type": "auto", "min_calib_range": repr(low), "max_calib_range": repr(high)}
            self._append({"op": QUANTIZING, "name": name, "attrs": attributes, "inputs": [source]})
        return [self._places[name], output, 0]
