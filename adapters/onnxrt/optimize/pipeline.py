"""The pipeline: all rewrites of the float graph, in their order.

Every rewrite can be left out by its name. One that raises is skipped: the model is slower without it, but still right.
`optimize/verify.py` finds the rewrites that change the outputs of a model.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import onnx

from quaver.adapters.onnxrt.load.cleanup import (
    constants_from_nodes,
    drop_identity_arithmetic,
    drop_unread_constants,
    fold_constants,
    fuse_bias,
    name_nodes,
)
from quaver.adapters.onnxrt.load.graph import Graph, subgraphs
from quaver.adapters.onnxrt.load.module_names import MODULE_NAMES
from quaver.adapters.onnxrt.load.shape_inference import infer_types, restore_constants, without_large_constants
from quaver.adapters.onnxrt.optimize.activations import clip_behind_layers, recognise_hard_swish, spell_out_prelu
from quaver.adapters.onnxrt.optimize.batch_norm import fold_norm_behind_relu
from quaver.adapters.onnxrt.optimize.denormals import flush_denormals
from quaver.adapters.onnxrt.optimize.few_channels import fill_blocks
from quaver.adapters.onnxrt.optimize.fold_affine import fold_into_next_layer
from quaver.adapters.onnxrt.optimize.gelu import OPSET as GELU_OPSET
from quaver.adapters.onnxrt.optimize.gelu import find_gelu, recognise_gelu
from quaver.adapters.onnxrt.optimize.layer_norm import OPSET as NORM_OPSET
from quaver.adapters.onnxrt.optimize.layer_norm import has_layer_norm, recognise_layer_norm
from quaver.adapters.onnxrt.optimize.layers import fold_followers
from quaver.adapters.onnxrt.optimize.node_names import restore_names, restore_order
from quaver.adapters.onnxrt.optimize.ort_basic import basic_level
from quaver.adapters.onnxrt.optimize.pad_layers import fold_padding
from quaver.adapters.onnxrt.optimize.past_moves import fold_past_moves
from quaver.adapters.onnxrt.optimize.slow_kernels import OPSET as SPELLED_OPSET
from quaver.adapters.onnxrt.optimize.slow_kernels import (
    simplify_nearest,
    spell_out_elu,
    spell_out_powers,
    spell_out_softmax,
    spell_out_softplus,
    split_large_pools,
)
from quaver.adapters.onnxrt.optimize.transposes import cancel_pairs, move_transposes
from quaver.adapters.onnxrt.optimize.wide_kernels import turn_columns, widen_signals

log = logging.getLogger(__name__)


def with_newer_opset(graph: Graph, opset: int) -> Graph | None:
    """Return the graph in an opset that is at least this one; None if it cannot be converted.

    The converter does not look into functions and the bodies of If, Loop and Scan.
    """
    if graph.opset >= opset:
        return graph
    if graph.shell.functions or any(True for node in graph.nodes for _ in subgraphs(node)):
        return None
    try:
        converted = onnx.version_converter.convert_version(without_large_constants(graph), opset)
    except Exception as error:
        log.info("the model stays at opset %d: %s", graph.opset, str(error).strip().split("\n")[0])
        return None
    newer = restore_constants(graph, converted)
    constants_from_nodes(newer)
    for entry in newer.shell.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = opset
    newer.shell.ir_version = max(newer.shell.ir_version, 8)
    newer.index()
    restore_names(graph, newer)
    restore_order(graph, newer)
    name_nodes(newer)
    return newer


# Names of rewrites, and how often each was applied.
Applied = tuple[tuple[str, int], ...]
# A function that changes a graph in place or returns a new one, and returns the number of places it changed.
Step = Callable[[Graph], tuple[Graph, int]]


@dataclass(frozen=True, slots=True)
class RewriteSummary:
    """The rewrites of one float graph.

    Attributes:
        applied: the rewrites that make the graph faster, and how often each was applied.
        active: names of all rewrites that changed something, in their order; those that only tidy up too.
        failed: names of rewrites that raised and were skipped.
    """

    applied: Applied = ()
    active: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def rewrite(graph: Graph, optimise_float: bool = True, left_out: Collection[str] = ()) -> tuple[Graph, RewriteSummary]:
    """Return the graph ready to be quantized, and a summary of its rewrites.

    Args:
        graph: a graph whose Constant nodes have become constants. It may be changed.
        optimise_float: apply the rewrites that make the graph faster, too.
        left_out: names of rewrites that must not be applied.
    """
    runner = _Runner(left_out)
    graph, _ = runner.run(graph, _TIDYING)
    name_nodes(graph)
    followers = functools.partial(fold_followers, scalars=not optimise_float)
    graph, _ = runner.run(graph, [(_FOLLOWERS, _in_place(followers))])
    drop_unread_constants(graph)
    applied: Applied = ()
    if optimise_float:
        infer_types(graph)
        faster, applied = runner.run(graph.copy(), _speed_rewrites())
        drop_unread_constants(faster)
        if applied:
            graph = faster
            log.info("optimised the float graph: %s", rewrites_text(applied))
    infer_types(graph)
    fuse = functools.partial(fuse_bias, any_rank=optimise_float)
    graph, _ = runner.run(graph, [(_BIAS, _in_place(fuse))])
    drop_unread_constants(graph)
    return graph, RewriteSummary(applied, tuple(runner.active), tuple(runner.failed))


def rewrite_names() -> list[str]:
    """Return the names of all rewrites, in the order in which they are applied."""
    return [*(name for name, _ in _TIDYING), _FOLLOWERS, *speed_rewrite_names(), _BIAS]


def speed_rewrite_names() -> list[str]:
    """Return the names of the rewrites that only make a graph faster; the others make weights visible."""
    return [name for name, _ in _speed_rewrites()]


def rewrites_after(ops_version: int) -> list[str]:
    """Return the names of the rewrites that runs with this version of the ops did not have (see `OPS_VERSION`)."""
    return [] if ops_version >= _SINCE_VERSION_3[0] else list(_SINCE_VERSION_3[1])


def rewrites_text(applied: Applied) -> str:
    """Return the rewrites as text for one line."""
    return ", ".join(f"{name} ({count})" for name, count in applied)


def _speed_rewrites() -> list[tuple[str, Step]]:
    """Return the rewrites that make a float graph faster."""
    return [
        ("newer opset", _newer_opset),
        ("runtime's basic level", _basic_level),
        ("channels first", _in_place(move_transposes)),
        ("Gelu", _in_place(recognise_gelu, GELU_OPSET)),
        ("LayerNormalization", _in_place(recognise_layer_norm, NORM_OPSET)),
        ("hard-swish", _in_place(recognise_hard_swish)),
        ("hard-sigmoid as Clip", _in_place(clip_behind_layers)),
        ("padding", _in_place(fold_padding, SPELLED_OPSET)),
        ("Transpose pairs", _in_place(cancel_pairs, SPELLED_OPSET)),
        ("into the layer before", _in_place(functools.partial(fold_followers, scalars=True))),
        ("through Relu", _in_place(fold_norm_behind_relu)),
        ("into the next layer", _in_place(fold_into_next_layer)),
        ("past moves", _in_place(fold_past_moves, SPELLED_OPSET)),
        ("tall kernels", _in_place(turn_columns, SPELLED_OPSET)),
        ("signals as images", _in_place(widen_signals, SPELLED_OPSET)),
        ("PRelu", _in_place(spell_out_prelu)),
        ("Elu", _in_place(spell_out_elu, SPELLED_OPSET)),
        ("Softplus and Mish", _in_place(spell_out_softplus, SPELLED_OPSET)),
        ("powers", _in_place(spell_out_powers, SPELLED_OPSET)),
        ("Softmax of channels", _in_place(spell_out_softmax, SPELLED_OPSET)),
        ("nearest Resize", _in_place(simplify_nearest, SPELLED_OPSET)),
        ("large MaxPool", _in_place(split_large_pools, SPELLED_OPSET)),
        ("few channels", _in_place(fill_blocks, SPELLED_OPSET)),
        ("denormal weights", _in_place(flush_denormals)),
    ]


class _Runner:
    """Applies rewrites in order, each to a copy, so that one that raises leaves no trace."""

    def __init__(self, left_out: Collection[str]) -> None:
        self._left_out = frozenset(left_out)
        self.active: list[str] = []
        self.failed: list[str] = []

    def run(self, graph: Graph, steps: Sequence[tuple[str, Step]]) -> tuple[Graph, Applied]:
        """Return the graph after these steps, and how often each was applied."""
        counts: dict[str, int] = {}
        for name, step in steps:
            if name in self._left_out:
                continue
            try:
                changed, count = step(graph.copy())
            except Exception as error:
                reason = str(error).strip().partition("\n")[0][:200]
                log.warning("the rewrite %r fails on this model and is skipped: %s", name, reason)
                self.failed.append(name)
                continue
            graph, counts[name] = changed, count
            if count:
                self.active.append(name)
        return graph, tuple((name, count) for name, count in counts.items() if count)


def _in_place(change: Callable[[Graph], int], oldest_opset: int = 0) -> Step:
    """Make a step of a function that changes a graph, for models of this opset or newer."""

    def step(graph: Graph) -> tuple[Graph, int]:
        return graph, change(graph) if graph.opset >= oldest_opset else 0

    return step


def _basic_level(graph: Graph) -> tuple[Graph, int]:
    before, basic = len(graph.nodes), basic_level(graph)
    if basic is None:
        return graph, 0
    drop_identity_arithmetic(basic)
    infer_types(basic)
    return basic, before - len(basic.nodes)


def _newer_opset(graph: Graph) -> tuple[Graph, int]:
    """Convert the graph to an opset with the operators that can be recognised in it."""
    needed = GELU_OPSET if find_gelu(graph) else NORM_OPSET if has_layer_norm(graph) else 0
    newer = with_newer_opset(graph, needed) if graph.opset < needed else None
    if newer is None:
        return graph, 0
    infer_types(newer)
    return newer, 1


_TIDYING: list[tuple[str, Step]] = [
    ("constant folding", _in_place(fold_constants)),
    ("idle ops", _in_place(drop_identity_arithmetic)),
]
# The version of the ops that these rewrites came with.
_SINCE_VERSION_3 = (
    3, ("Elu", "Softplus and Mish", "powers", "Softmax of channels", "nearest Resize", "large MaxPool",
        "padding", "Transpose pairs", "past moves",
        "tall kernels", "signals as images", "few channels", MODULE_NAMES),
)  # fmt: skip
_FOLLOWERS, _BIAS = "into convolutions", "bias into product"
