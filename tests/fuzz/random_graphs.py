"""Random valid ONNX models, the same one for the same seed."""

from __future__ import annotations

import graph_blocks
import graph_bodies
import graph_layers
import graph_shapes
import numpy as np
import onnx
from graph_builder import OPSETS, GraphBuilder, Rejected, record_inputs
from graph_layers import Layer
from onnx import helper

# How often each layer is tried, compared with the others.
LAYERS: dict[Layer, float] = {
    graph_layers.conv: 5.0, graph_layers.conv_transpose: 1.0, graph_layers.gemm: 2.0, graph_layers.matmul: 3.0,
    graph_layers.projections: 0.7, graph_layers.normalization: 2.0, graph_layers.layer_norm: 0.7,
    graph_layers.activation: 6.0, graph_layers.softmax: 1.0, graph_layers.pool: 2.0, graph_shapes.pad: 1.0,
    graph_shapes.resize: 1.0, graph_layers.binary: 4.0, graph_shapes.concat: 1.5, graph_shapes.split: 1.0,
    graph_shapes.slicing: 1.0, graph_shapes.movement: 4.0, graph_shapes.reduction: 1.5, graph_layers.recurrent: 0.7,
    graph_layers.embedding: 0.4, graph_layers.selection: 0.5, graph_bodies.branching: 0.6, graph_bodies.looping: 0.4,
    graph_bodies.scanning: 0.4, graph_blocks.padded_window: 1.5, graph_blocks.large_pools: 0.4,
    graph_blocks.twins: 0.8, graph_blocks.tied_embedding: 0.2, graph_blocks.squeeze_excite: 0.5,
    graph_blocks.shuffle: 0.4, graph_blocks.computed_weight: 0.4, graph_blocks.newer_norm: 0.6,
    graph_blocks.ordering: 0.6, graph_blocks.picking: 0.5, graph_blocks.einsum: 0.4, graph_blocks.half_island: 0.3,
    graph_blocks.local_function: 0.4,
}  # fmt: skip
_WEIGHTS = np.array(list(LAYERS.values())) / sum(LAYERS.values())


def make_model(seed: int) -> onnx.ModelProto:
    """Return the random model of a seed. It says itself what its inputs are fed with."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder(rng, int(rng.choice(OPSETS)))
    for _ in range(int(rng.choice([1, 1, 1, 2]))):
        _add_input(b)
    wanted, layers = int(rng.integers(2, 15)), list(LAYERS)
    for _ in range(3 * wanted):
        if len(b.nodes) >= wanted:
            break
        marks = len(b.nodes), len(b.initializers), set(b.values)
        try:
            layers[int(rng.choice(len(layers), p=_WEIGHTS))](b)
        except Rejected:
            if b.chance(0.7):
                _undo(b, *marks)
    if not b.nodes or all(node.op_type == "Constant" for node in b.nodes):
        b.add("Identity", next(iter(b.inputs)))
    return _finish(b)


def _add_input(b: GraphBuilder) -> None:
    """Add an input like those of images, signals, volumes, sequences or tables."""
    batch = b.choose([1, 2, 2, 3])
    channels = b.choose([1, 3, 4, 8])
    places = [int(b.rng.integers(4, 12)) for _ in range(3)]
    shape = b.choose([[batch, channels, *places[:2]]] * 4
                     + [[batch, channels, places[0]], [batch, channels, *(min(6, place) for place in places)],
                        [batch, places[0], channels], [batch, places[0] * channels]])  # fmt: skip
    kind = b.choose(["float32"] * 12 + ["float16", "float64", "int32"])
    name = b.input(shape, kind, limit=10, scale=b.choose([1.0, 1.0, 1.0, 0.01, 20.0, 0.0]))
    if kind != "float32":
        b.add("Cast", name, to=1)


def _undo(b: GraphBuilder, nodes: int, initializers: int, names: set[str]) -> None:
    """Take back what a layer added before one of its nodes was rejected."""
    del b.nodes[nodes:], b.initializers[initializers:]
    for name in set(b.values) - names:
        del b.values[name]
        b.inputs.pop(name, None)
        b.constants.discard(name)


def _finish(b: GraphBuilder) -> onnx.ModelProto:
    """Return the model of what a builder holds: its leaves are outputs, and at times other tensors."""
    read = {name for node in b.nodes for name in _reads(node)}
    made = [name for node in b.nodes if node.op_type != "Constant" for name in node.output]
    leaves = [name for name in made if name not in read]
    share = b.choose([0.05, 0.05, 0.3])
    middle = [name for name in made if name in read and b.chance(share)]
    outputs = [*leaves, *middle] if b.chance(0.7) else [*middle, *leaves]
    if b.chance(0.02):
        outputs.append(b.choose(sorted(b.inputs)))
    if b.chance(0.02) and b.initializers:
        outputs.append(b.choose(b.initializers).name)
    if len(leaves) > 1 and b.chance(0.2):  # nodes that nothing needs
        outputs.remove(leaves[0])
    stated = b.choose([0.0, 0.3, 1.0])
    ir = int(b.choose([3, 4, 6, 7, 8] if b.opset < 13 else [7, 8, 9, 10]))
    inputs = [b.declared(name, stated) for name in b.inputs]
    if ir < 4:  # constants had to be inputs, too
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in b.initializers]
    graph = b.graph([b.declared(name, stated) for name in dict.fromkeys(outputs)], inputs)
    domain = "ai.onnx" if b.chance(0.02) else ""
    if b.functions:
        ir = max(ir, 8)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, b.opset)], ir_version=ir)
    b.add_functions(model)
    if b.chance(0.3):
        for name in made:
            if name not in outputs and b.chance(0.7):
                model.graph.value_info.append(b.declared(name, stated))
    record_inputs(model, b.inputs)
    return model


def _reads(node: onnx.NodeProto) -> set[str]:
    """Return what a node reads, in its bodies too."""
    names = set(node.input)
    for entry in node.attribute:
        for inner in entry.g.node:
            names |= _reads(inner)
        names |= {value.name for value in entry.g.output}
    return names
