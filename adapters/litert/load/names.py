"""Names of ops that a Keras user recognizes: the layer's name, where the name of a tensor contains it.

The converter names a tensor after the graph nodes that were fused into it, joined by ";", each with its scopes:
`functional_1/re_lu_1/Relu6;functional_1/stem_1/convolution`. Keras 3 opens the scope of a layer twice, so that the
second one, which holds the layer's nodes, always has a number appended: the layer above is `stem`.

"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Path = tuple[str, ...]

_NUMBERED = re.compile(r"(.+)_\d+")
_PORT = re.compile(r":\d+$")
_TRAILING = re.compile(r"\d+$")
# Scopes that remain of inlined function calls.
_CALL = re.compile(r"(Stateful)?PartitionedCall(_\d+)?")
# Names that say nothing about the tensor's layer.
_EMPTY = re.compile(r"Identity(_\d+)?|output_\d+|arith\.constant\d*|tfl\..*|\d*")
# Scopes that ops with several nodes open, inside the layer's.
_INNER = {"Tensordot", "einsum", "batchnorm", "moments", "Gelu"}
# The node that does the work in an operator made of several.
_WORK = {
    "CONV_2D": {"convolution", "Conv2D", "Conv1D", "conv2d", "conv1d"},
    "DEPTHWISE_CONV_2D": {"depthwise", "DepthwiseConv2d", "DepthwiseConv2dNative"},
    "FULLY_CONNECTED": {"MatMul", "Einsum", "BatchMatMulV2", "BatchMatMul"},
    "BATCH_MATMUL": {"MatMul", "Einsum", "BatchMatMulV2", "BatchMatMul"},
    "TRANSPOSE_CONV": {"conv_transpose", "conv2d_transpose", "Conv2DBackpropInput"},
}


@dataclass(frozen=True, slots=True)
class OperatorNaming:
    """The parts of an operator that its name is made from.

    Attributes:
        kind: the operator's type.
        outputs: names of the tensors it writes.
        weight: name of the constant it multiplies with; empty if there is none.
        computes: whether it does arithmetic, in contrast to moving values or computing shapes.
    """

    kind: str
    outputs: Sequence[str]
    weight: str
    computes: bool


def op_names(operators: Sequence[OperatorNaming]) -> list[str]:
    """Return a unique name for each operator, the same in every process."""
    parts = [[_path(part) for name in (*op.outputs, op.weight) for part in name.split(";")] for op in operators]
    layers = _LayerScopes([path for paths in parts for path in paths if path])
    places = [layers.split(_working_node(op.kind, paths)) for op, paths in zip(operators, parts, strict=True)]
    return _unique_names(_shortened(operators, places))


def _path(part: str) -> Path:
    steps = [step for step in _PORT.sub("", part).split("/") if step and not _CALL.fullmatch(step)]
    if not steps or (len(steps) == 1 and _EMPTY.fullmatch(steps[0])):
        return ()
    return tuple(steps)


def _working_node(kind: str, paths: Iterable[Path]) -> Path:
    """Return the node that does the work in an operator made of several; else the first."""
    named_paths = [path for path in paths if path]
    work = _WORK.get(kind, set())
    return next(
        (path for path in named_paths if {path[-1], _TRAILING.sub("", path[-1])} & work),
        named_paths[0] if named_paths else (),
    )


class _LayerScopes:
    """Finds out which scopes are layers, from all the names of a model."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._scopes: dict[Path, set[str]] = defaultdict(set)
        for path in paths:
            for depth in range(len(path) - 1):
                self._scopes[path[:depth]].add(path[depth])
        tops = self._scopes[()]
        # A single scope around everything is the model's own, which says nothing about layers.
        self._root: Path = tuple(tops) if len(tops) == 1 and self._scopes[tuple(tops)] else ()
        inside = self._scopes[self._root] if self._root else tops
        self._keras = bool(inside) and all(_NUMBERED.fullmatch(step) for step in (*self._root, *inside))

    def split(self, path: Path) -> tuple[Path, str]:
        """Return the layer that a node belongs to, and the rest of its name."""
        if self._root and path[: len(self._root)] == self._root and len(path) > len(self._root):
            base, steps = self._root, path[len(self._root) :]
        else:
            base, steps = (), path
        if not steps:
            return (), ""
        layer: list[str] = []
        for depth, step in enumerate(steps[:-1]):
            plain = self._layer(base + steps[:depth], step)
            if plain is None:
                break
            layer.append(plain)
        return tuple(layer), "/".join(steps[len(layer) :])

    def _layer(self, parent: Path, step: str) -> str | None:
        if step in _INNER:
            return None
        if not self._keras:
            return step
        match = _NUMBERED.fullmatch(step)
        if match is None:
            return None
        siblings = self._scopes[parent]
        plain = match.group(1)
        # A scope that was opened again, such as einsum_1 next to einsum, is not a layer.
        return None if plain in siblings and not all(map(_NUMBERED.fullmatch, siblings)) else plain


def _shortened(operators: Sequence[OperatorNaming], places: Sequence[tuple[Path, str]]) -> list[str]:
    """Return the layer's name alone where it is enough to identify the operator."""
    weighty = Counter(layer for op, (layer, _) in zip(operators, places, strict=True) if op.weight)
    busy = Counter(layer for op, (layer, _) in zip(operators, places, strict=True) if op.computes)
    names = []
    for op, (layer, leaf) in zip(operators, places, strict=True):
        alone = weighty[layer] == 1 if op.weight else op.computes and not weighty[layer] and busy[layer] == 1
        steps = layer if layer and alone else (*layer, leaf)
        names.append("/".join(step for step in steps if step) or op.kind.lower())
    return names


def _unique_names(names: Sequence[str]) -> list[str]:
    used: set[str] = set()
    result = []
    for name in names:
        fresh, count = name, 2
        while fresh in used:
            fresh, count = f"{name}:{count}", count + 1
        used.add(fresh)
        result.append(fresh)
    return result
