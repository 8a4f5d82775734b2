"""What ONNX Runtime itself fuses in a float graph, done before Quantize/Dequantize pairs keep it from it.

Its basic level writes standard operators: padding into convolutions, constants folded, what does nothing dropped.
"""

from __future__ import annotations

import logging

import onnx
import onnxruntime as ort
from onnx import ModelProto

from quaver.adapters.onnxrt.load.cleanup import name_nodes
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.load.shape_inference import without_large_constants
from quaver.adapters.onnxrt.load.skeleton import restore_constants
from quaver.adapters.onnxrt.optimize.node_names import restore_names, restore_order
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError
from quaver.files.temporary import temporary_folder

log = logging.getLogger(__name__)

# Left to the runtime, which does these around int8 ops as well: they make ops of the user's disappear, share constants
# that a config may quantize each in its own way, or put Reshapes around a MatMul.
_LATER = (
    "CommonSubexpressionElimination", "ConstantSharing", "MatMulAddFusion", "TransposeOptimizer",
)  # fmt: skip
# Constants may grow by folding (a mask spelled out), but not by more than this.
_GROWTH, _FREE_BYTES = 1.1, 2**20


def basic_level(graph: Graph) -> Graph | None:
    """The graph after the runtime's basic optimisations, or None where it cannot do them."""
    if graph.shell.functions:
        log.info("the model has functions of its own, which the runtime would dissolve: its basic level is left out")
        return None
    model = without_large_constants(graph, _foldable(graph))
    for later in (_LATER, (*_LATER, "ConstantFolding")):
        optimised = _optimised(model, later)
        if optimised is None:
            return None
        found = restore_constants(graph, optimised)
        if _bytes(found) <= _bytes(graph) * _GROWTH + _FREE_BYTES:
            break
    domains = {node.domain for node in graph.nodes}
    if any(node.domain not in domains | {"", "ai.onnx"} for node in found.nodes):
        return None
    restore_names(graph, found)
    restore_order(graph, found)
    name_nodes(found)
    return found


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
        except (BuildError, ValueError) as error:  # an operator of a library that has to be registered, or too large
            log.info("the runtime's basic optimisations are left out: %s", str(error).splitlines()[0])
            return None
        return onnx.load_model(path)


def _foldable(graph: Graph) -> set[str]:
    """Constants that only other constants meet: the runtime computes such parts, and needs their values."""
    known = set(graph.constants)
    needed: set[str] = set()
    for node in graph.nodes:
        names = [name for name in node.input if name]
        if names and all(name in known for name in names):
            known.update(node.output)
            needed.update(name for name in names if name in graph.constants)
    return needed


def _bytes(graph: Graph) -> int:
    return sum(array.nbytes for array in graph.constants.values())
