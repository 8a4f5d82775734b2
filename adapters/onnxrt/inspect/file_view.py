"""The view of a quantized file, with or without the float model it was made from."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from onnx import NodeProto

from quaver.adapters.abilities import SupportsProfiling, require
from quaver.adapters.base import Adapter
from quaver.adapters.data import count_samples
from quaver.adapters.inspection import ModelView, StandaloneView
from quaver.adapters.onnxrt.build.blocks import is_transposed
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.inspect.channel_axes import (
    channel_axis,
    movement_kinds,
    upstream,
    weight_axes,
    why_one_scale,
)
from quaver.adapters.onnxrt.inspect.local_runs import RecordedTensor, record_branches
from quaver.adapters.onnxrt.inspect.matching import MatchedTensor, match_op
from quaver.adapters.onnxrt.inspect.other_nodes import OtherNode, other_branches, other_nodes_of_file
from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.inspect.replay import file_branches
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.options import TimingOptions
from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.errors import ModelError
from quaver.introspection import (
    ActivationContext,
    LocalRun,
    OpContext,
    OpWeight,
    QuantizedOp,
    QuantizedPair,
    QuantizedRun,
    StandaloneRun,
    UntunedOp,
)
from quaver.ops import FLOAT, FP32, INT4, INT8, Precision, QuantConfig
from quaver.types import Feed, ModelLike

log = logging.getLogger(__name__)


class FileView(ModelView):
    """A quantized file of any tool, beside the float model it was made from."""

    def __init__(self, adapter: Adapter, source: ModelLike, builder: Builder, threads: int) -> None:
        super().__init__(adapter, QuantConfig((unit.op.name, FLOAT) for unit in builder.units))
        self._builder, self._threads = builder, threads
        self._file = QuantizedFile(source)
        self._check_inputs()

    def _check_inputs(self) -> None:
        float_tensor, file_tensor = [spec.name for spec in self._adapter.inputs], list(self._file.inputs())
        if sorted(float_tensor) != sorted(file_tensor):
            raise ModelError(
                f"the quantized model takes {', '.join(file_tensor)} and the float model {', '.join(float_tensor)}: "
                "it was made from another model"
            )

    @functools.cached_property
    def precisions(self) -> Mapping[str, str]:
        precisions = {unit.op.name: self._precision(unit) for unit in self._builder.units}
        if not any(Precision(precision).quantized for precision in precisions.values()):
            log.warning("no op of the quantized model runs in int8 with fixed scales: is it the right file?")
        return precisions

    def _precision(self, unit: Unit) -> str:
        node = self._file.node_of(unit)
        bits = self._file.bits_in_blocks(node)
        if bits is not None:
            return str(INT4 if bits == INT4.bits else INT8)
        return str(INT8 if self._file.is_int8(unit, node) else FP32)

    @functools.cached_property
    def _nodes(self) -> dict[str, NodeProto]:
        """By op, the node of the file that does its arithmetic, if the file builds the op as the float model does."""
        nodes = {}
        for unit in self._builder.units:
            node = self._file.matching_node(unit, self._outputs(unit))
            if node is not None:
                nodes[unit.op.name] = node
        missing = len(self._builder.units) - len(nodes)
        if missing:
            log.warning(
                "%d of %d ops are not found in the quantized model, or are built otherwise there (a BatchNormalization "
                "that was not folded?); of these only outputs are compared",
                missing,
                len(self._builder.units),
            )
        return nodes

    def _outputs(self, unit: Unit) -> list[str]:
        """Return the outputs of an op's nodes, that of the last node first."""
        return [self._builder.graph.nodes[index].output[0] for index in reversed(unit.nodes)]

    @functools.cached_property
    def _matches(self) -> dict[str, MatchedTensor]:
        """By op, where it ends in both models, as far as the file has it."""
        matches = {}
        for unit in self._builder.units:
            match = match_op(self._builder.graph, unit, self._file)
            if match is not None:
                matches[unit.op.name] = match
        if not matches:
            raise ModelError("no op of the float model is found in the quantized one: it was made from another model")
        return matches

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        trunk, results = file_branches(self._builder, self._file, self._nodes, self._matches)
        other_nodes = {name: self._others[name] for name in ops if name in self._others}
        results |= other_branches(trunk, other_nodes)
        ends = {name: self._matches[name].float_tensor for name in ops if name in self._matches}
        ends |= {name: other.output for name, other in other_nodes.items()}
        return record_branches(trunk, results, ops, tensors, self._threads, ends)

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        places = {name: point.file_tensor for name, point in self._matches.items()}
        places |= {name: other.file_tensor for name, other in self._others.items()}
        recorded = {name: self._file.recorded(places[name]) for name in ops if name in places}
        output_names = self._file.outputs()
        names = list(dict.fromkeys([*output_names, *(tensor.tensor for tensor in recorded.values())]))
        session = sessions.create(self._file.with_outputs(recorded.values()), sessions.options(self._threads))

        def run(feed: Feed) -> QuantizedRun:
            values = dict(zip(names, session.run(names, feed), strict=True))
            return QuantizedRun(
                {name: tensor.of(values) for name, tensor in recorded.items()}, [values[name] for name in output_names]
            )

        return run

    @functools.cached_property
    def _others(self) -> dict[str, OtherNode]:
        return other_nodes_of_file(self._builder, self._file)

    def others(self) -> Mapping[str, UntunedOp]:
        return {name: other.to_untuned_op() for name, other in self._others.items()}

    def weights(self) -> Iterator[OpWeight]:
        builder = self._builder
        for unit in builder.units:
            if unit.weight is None:
                continue
            values = np.asarray(builder.store.array(unit.weight), np.float32)
            (outer, inner), node = weight_axes(builder.graph, unit), self._nodes.get(unit.op.name)
            if node is None:
                continue
            integers = self._file.weight(node)
            if integers is None or integers.shape != values.shape:
                in_blocks = self._file.weight_in_blocks(node)
                transposed = in_blocks is not None and is_transposed(builder, unit)
                float_weight = (
                    self._file.float_weight(node) if in_blocks is None else in_blocks.T if transposed else in_blocks
                )
                fits = float_weight is not None and float_weight.shape == values.shape
                yield OpWeight(
                    unit.op.name, values, float_weight if float_weight is not None and fits else values, outer, inner
                )
            else:
                yield OpWeight(unit.op.name, values, integers, outer, inner)

    def contexts(self) -> Mapping[str, OpContext]:
        builder, contexts = self._builder, {}
        origins = {unit.output: unit.op.name for unit in builder.units}
        origins |= {point.float_tensor: name for name, point in self._matches.items()}

        def tensor(name: str, params: QuantizationParameters, axis: int | None) -> ActivationContext:
            root = builder.root(name)
            moved = tuple(movement_kinds(builder.graph, name, root))
            return ActivationContext(name, params, origin=origins.get(root, ""), moved=moved, axis=axis)

        for unit in builder.units:
            name = unit.op.name
            end, file_tensor = self._matches.get(name, MatchedTensor(unit.output, ""))
            axis, written = channel_axis(builder.graph, unit, end), self._file.parameters(file_tensor)
            writes = None if written is None else tensor(end, written, axis)
            node = self._nodes.get(name)
            reads = []
            if node is not None and Precision(self.precisions[name]).quantized:
                inputs = list(builder.graph.nodes[unit.anchor].input)
                for read in unit.activations:
                    params = self._file.input_parameters(node, inputs.index(read))
                    if params is not None:
                        reads.append(tensor(read, params, channel_axis(builder.graph, unit, read)))
            surroundings = upstream(builder.graph, unit, builder.unit_of)
            one_scale = why_one_scale(builder.graph, unit)
            contexts[name] = OpContext(name, end, axis, tuple(reads), writes, one_scale, *surroundings)
        return contexts

    def seconds(self) -> Mapping[str, float]:
        seconds: dict[str, float] = {}
        feed = self._adapter.timing_feed
        options = TimingOptions(count_samples(feed), self._threads, warmup=1, runs=10)
        adapter = require(self._adapter, SupportsProfiling)
        timing = adapter.profile(self._file.model, [feed], options, self._adapter)
        for kernel in timing.kernels:
            seconds[kernel.op] = seconds.get(kernel.op, 0.0) + kernel.seconds
        return seconds


