"""Run every op in int8 next to its float version, in one pass: the float graph with an int8 branch at each op.

A branch quantizes the float inputs of an op, with their ranges in the quantized model, and runs the op's int8 kernel as
that model does. So the error of an op does not include those of the ops before it.

"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from quaver.adapters.mxnet.build.builder import Builder
from quaver.adapters.mxnet.inspect.integers import QUANTIZE_OPERATOR, QuantizedGraph, TensorValue, seen
from quaver.adapters.mxnet.load.graph import Graph
from quaver.adapters.mxnet.load.network import Network
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.adapters.mxnet.run.session import Session, with_first_outputs
from quaver.affine import as_float
from quaver.ops import QuantConfig
from quaver.types import Array, Feed, PlainDict

_BRANCH = "beside_"


class LocalRuns:
    """The float network with a branch for each of these ops that the quantized network runs in int8."""

    def __init__(
        self, builder: Builder, quantized: Network, ops: Sequence[str], tensors: Sequence[str], threads: int
    ) -> None:
        graft = _LocalGraph(builder.graph, QuantizedGraph(quantized.symbol))
        branches = {name: branch for name in ops if (branch := graft.add(name))}
        symbol = import_mxnet().sym.load_json(graft.json())
        graph = Graph(symbol)
        self._ops = {name: builder.output(builder.by_name[name].node) for name in ops}
        self._written = {name: graph.outputs(graph.by_name[branch])[:3] for name, branch in branches.items()}
        self._others = [name for name in tensors if builder.graph.has_tensor(name)]
        written = (name for names in self._written.values() for name in names)
        self._names = list(dict.fromkeys([*self._ops.values(), *self._others, *written]))
        parameters = {**builder.network.parameters, **quantized.parameters}
        self._ends = len(builder.graph.heads)
        self._session = Session(with_first_outputs(symbol, self._names), parameters, threads)

    def run(self, feed: Feed) -> tuple[dict[str, tuple[Array, TensorValue | None]], dict[str, Array], list[Array]]:
        """Return for each op its float output and that of its branch; other tensors; the float model's outputs."""
        values = self._session.run(feed)
        by_name = dict(zip(self._names, values, strict=False))
        ops = {
            op: (
                by_name[tensor],
                seen([by_name[name] for name in self._written[op]]) if op in self._written else None,
            )
            for op, tensor in self._ops.items()
        }
        return ops, {name: by_name[name] for name in self._others}, values[len(self._names) :][: self._ends]


class _LocalGraph:
    """A float graph to which branches are added."""

    def __init__(self, trunk: Graph, quantized: QuantizedGraph) -> None:
        self._graph = json.loads(trunk.symbol.tojson())
        self._nodes: list[PlainDict] = self._graph["nodes"]
        self._quantized = quantized
        self._source = json.loads(quantized.symbol.tojson())["nodes"]
        self._places = {node["name"]: at for at, node in enumerate(self._nodes)}
        self._branches: list[str] = []

    def add(self, op: str) -> str:
        """Add the branch of an op. Return its name; empty for an op in fp32."""
        node = self._quantized.quantized(op)
        if node is None:
            return ""
        made = dict(self._source[node.index])
        made["name"] = _BRANCH + op
        made["inputs"] = [self._input(at, output) for at, output in node.inputs]
        self._branches.append(self._append(made))
        return self._branches[-1]

    def json(self) -> str:
        """Return the graph, with the branches as additional outputs."""
        self._graph.pop("node_row_ptr", None)
        self._graph["heads"] += [[self._places[name], 0, 0] for name in self._branches]
        self._graph["arg_nodes"] = [at for at, node in enumerate(self._nodes) if node["op"] == "null"]
        return json.dumps(self._graph)

    def _append(self, node: PlainDict) -> str:
        self._places[node["name"]] = len(self._nodes)
        self._nodes.append(node)
        return str(node["name"])

    def _input(self, at: int, output: int) -> list[int]:
        """Return what a branch reads in place of an output of the quantized graph."""
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
            self._append({"op": QUANTIZE_OPERATOR, "name": name, "attrs": attributes, "inputs": [source]})
        return [self._places[name], output, 0]


OutputRecorder = Callable[[Feed], dict[str, Array]]


def record_outputs(builder: Builder, config: QuantConfig | None, ops: Sequence[str], threads: int) -> OutputRecorder:
    """Return a function that runs a feed and returns the output of each of these ops as float."""
    reader = OutputReader(builder.build(config), ops, threads)
    return lambda feed: {name: as_float(value) for name, value in reader.run(feed)[0].items()}


def local_errors(
    builder: Builder, config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """Return for each int8 op, fed with float inputs, its squared error and its squared output."""
    local_runs = LocalRuns(builder, builder.build(config), config.quantized_ops, (), threads)
    sums = {name: np.zeros(2) for name in config.quantized_ops}
    for feed in feeds:
        for name, (before, after) in local_runs.run(feed)[0].items():
            assert after is not None
            sums[name] += _squares(before.astype(np.float64) - as_float(after)), _squares(before)
    return {name: (float(noise), float(signal)) for name, (noise, signal) in sums.items()}


def _squares(values: Array) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))


class OutputReader:
    """A network that also returns the outputs of its ops, in int8 or in float."""

    def __init__(self, network: Network, ops: Sequence[str], threads: int) -> None:
        graph = Graph(network.symbol)
        self._tensors = {name: tensors for name in ops if (tensors := op_outputs(graph, name))}
        self._names = [name for tensors in self._tensors.values() for name in tensors]
        self._session = Session(with_first_outputs(network.symbol, self._names), network.parameters, threads)

    def run(self, feed: Feed) -> tuple[dict[str, TensorValue], list[Array]]:
        """Return the output of each op, and those of the model."""
        values = self._session.run(feed)
        by_name = dict(zip(self._names, values, strict=False))
        ops = {name: seen([by_name[tensor] for tensor in tensors]) for name, tensors in self._tensors.items()}
        return ops, values[len(self._names) :]


def op_outputs(graph: Graph, op: str) -> list[str]:
    """Return the tensors that an op writes: in int8 also its smallest and largest value; none if it is missing."""
    for name in (f"quantized_{op}", op):
        node = graph.by_name.get(name)
        if node is not None:
            outputs = graph.outputs(node)
            return outputs[:3] if name != op and len(outputs) >= 3 else outputs[:1]
    return []
