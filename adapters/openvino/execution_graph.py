"""The execution graph: the kernels that OpenVINO made of a model, their precisions, and the ops they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.dynamic_and_weight_only import PARTS as BETWEEN_FLOATS
from quaver.adapters.onnxrt.build.integer_ops import PARTS
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.ops import BF16, FP32, INT8, Precision

# The ends of the names of implementations, and the precision they compute in.
_IMPLEMENTATIONS = {"i8": INT8, "u8": INT8, "bf16": BF16, "f32": FP32}
# Kernels that compute on integers in their int8 form. All others compute in float or only move values.
ARITHMETIC = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul", "Pooling", "Reduce"})
# Kernels of recurrent layers, which compute in float alone.
_RECURRENT = frozenset({"RNNCell", "RNNSeq"})
# Op types whose float form is a kernel of its own, in fp32 or bf16, and that have no int8 form.
FLOAT_KINDS = frozenset({"LSTM"})
# Op types whose int8 form is such a kernel.
INTEGER_KINDS = frozenset({"AveragePool", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "MatMul", "ReduceMean"})


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the execution graph.

    Attributes:
        name: OpenVINO's name of it, unique in the graph.
        kind: such as "Convolution"; "Subgraph" for several elementwise ops that were fused.
        precision: the precision it computes in; None for one that is neither int8 nor a float precision.
        reads: the precision of what it reads.
        origins: names of the nodes of the model that it comes from.
        readers: names of the kernels that read its output.
        sources: names of the kernels whose outputs it reads.
    """

    name: str
    kind: str
    precision: Precision | None
    reads: str
    origins: tuple[str, ...]
    readers: tuple[str, ...] = field(default=())
    sources: tuple[str, ...] = field(default=())


def kernels_of(compiled: Any) -> list[Kernel]:
    """Return the kernels of a compiled model, in the order in which they run."""
    return [_kernel(node) for node in compiled.get_runtime_model().get_ordered_ops()]


def _kernel(node: Any) -> Kernel:
    info = node.get_rt_info()

    def text(key: str) -> str:
        return str(info[key].astype(str)) if key in info else ""

    name, implementation = node.get_friendly_name(), text("primitiveType")
    origins = tuple(part for part in text("originalLayersNames").split(",") if part) or (name,)
    readers = dict.fromkeys(
        target.get_node().get_friendly_name() for output in node.outputs() for target in output.get_target_inputs()
    )
    sources = dict.fromkeys(source.get_node().get_friendly_name() for source in node.input_values())
    precision = _IMPLEMENTATIONS.get(implementation.rpartition("_")[2].lower())
    return Kernel(name, text("layerType"), precision, text("runtimePrecision"), origins, tuple(readers), tuple(sources))


def kernel_owners(builder: Builder, kernels: Sequence[Kernel]) -> dict[str, str]:
    """Return, for each kernel, the op it belongs to.

    A kernel of several ops belongs to the one with a weight. Quantizing a tensor belongs to the op that reads it.
    Conversions of layouts and precisions, which come from no node, belong to the op behind them, or else before them.
    """
    by_name = names_of_ops(builder)
    weighty = {unit.op.name for unit in builder.units if unit.weight is not None and not unit.is_embedding}
    owners: dict[str, str] = {}
    for kernel in kernels:
        candidates = list(_owners(kernel, by_name))
        if candidates:
            owners[kernel.name] = next((name for name in candidates if name in weighty), candidates[0])
    named = dict(owners)
    for kernel in kernels:
        if kernel.name not in named:
            around = (named[name] for name in (*kernel.readers, *kernel.sources) if name in named)
            if kernel.kind in ("Convert", "FakeQuantize", "Reorder", "Subgraph") and (owner := next(around, "")):
                owners[kernel.name] = owner
    return owners


def _owners(kernel: Kernel, by_name: Mapping[str, str]) -> Iterator[str]:
    for origin in (*kernel.origins, kernel.name):
        if (owner := find(origin, by_name)) is not None:
            yield owner


def find(name: str, by_name: Mapping[str, str]) -> str | None:
    """Return the entry of a node, from a name that OpenVINO may have extended by "/" and a part."""
    while name not in by_name:
        name, slash, _ = name.rpartition("/")
        if not slash:
            return None
    return by_name[name]


def names_of_ops(builder: Builder) -> dict[str, str]:
    """Return, by names of nodes and tensors, the op that they belong to."""
    graph, label = builder.graph, builder.label
    by_name: dict[str, str] = {}
    for unit in builder.units:
        for name in _names(builder, unit):
            by_name.setdefault(name, unit.op.name)
    for unit in builder.units:  # conversions, after all names of nodes
        for name in unit.activations:
            by_name.setdefault(label(name, "Q"), unit.op.name)
        by_name.setdefault(label(unit.output, "Q"), unit.op.name)
        by_name.setdefault(label(unit.output, "DQ"), unit.op.name)
        by_name.update((label(unit.op.name, part), unit.op.name) for part in BETWEEN_FLOATS)
        if unit.is_embedding:
            by_name.update((label(unit.output, part), unit.op.name) for part in PARTS)
    return {name: op for name, op in by_name.items() if name not in graph.constants}


def _names(builder: Builder, unit: Unit) -> Iterator[str]:
    for index in unit.nodes:
        yield builder.graph.nodes[index].name
        yield from builder.graph.nodes[index].output


def executed_precisions(builder: Builder, kernels: Sequence[Kernel]) -> dict[str, Precision]:
    """Return the precision in which each op really runs.

    An op with arithmetic of its own runs as the kernel does that has its anchor. Other ops are not in the result:
    elementwise ops compute in float either way, mostly inside other kernels, and a Concat only moves values.
    """
    anchors: dict[str, str] = {}
    units = [unit for unit in builder.units if unit.op.kind in INTEGER_KINDS | FLOAT_KINDS]
    for unit in units:
        anchors.update(dict.fromkeys(_names(builder, unit), unit.op.name))
    for unit in units:
        if unit.weight is not None and len(builder.graph.consumers.get(unit.weight, ())) == 1:
            anchors.setdefault(unit.weight, unit.op.name)
    products = {unit.op.name for unit in units if unit.op.kind == "MatMul" and unit.weight is None}
    precisions: dict[str, Precision] = {}
    for kernel in kernels:
        if kernel.kind == "Subgraph" and kernel.precision is not None:  # attention in one kernel
            inside = (op for op in _owners(kernel, anchors) if op in products)
            precisions.update(dict.fromkeys(inside, kernel.precision))
        if kernel.kind in ARITHMETIC | _RECURRENT and kernel.precision is not None:
            # A product that is fused with what follows may have lost its name; its weight has not.
            weights = (name.partition(builder.mark)[0] for name in kernel.sources)
            owners = list(_owners(kernel, anchors)) or [op for name in weights if (op := find(name, anchors))]
            for op in owners:
                precisions.setdefault(op, kernel.precision)
    return precisions
