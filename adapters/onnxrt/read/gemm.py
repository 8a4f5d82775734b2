"""A matrix product and the bias added to it as one Gemm, which is what the optimiser makes of them anyway.

It would do so after we placed our Quantize/Dequantize pairs, and then often find no integer kernel for the result.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.read.cleaning import drop_unread
from quaver.adapters.onnxrt.read.graph import Graph


def join_bias(graph: Graph, any_rank: bool = True) -> None:
    """Join products of rank two, and of higher rank where the shape is known: a Reshape makes them flat and back."""
    taken = {node.name for node in graph.nodes}
    gone: set[int] = set()
    nodes: list[NodeProto] = []
    flat: dict[str, str] = {}
    for node in graph.nodes:
        addition = _bias_addition(graph, node, any_rank)
        if addition is None:
            nodes.append(node)
            continue
        bias = next(name for name in addition.input if name != node.output[0])
        row = graph.free_name(f"{addition.output[0]}.bias")
        graph.constants[row] = graph.constants[bias].reshape(-1)
        graph.merge(node.name, addition.name)
        gone.add(id(addition))
        node.op_type = "Gemm"
        node.input.append(row)
        if graph.ranks[node.input[0]] == 2:
            nodes.append(node)
            node.output[0] = addition.output[0]
        else:
            nodes += _between_reshapes(graph, node, addition.output[0], flat, taken)
    graph.nodes = [node for node in nodes if id(node) not in gone]
    graph.index()
    drop_unread(graph)


def _bias_addition(graph: Graph, node: NodeProto, any_rank: bool) -> NodeProto | None:
    """The Add behind a product with a constant matrix that adds a row to each row, if they become a Gemm."""
    if node.op_type != "MatMul" or node.domain or node.input[1] not in graph.constants:
        return None
    rank, weight = graph.ranks.get(node.input[0], 0), graph.constants[node.input[1]]
    addition = graph.only_reader(node.output[0])
    if weight.dtype != np.float32 or weight.ndim != 2 or addition is None or addition.op_type != "Add":
        return None
    bias = graph.constants.get(next((name for name in addition.input if name != node.output[0]), ""))
    if bias is None or bias.ndim > max(rank, 1) or bias.size != weight.shape[1] or bias.shape[-1:] != weight.shape[1:]:
        return None
    return addition if rank == 2 or (any_rank and rank > 2 and node.input[0] in graph.shapes) else None


def _between_reshapes(
    graph: Graph, gemm: NodeProto, output: str, flat: dict[str, str], taken: set[str]
) -> list[NodeProto]:
    """The Gemm on rows, its result in the shape that it had. Products of one tensor share the first Reshape."""
    source = gemm.input[0]
    *outer, inner = graph.shapes[source]
    width = graph.constants[gemm.input[1]].shape[1]
    nodes = [gemm]
    if source not in flat:
        flat[source] = graph.free_name(f"{source}.rows")
        nodes.insert(0, _reshape(graph, source, flat[source], [-1, inner], taken))
    gemm.input[0], gemm.output[0] = flat[source], graph.free_name(f"{output}.rows")
    for name, shape in ((gemm.input[0], (int(np.prod(outer)), inner)), (gemm.output[0], (int(np.prod(outer)), width))):
        graph.types[name], graph.ranks[name], graph.shapes[name] = graph.types[source], 2, shape
    return [*nodes, _reshape(graph, gemm.output[0], output, [*outer, width], taken)]


def _reshape(graph: Graph, source: str, target: str, shape: list[int], taken: set[str]) -> NodeProto:
    name = f"{target}.reshape"
    while name in taken:
        name += "_"
    taken.add(name)
    constant = graph.free_name(f"{name}.shape")
    graph.constants[constant] = np.array(shape, np.int64)
    graph.types[constant], graph.ranks[constant] = 7, 1
    return helper.make_node("Reshape", [source, constant], [target], name=name)
