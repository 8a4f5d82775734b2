"""The float graph as it should be before it is quantized: all rewrites in their order."""

from __future__ import annotations

import logging

from quaver.adapters.onnxrt.read.channelwise import fold_followers
from quaver.adapters.onnxrt.read.cleaning import drop_idle, drop_unread
from quaver.adapters.onnxrt.read.graph import Graph
from quaver.adapters.onnxrt.read.inference import infer_types
from quaver.adapters.onnxrt.read.rewrites.channels_first import move_transposes
from quaver.adapters.onnxrt.read.rewrites.checking import differs
from quaver.adapters.onnxrt.read.rewrites.denormals import flush_denormals
from quaver.adapters.onnxrt.read.rewrites.fold_forward import fold_into_next_layer
from quaver.adapters.onnxrt.read.rewrites.gelu import OPSET as GELU_OPSET
from quaver.adapters.onnxrt.read.rewrites.gelu import find_gelu, recognise_gelu
from quaver.adapters.onnxrt.read.rewrites.hard_sigmoid import clip_behind_layers
from quaver.adapters.onnxrt.read.rewrites.hard_swish import recognise_hard_swish
from quaver.adapters.onnxrt.read.rewrites.layer_norm import OPSET as NORM_OPSET
from quaver.adapters.onnxrt.read.rewrites.layer_norm import has_layer_norm, recognise_layer_norm
from quaver.adapters.onnxrt.read.rewrites.norm_behind_relu import fold_norm_behind_relu
from quaver.adapters.onnxrt.read.rewrites.opset import raised
from quaver.adapters.onnxrt.read.rewrites.prelu import spell_out_prelu
from quaver.adapters.onnxrt.read.rewrites.runtime import basic_level
from quaver.adapters.onnxrt.read.rewrites.skeleton import opset_of

log = logging.getLogger(__name__)

# Which rewrites were applied, and how often.
Applied = tuple[tuple[str, int], ...]


def optimise(given: Graph, clean: Graph) -> tuple[Graph, Applied]:
    """The clean graph rewritten, and what was done. It is the clean graph itself if that differs from the one given."""
    graph, applied = rewrite(clean.copy())
    if not applied:
        return clean, ()
    difference = differs(given, graph)
    if difference is not None:
        log.warning("the float graph is left as it is: after %s, %s", in_words(applied), difference)
        return clean, ()
    log.info("optimised the float graph: %s", in_words(applied))
    return graph, applied


def in_words(applied: Applied) -> str:
    """The rewrites for a line of text."""
    return ", ".join(f"{name} ({count})" for name, count in applied)


def rewrite(graph: Graph) -> tuple[Graph, Applied]:
    """Apply all rewrites, each where it fits."""
    counts: dict[str, int] = {}
    infer_types(graph)
    graph = _new_enough(graph, counts)
    before = len(graph.nodes)
    basic = basic_level(graph)
    if basic is not None:
        graph = basic
        drop_idle(graph)
        graph.index()
        counts["runtime's basic level"] = before - len(graph.nodes)
        infer_types(graph)
    counts["channels first"] = move_transposes(graph)
    counts["Gelu"] = recognise_gelu(graph) if opset_of(graph) >= GELU_OPSET else 0
    counts["LayerNormalization"] = recognise_layer_norm(graph) if opset_of(graph) >= NORM_OPSET else 0
    counts["hard-swish"] = recognise_hard_swish(graph)
    counts["hard-sigmoid as Clip"] = clip_behind_layers(graph)
    counts["into the layer before"] = fold_followers(graph, scalars=True)
    counts["through Relu"] = fold_norm_behind_relu(graph)
    counts["into the next layer"] = fold_into_next_layer(graph)
    counts["PRelu"] = spell_out_prelu(graph)
    counts["denormal weights"] = flush_denormals(graph)
    drop_unread(graph)
    return graph, tuple((name, count) for name, count in counts.items() if count)


def _new_enough(graph: Graph, counts: dict[str, int]) -> Graph:
    """In an opset that has what can be recognised."""
    needed = GELU_OPSET if find_gelu(graph) else NORM_OPSET if has_layer_norm(graph) else 0
    if opset_of(graph) >= needed:
        return graph
    newer = raised(graph, needed)
    if newer is None:
        return graph
    counts[f"opset {needed}"] = 1
    infer_types(newer)
    return newer
