"""Hard-sigmoid, clip(x + b, 0, h) / h, and hard-swish, x times that, in the operators made for them.

Four kernels become two, one of which the runtime joins with the convolution before it.
"""

from __future__ import annotations

from onnx import NodeProto, helper

from quaver.adapters.onnxrt.read.graph import Graph
from quaver.adapters.onnxrt.read.rewrites.editing import factor, is_float, maker, number, other_number, replace
from quaver.adapters.onnxrt.read.rewrites.patterns import closed, near


def recognise_hard_swish(graph: Graph) -> int:
    """Put HardSigmoid(x), or x * HardSigmoid(x), in the place of what is spelled out."""
    count = 0
    for clip in [node for node in graph.nodes if node.op_type == "Clip" and not node.domain]:
        count += _rewrite(graph, clip)
    return count


def _rewrite(graph: Graph, clip: NodeProto) -> bool:
    addition = maker(graph, clip.input[0], "Add")
    shifted = None if addition is None else other_number(graph, addition)
    height = _height(graph, clip)
    if addition is None or shifted is None or height is None or not is_float(graph, shifted[0]):
        return False
    x, shift = shifted
    product, rest = _times_x(graph, clip, x, 1 / height)
    chain = closed(graph, [addition, clip, *rest]) if rest else None
    if chain is None:
        return False
    sigmoid = helper.make_node(
        "HardSigmoid", [x], [rest[-1].output[0]], name=clip.name, alpha=1 / height, beta=shift / height
    )
    new = [sigmoid]
    if product is not None:
        sigmoid.output[0] = graph.free_name(f"{rest[-1].output[0]}.gate")
        new.append(helper.make_node("Mul", [x, sigmoid.output[0]], [rest[-1].output[0]], name=product.name))
    replace(graph, chain, new)
    return True


def _height(graph: Graph, clip: NodeProto) -> float | None:
    """The upper end of a Clip that starts at zero."""
    if len(clip.input) != 3:
        return None
    low, high = (number(graph, name, clip.input[0]) for name in clip.input[1:])
    return high if low == 0.0 and high is not None and high > 0 else None


def _times_x(graph: Graph, clip: NodeProto, x: str, wanted: float) -> tuple[NodeProto | None, list[NodeProto]]:
    """The nodes behind a Clip that divide by its height, and the product with x if it comes before or right after."""
    product, nodes, scaled, tip = None, [], False, clip.output[0]
    while not (scaled and product is not None):
        node = graph.only_reader(tip)
        found = None if node is None else factor(graph, node)
        if node is None:
            break
        if found is not None and not scaled and near(found[1], wanted):
            scaled = True
        elif product is None and node.op_type == "Mul" and sorted(node.input) == sorted([x, tip]):
            product = node
        else:
            break
        nodes.append(node)
        tip = node.output[0]
    return (product, nodes) if scaled else (None, [])
