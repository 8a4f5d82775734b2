"""PRelu, of which ONNX Runtime has a kernel that takes a decision for each number, and none in 8 bits.

With one slope it is a LeakyRelu, which has both. With a slope for each channel it is max(x, 0) + slope min(x, 0), of
four fast kernels: a tenth of the time in fp32, and all of them there in 8 bits.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.read.graph import Graph
from quaver.adapters.onnxrt.read.rewrites.editing import is_float, number, replace
from quaver.adapters.onnxrt.read.rewrites.skeleton import opset_of

# From this opset on, the bounds of a Clip are inputs, and one may be left out.
OPSET = 11


def spell_out_prelu(graph: Graph) -> int:
    """Put other nodes in the place of each PRelu with constant slopes. Returns how many there were."""
    found = [node for node in graph.nodes if node.op_type == "PRelu" and not node.domain]
    return sum(_rewrite(graph, node) for node in found if is_float(graph, node.input[0]))


def _rewrite(graph: Graph, node: NodeProto) -> bool:
    x, slopes = node.input
    slope = number(graph, slopes, x)
    if slope is not None:
        replace(graph, [node], [helper.make_node("LeakyRelu", [x], [node.output[0]], name=node.name, alpha=slope)])
        return True
    known = graph.constants.get(slopes)
    if known is None or known.dtype != np.float32 or not np.isfinite(known).all() or opset_of(graph) < OPSET:
        return False
    if known.ndim > graph.ranks.get(x, 0):
        return False
    zero, above, below, scaled = (
        graph.free_name(f"{node.output[0]}.{part}") for part in ("zero", "above", "below", "scaled")
    )
    graph.constants[zero] = np.array(0, np.float32)
    new = [
        helper.make_node("Relu", [x], [above], name=f"{node.name}.above"),
        helper.make_node("Clip", [x, "", zero], [below], name=f"{node.name}.below"),
        helper.make_node("Mul", [below, slopes], [scaled], name=f"{node.name}.scaled"),
        helper.make_node("Add", [above, scaled], [node.output[0]], name=node.name),
    ]
    replace(graph, [node], new)
    return True