# Ops that multiply with a weight, or look up rows of a table.
_WEIGHTY = {
    "Conv", "ConvTranspose", "Gather", "Gemm", "MatMul", "MatMulIntegerToFloat", "QGemm", "QLinearConv",
    "QLinearMatMul",
}  # fmt: skip


class StandaloneFile(StandaloneView):
    """A quantized file of any tool, without its float model."""

    def __init__(self, source: ModelLike, threads: int) -> None:
        self._file = QuantizedFile(source)
        makers = {name: node for node in self._file.model.graph.node for name in node.output}
        ops: dict[str, QuantizedOp] = {}
        for node in self._file.model.graph.node:
            parameters = self._file.output_parameters(node)
            if parameters is None or parameters.zero_point.dtype not in (np.int8, np.uint8, np.int16, np.uint16):
                continue
            named = _named(node, makers)
            if named is not None and named[0] not in ops:
                ops[named[0]] = QuantizedOp(*named, node.output[0], parameters)
        self.ops = tuple(ops.values())
        recorded = [RecordedTensor(op.tensor, op.parameters) for op in self.ops]
        self._session = sessions.create(self._file.with_outputs(recorded), sessions.options(threads))
        self.inputs = sessions.input_specs(self._session)

    def run(self, feed: Feed) -> StandaloneRun:
        output_names = self._file.outputs()
        names = list(dict.fromkeys([*output_names, *(op.tensor for op in self.ops)]))
        values = dict(zip(names, self._session.run(names, feed), strict=True))
        op_outputs = {op.name: QuantizedPair(QuantizedTensor(values[op.tensor], op.parameters)) for op in self.ops}
        return StandaloneRun(op_outputs, [values[name] for name in output_names])

    def weights(self) -> Iterator[tuple[str, QuantizedTensor]]:
        for node in self._file.model.graph.node:
            integers = self._file.weight(node) if node.op_type in _WEIGHTY and len(node.input) > 1 else None
            if integers is not None:
                yield node.name or node.output[0], integers


def _named(node: NodeProto, makers: Mapping[str, NodeProto]) -> tuple[str, str] | None:
    """Return the name and type of what computes the integers that a node writes; None for a constant."""
    if node.op_type != "QuantizeLinear":
        return node.name or node.output[0], node.op_type
    source = node.input[0]
    if source not in makers:
        return source, "input"
    producer = makers[source]
    return None if producer.op_type == "Constant" else (producer.name or source, producer.op_type)
