"""A newer version of the standard operators, for the sake of one that older ones lack."""

from __future__ import annotations

import logging

import onnx

from quaver.adapters.onnxrt.read.cleaning import name_nodes, take_constants
from quaver.adapters.onnxrt.read.graph import Graph, subgraphs
from quaver.adapters.onnxrt.read.inference import light_model
from quaver.adapters.onnxrt.read.rewrites.origins import carry_names, carry_order
from quaver.adapters.onnxrt.read.rewrites.skeleton import opset_of, take_back

log = logging.getLogger(__name__)


def raised(graph: Graph, opset: int) -> Graph | None:
    """The graph in an opset that is at least this one; None where it cannot be converted.

    The converter does not look into functions and the bodies of If, Loop and Scan.
    """
    if opset_of(graph) >= opset:
        return graph
    if graph.shell.functions or any(True for node in graph.nodes for _ in subgraphs(node)):
        return None
    try:
        converted = onnx.version_converter.convert_version(light_model(graph), opset)
    except Exception as error:
        log.info("the model stays at opset %d: %s", opset_of(graph), str(error).strip().split("\n")[0])
        return None
    found = take_back(graph, converted)
    take_constants(found)
    for entry in found.shell.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = opset
    found.shell.ir_version = max(found.shell.ir_version, 8)
    found.index()
    carry_names(graph, found)
    carry_order(graph, found)
    name_nodes(found)
    return found
