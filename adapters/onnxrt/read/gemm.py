"""A matrix product and the bias added to it as one Gemm, which is what the optimiser makes of them anyway.

It would do so after we placed our Quantize/Dequantize pairs, and then often find no integer kernel for the result.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.read.cleaning import drop_unread
from quaver.adapters.onnxrt.read.graph import Graph


def join_bias(graph: Graph, any_rank: bool = True) -> int:
    """Join products of rank two, and of higher rank where the shape is known: a Reshape makes them flat and back.

    Returns how many products got their bias.
    """
    return _BiasJoiner(graph, any_rank).run()


class _BiasJoiner:
    """One pass over a graph. Names that it gives away are remembered until the graph is indexed again."""

    def __init__(self, graph: Graph, any_rank: bool) -> None:
        self._graph, self._any_rank = graph, any_rank
        self._node_names = {node.name for node in graph.nodes}
        self._new_tensors: set[str] = set()
        self._rows_of: dict[str, str] = {}

    def run(self) -> int:
        graph = self._graph
        joined: set[int] = set()
        nodes: list[NodeProto] = []
        for node in graph.nodes:
            addition = self._bias_addition(node)
            if addition is None:
                nodes.append(node)
                continue
            bias = next(name for name in addition.input if name != node.output[0])
            row = self._new_tensor(f"{addition.output[0]}.bias")
            graph.constants[row] = graph.constants[bias].reshape(-1)
            graph.merge(node.name, addition.name)
            joined.add(id(addition))
            node.op_type = "Gemm"
            node.input.append(row)
            if graph.ranks[node.input[0]] == 2:
                nodes.append(node)
                node.output[0] = addition.output[0]
            else:
                nodes += self._between_reshapes(node, addition.output[0])
        graph.nodes = [node for node in nodes if id(node) not in joined]
        graph.index()
        drop_unread(graph)
        return len(joined)

    def _bias_addition(self, node: NodeProto) -> NodeProto | None:
        """The Add behind a product with a constant matrix that adds a row to each row, if they become a Gemm."""
        graph = self._graph
        if node.op_type != "MatMul" or node.domain or node.input[1] not in graph.constants:
            return None
        rank, weight = graph.ranks.get(node.input[0], 0), graph.constants[node.input[1]]
        addition = graph.only_reader(node.output[0])
        if weight.dtype != np.float32 or weight.ndim != 2 or addition is None or addition.op_type != "Add":
            return None
        bias = graph.constants.get(next((name for name in addition.input if name != node.output[0]), ""))
        if bias is None or bias.ndim > max(rank, 1):
            return None
        if bias.size != weight.shape[1] or bias.shape[-1:] != weight.shape[1:]:
            return None
        flattened = self._any_rank and rank > 2 and node.input[0] in graph.shapes
        return addition if rank == 2 or flattened else None

    def _between_reshapes(self, gemm: NodeProto, output: str) -> list[NodeProto]:
        """The Gemm on rows, its result in the shape that it had. Products of one tensor share the first Reshape."""
        graph, source = self._graph, gemm.input[0]
        *outer, inner = graph.shapes[source]
        width = graph.constants[gemm.input[1]].shape[1]
        nodes = [gemm]
        if source not in self._rows_of:
            self._rows_of[source] = self._new_tensor(f"{source}.rows")
            nodes.insert(0, self._reshape(source, self._rows_of[source], [-1, inner]))
        gemm.input[0], gemm.output[0] = self._rows_of[source], self._new_tensor(f"{output}.rows")
        rows = int(np.prod(outer))
        for name, shape in ((gemm.input[0], (rows, inner)), (gemm.output[0], (rows, width))):
            graph.types[name], graph.ranks[name], graph.shapes[name] = graph.types[source], 2, shape
        return [*nodes, self._reshape(gemm.output[0], output, [*outer, width])]

    def _reshape(self, source: str, target: str, shape: list[int]) -> NodeProto:
        name = f"{target}.reshape"
        while name in self._node_names:
            name += "_"
        self._node_names.add(name)
        constant = self._new_tensor(f"{name}.shape")
        self._graph.constants[constant] = np.array(shape, np.int64)
        self._graph.types[constant], self._graph.ranks[constant] = 7, 1
        return helper.make_node("Reshape", [source, constant], [target], name=name)

    def _new_tensor(self, wanted: str) -> str:
        """A name that no tensor of the graph has, nor any that this pass has made."""
        name, count = self._graph.free_name(wanted), 1
        while name in self._new_tensors:
            count += 1
            name = self._graph.free_name(f"{wanted}_{count}")
        self._new_tensors.add(name)
        return name
