"""ONNX Runtime's basic optimisations, applied before QuantizeLinear/DequantizeLinear pairs prevent them.

The basic level writes standard operators: padding goes into convolutions, constants are folded, idle ops are dropped.
"""

from __future__ import annotations

import logging

import onnx
import onnxruntime as ort
from onnx import ModelProto

from quaver.adapters.onnxrt.load.cleanup import name_nodes
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.load.shape_inference import restore_constants, without_large_constants
from quaver.adapters.onnxrt.optimize.node_names import restore_names, restore_order
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError
from quaver.files.temporary import temporary_folder

log = logging.getLogger(__name__)

# Optimisers that run later, around int8 ops as well. Here they would remove ops of the user, share constants that a
# configuration may quantize in different ways, or put Reshapes around a MatMul.
_LATER = (
    "CommonSubexpressionElimination", "ConstantSharing", "MatMulAddFusion", "TransposeOptimizer",
)  # fmt: skip
# Judgement: folding may enlarge constants (a mask that is written out) by 10 % and 1 MB, not more.
_GROWTH, _FREE_BYTES = 1.1, 2**20


def basic_level(graph: Graph) -> Graph | None:
    """Return the graph after the runtime's basic optimisations; None if it cannot do them."""
    if graph.shell.functions:
        log.info("the model has functions of its own, which the runtime would dissolve: its basic level is left out")
        return None
    model = without_large_constants(graph, _foldable(graph))
    for later in (_LATER, (*_LATER, "ConstantFolding")):
        optimised = _optimised(model, later)
        if optimised is None:
            return None
        optimised_graph = restore_constants(graph, optimised)
        if _bytes(optimised_graph) <= _bytes(graph) * _GROWTH + _FREE_BYTES:
            break
    domains = {node.domain for node in graph.nodes}
    if any(node.domain not in domains | {"", "ai.onnx"} for node in optimised_graph.nodes):
        return None
    restore_names(graph, optimised_graph)
    restore_order(graph, optimised_graph)
    name_nodes(optimised_graph)
    return optimised_graph


def _optimised(model: ModelProto, later: tuple[str, ...]) -> ModelProto | None:
    with temporary_folder() as folder:
        path = folder / "optimised.onnx"
        options = sessions.options(1)
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(later))
        try:
            sessions.create(model.SerializeToString(), options)
        except (BuildError, ValueError) as error:  # the operator needs a library, or the message is too large
            log.info("the runtime's basic optimisations are left out: %s", str(error).splitlines()[0])
            return None
        return onnx.load_model(path)


def _foldable(graph: Graph) -> set[str]:
    """Return the constants that meet only other constants: the runtime folds such parts, and needs their values."""
    constant_names = set(graph.constants)
    needed: set[str] = set()
    for node in graph.nodes:
        names = [name for name in node.input if name]
        if names and all(name in constant_names for name in names):
            constant_names.update(node.output)
            needed.update(name for name in names if name in graph.constants)
    return needed


def _bytes(graph: Graph) -> int:
    return sum(array.nbytes for array in graph.constants.values())
