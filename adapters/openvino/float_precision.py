"""The float part of a model in OpenVINO: bf16 where processor and model allow it, fp32 for the ops that need it."""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.files.temporary import temporary_folder
from quaver.processors import has_bf16
from quaver.provenance import FP32_NODES, INFERENCE_PRECISION

# OpenVINO's names of precisions, by those of the property in a model.
HINTS: Mapping[str, str] = {"bf16": "bf16"}
# Where OpenVINO stores the properties of an ONNX model.
_SECTION = "framework"
# Op types whose float kernels are much faster in bf16. All other float ops follow them.
BF16_KINDS = frozenset({"Conv", "ConvTranspose", "Gemm", "LSTM", "MatMul"})
# With the hint bf16, OpenVINO leaves everything in fp32 that lies between the last of these and the outputs.
_END_OF_TAIL = frozenset({"Conv", "GRU", "Gemm", "LSTM", "MatMul", "RNN", "Resize", "RoiAlign", "Upsample"})
_RECURRENT = frozenset({"GRUSequence", "LSTMSequence", "RNNSequence"})
# The attribute by which OpenVINO's own format keeps an op in the precision that it has.
_KEEPS_PRECISION = '<attribute name="precise" version="0" />'
_LAYER = re.compile(r'<layer id="\d+" name="([^"]*)"[^>]*[^/]>')


@functools.cache
def bf16_is_offered() -> bool:
    """Return True if this processor multiplies bf16. Others emulate it, which is slower than fp32."""
    return has_bf16()


def tail_nodes(graph: Graph) -> frozenset[int]:
    """Return the indices of the nodes that OpenVINO runs in fp32 whatever the hint: those just before the outputs."""
    reached = {value.name for value in graph.outputs}
    tail = set()
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        if node.op_type not in _END_OF_TAIL and reached.intersection(node.output):
            tail.add(index)
            reached.update(node.input)
    return frozenset(tail)


def join_products(graph: Graph, units: Sequence[Unit]) -> list[Unit]:
    """Return the units, with each attention block as one: OpenVINO may run its products and Softmax in one kernel.

    Products of two activations belong together where one reads the other through ops without weights.
    """
    products = {unit.anchor: unit for unit in units if unit.op.kind == "MatMul" and unit.weight is None}
    first_of: dict[int, int] = {}
    for anchor in sorted(products):
        before = _product_before(graph, anchor, products)
        first_of[anchor] = anchor if before is None else first_of[before]
    joined = []
    for unit in units:
        if unit.anchor not in products:
            joined.append(unit)
        elif first_of[unit.anchor] == unit.anchor:
            block = [products[anchor] for anchor in sorted(products) if first_of[anchor] == unit.anchor]
            names = tuple(name for part in block for name in part.op.nodes)
            nodes = tuple(index for part in block for index in part.nodes)
            joined.append(replace(unit, op=replace(unit.op, nodes=names), nodes=nodes, output=block[-1].output))
    return joined


def _product_before(graph: Graph, anchor: int, products: Collection[int]) -> int | None:
    """Return the product whose result a product reads through ops without weights; None if there is none."""
    waiting, visited = list(graph.nodes[anchor].input), set()
    while waiting:
        index = graph.producers.get(waiting.pop())
        if index is None or index in visited:
            continue
        visited.add(index)
        if index in products:
            return index
        if graph.nodes[index].op_type not in _END_OF_TAIL:
            waiting.extend(graph.nodes[index].input)
    return None


def name_recurrent_layers(model: Any) -> None:
    """Name each recurrent layer after its node of the ONNX file: OpenVINO gives that name to what follows the layer."""
    for layer in model.get_ordered_ops():
        if layer.get_type_name() in _RECURRENT:
            readers = [target.get_node() for output in layer.outputs() for target in output.get_target_inputs()]
            if readers:
                name = re.sub(r"\.[0-9]+$", "", readers[0].get_friendly_name())
                layer.set_friendly_name(f"{name}/{layer.get_type_name()}")


def hint_of(model: Any) -> str:
    """Return the value of `INFERENCE_PRECISION_HINT` that a model was made for."""
    return HINTS.get(_property(model, INFERENCE_PRECISION), "f32")


def prepare(core: Any, package: Any, model: Any) -> Any:
    """Name recurrent layers, and return the model with the nodes marked that stay fp32 although the hint is bf16.

    Only OpenVINO's own format has such a mark, so the model is written in it and read again.
    """
    name_recurrent_layers(model)
    names = fp32_nodes_of(model)
    if not names or hint_of(model) == "f32":
        return model
    with temporary_folder() as folder:
        path = folder / "marked.xml"
        save_as_xml(package, model, path)
        return core.read_model(path)


def save_as_xml(package: Any, model: Any, path: Path) -> None:
    """Write a model in OpenVINO's own format, with the nodes marked that stay fp32 although others run in bf16."""
    names = frozenset(fp32_nodes_of(model))
    if names:
        _guard_products(package, model, names)
    package.save_model(model, path, compress_to_fp16=False)
    if names:
        path.write_text(_marked(path.read_text(encoding="utf-8"), names), encoding="utf-8")


def _guard_products(package: Any, model: Any, nodes: Collection[str]) -> None:
    """Keep marked products from being fused with layers behind them so that the mark is lost.

    A layer that returns its input is put between: a maximum with the lowest float before an addition, and a roll by
    nothing before a layer that quantizes, because an attention block takes everything else into its kernel.
    """
    functions = package.opset13
    lowest = functions.constant(np.finfo(np.float32).min, np.float32)
    nothing, first_axis = (functions.constant([0], np.int64) for _ in range(2))
    for layer in model.get_ordered_ops():
        if layer.get_type_name() != "MatMul" or not _is_part_of(layer.get_friendly_name(), nodes):
            continue
        output = layer.output(0)
        targets = list(output.get_target_inputs())
        kinds = {target.get_node().get_type_name() for target in targets}
        if "FakeQuantize" in kinds:
            guard = functions.roll(output, nothing, first_axis)
        elif kinds & {"Add", "Multiply"}:  # a Gemm multiplies with its factor before it adds
            guard = functions.maximum(output, lowest)
        else:
            continue
        guard.set_friendly_name(f"{layer.get_friendly_name()}/guard")
        for target in targets:
            target.replace_source_output(guard.output(0))


def fp32_nodes_of(model: Any) -> list[str]:
    """Return the nodes that a model keeps in fp32 although others run in bf16."""
    names: list[str] = json.loads(_property(model, FP32_NODES) or "[]")
    return names


def _marked(text: str, nodes: Collection[str]) -> str:
    parts, end = [], 0
    for layer in _LAYER.finditer(text):
        if _is_part_of(html.unescape(layer[1]), nodes):
            closing = text.index("</layer>", layer.end())
            at = text.find("<rt_info>", layer.end(), closing)
            start = layer.end() if at < 0 else at + len("<rt_info>")
            mark = f"<rt_info>{_KEEPS_PRECISION}</rt_info>" if at < 0 else _KEEPS_PRECISION
            parts += [text[end:start], mark]
            end = start
    return "".join([*parts, text[end:]])


def _is_part_of(layer: str, names: Collection[str]) -> bool:
    """Return True for a node, or for a layer that OpenVINO made of it: it extends the name by "/" and a part."""
    while layer not in names:
        layer, slash, _ = layer.rpartition("/")
        if not slash:
            return False
    return True


def _property(model: Any, name: str) -> str:
    path = [_SECTION, name]
    return str(model.get_rt_info(path).astype(str)) if model.has_rt_info(path) else ""
