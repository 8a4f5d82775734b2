"""Local runs: the outputs of single ops while a model runs, and the error that each op makes on its own.

The float model is the trunk of a local run. From it branch copies of ops in int8, each fed with float values of the
trunk, so that the error of one op is not mixed with the errors of the ops before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.build.plan import TABLE, Scheme
from quaver.adapters.onnxrt.build.serialized_model import SerializedModel
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.session import Session
from quaver.affine import QuantizationParameters, QuantizedTensor, as_float
from quaver.introspection import LocalRun, QuantizedRun
from quaver.ops import OpConfig, QuantConfig
from quaver.types import Array, Feed

OutputRecorder = Callable[[Feed], dict[str, Array]]


class RecordedTensor(NamedTuple):
    """A tensor that a session gives out so that it can be looked at.

    Attributes:
        tensor: its name.
        parameters: what its integers stand for; None if it is float.
        factors: what restores the values of the float model if the channels of a float tensor are divided.
    """

    tensor: str
    parameters: QuantizationParameters | None = None
    factors: Float | None = None

    def output(self) -> bytes:
        """Return the entry of a graph that gives the tensor out."""
        if self.parameters is None:
            return protobuf.float_output(self.tensor)
        kind = helper.np_dtype_to_tensor_dtype(self.parameters.zero_point.dtype)
        info = helper.make_tensor_value_info(self.tensor, kind, None)
        return protobuf.block(protobuf.GRAPH_OUTPUT, info.SerializeToString())

    def of(self, values: Mapping[str, Array]) -> Array | QuantizedTensor:
        """Return the tensor from the values that a session gave out."""
        value = values[self.tensor]
        if self.parameters is not None:
            integers = QuantizedTensor(value, self.parameters)
            return integers if self.parameters.axis is None else integers.dequantized()
        return value if self.factors is None else value * self.factors


def record_outputs(builder: Builder, config: QuantConfig | None, ops: Sequence[str], threads: int) -> OutputRecorder:
    """Return a function that runs a feed and returns the output of each of these ops as float."""
    run = record_quantized(builder, config, ops, threads, outputs=False)

    def record(feed: Feed) -> dict[str, Array]:
        return {name: as_float(output) for name, output in run(feed).ops.items()}

    return record


def record_quantized(
    builder: Builder,
    config: QuantConfig | None,
    ops: Sequence[str],
    threads: int,
    outputs: bool = True,
    other_nodes: Mapping[str, str] | None = None,
) -> Callable[[Feed], QuantizedRun]:
    """Return a function that runs a feed and returns outputs of ops and of the model, as integers where they are.

    Args:
        builder: the builder of the model.
        config: the configuration to build.
        ops: names of ops, or of other nodes.
        threads: threads of the session.
        outputs: return the outputs of the model too.
        other_nodes: the tensors of nodes that are no op.
    """
    tensors = {unit.op.name: unit.output for unit in builder.units} | dict(other_nodes or {})
    emitter = Emitter(builder, config)
    output_names = [value.name for value in builder.graph.outputs]
    emitter.run(())
    recorded = {name: _recorded_output(emitter, tensors[name]) for name in ops}
    names = list(dict.fromkeys([*(tensor.tensor for tensor in recorded.values()), *(output_names if outputs else ())]))
    session = _session(with_recorded(emitter, recorded.values(), output_names), threads)

    def run(feed: Feed) -> QuantizedRun:
        values = dict(zip(names, session.run(names, feed), strict=True))
        op_outputs = {name: tensor.of(values) for name, tensor in recorded.items()}
        return QuantizedRun(op_outputs, [values[name] for name in output_names] if outputs else [])

    return run


def _recorded_output(emitter: Emitter, name: str) -> RecordedTensor:
    """Return where to look at what an op writes: as integers, if readers get integers."""
    builder, visible = emitter.builder, emitter.visible(name)
    root, integers = builder.root(name), builder.label(name, "q")
    if root not in emitter.uint8_outputs or integers not in emitter.emitted:
        return undivided(emitter, name, RecordedTensor(visible))
    return undivided(emitter, name, RecordedTensor(integers, builder.parameters(root, emitter.schemes[root])))


def undivided(plan: Emitter, name: str, recorded: RecordedTensor) -> RecordedTensor:
    """Return the tensor with the values of the float model, if its channels are divided.

    Integers have a scale for each channel then, and are returned as float.
    """
    repair_name = plan.rescaled_tensors.get(name)
    if repair_name is None:
        return recorded
    rescaler = plan.builder.rescaler
    factors = rescaler.factors_of(name, repair_name)
    parameters = recorded.parameters
    if parameters is None:
        return recorded._replace(factors=factors.reshape(rescaler.factor_shape(name)))
    scale, zero = parameters.scale * factors, np.broadcast_to(parameters.zero_point, factors.shape)
    return recorded._replace(parameters=QuantizationParameters(scale, zero.copy(), rescaler.channel_axis(name)))


def with_recorded(emitter: Emitter, recorded: Iterable[RecordedTensor], output_names: Sequence[str]) -> SerializedModel:
    """Finish a model that gives out these tensors besides its own outputs."""
    extra = {tensor.tensor: tensor for tensor in recorded if tensor.tensor not in output_names}
    emitter.entries.extend(tensor.output() for tensor in extra.values())
    return emitter.finish(())


def local_errors(
    builder: Builder, config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """Return, for each int8 op on float inputs, the squared error of its output and the squared output."""
    trunk, results = trunk_with_branches(builder, config)
    outputs: list[str] = []
    for unit, recorded in results.values():
        result = _dequantized(trunk, recorded)
        error, total, signal = (f"{result}{builder.mark}{part}" for part in ("error", "noise", "signal"))
        trunk.nodes.append(
            protobuf.node("Sub", [result, unit.output], [error], error)
            + protobuf.node("ReduceSumSquare", [error], [total], total, keepdims=0)
            + protobuf.node("ReduceSumSquare", [unit.output], [signal], signal, keepdims=0)
        )
        outputs += [total, signal]
    if not outputs:  # a session that is asked for no output returns all of them
        return {}
    session = _session(trunk.finish(tuple(outputs)), threads)
    sums = np.zeros(len(outputs))
    for feed in feeds:
        sums += np.array([float(value) for value in session.run(outputs, feed)])
    pairs = zip(results, sums.reshape(-1, 2), strict=True)
    return {name: (float(error), float(signal)) for name, (error, signal) in pairs}


def _dequantized(trunk: Emitter, recorded: RecordedTensor) -> str:
    """Emit what makes a recorded tensor float within the session, and return the name of the result."""
    if recorded.parameters is None and recorded.factors is None:
        return recorded.tensor
    names = [trunk.builder.label(recorded.tensor, part) for part in ("scale", "zero")]
    result = trunk.builder.label(recorded.tensor, "dq")
    if recorded.factors is not None:
        trunk.nodes.append(protobuf.node("Mul", [recorded.tensor, names[0]], [result], result))
        trunk.entries.append(protobuf.tensor(names[0], recorded.factors))
    if recorded.parameters is None:
        return result
    axis = {} if recorded.parameters.axis is None else {"axis": recorded.parameters.axis}
    trunk.nodes.append(protobuf.node("DequantizeLinear", [recorded.tensor, *names], [result], result, **axis))
    trunk.entries.append(scale_entries(names, recorded.parameters))
    return result


def record_branches(
    trunk: Emitter,
    results: Mapping[str, RecordedTensor],
    ops: Sequence[str],
    tensors: Sequence[str],
    threads: int,
    ends: Mapping[str, str] | None = None,
) -> Callable[[Feed], LocalRun]:
    """Return a function that runs a feed through the float model and its int8 branches.

    Args:
        trunk: the float model, with branches, not finished.
        results: what each branch ends in, by op.
        ops: names of the ops to compare.
        tensors: names of float tensors to return as well.
        threads: threads of the session.
        ends: by op, the float tensor to compare with, where it is not the output of the op.
    """
    builder = trunk.builder
    compared = {unit.op.name: unit.output for unit in builder.units} | dict(ends or {})
    output_names = [value.name for value in builder.graph.outputs]
    input_names = {value.name for value in builder.graph.inputs}
    written = [name for name in tensors if name in builder.graph.producers]
    floats = [RecordedTensor(name) for name in (*(compared[name] for name in ops), *written)]
    recorded = [*floats, *results.values()]
    session = _session(with_recorded(trunk, recorded, output_names), threads)
    names = list(dict.fromkeys([*output_names, *(tensor.tensor for tensor in recorded)]))

    def run(feed: Feed) -> LocalRun:
        values = dict(zip(names, session.run(names, feed), strict=True))
        int8 = {name: tensor.of(values) for name, tensor in results.items()}
        pairs = {name: (values[compared[name]], int8.get(name)) for name in ops}
        floats = {name: values[name] for name in written} | {n: feed[n] for n in tensors if n in input_names}
        return LocalRun(pairs, floats, [values[name] for name in output_names])

    return run


def trunk_with_branches(
    builder: Builder, config: QuantConfig, ops: Sequence[str] | None = None
) -> tuple[Emitter, dict[str, tuple[Unit, RecordedTensor]]]:
    """Emit the float model as a trunk, with an int8 branch for each of these ops that is int8 (None: all).

    Returns:
        The trunk, not finished, and for each op its unit and what its branch ends in.
    """
    trunk, plan = Emitter(builder, None), Emitter(builder, config)
    trunk.run(())
    units = [unit for unit in builder.units if config[unit.op.name].quantized and (ops is None or unit.op.name in ops)]
    results = {}
    for number, unit in enumerate(units):
        mark = f"{builder.mark}{number}{builder.mark}"
        results[unit.op.name] = unit, _branch(trunk, unit, config[unit.op.name], plan, mark)
    return trunk, results


def _session(serialized: SerializedModel, threads: int) -> Session:
    return sessions.create(serialized.skeleton(), sessions.options(threads), serialized.store.path.parent)


def _branch(trunk: Emitter, unit: Unit, choice: OpConfig, plan: Emitter, mark: str) -> RecordedTensor:
    """Add a unit in int8 beside the float trunk, with the scales of `plan`, and return what it ends in."""
    builder = trunk.builder

    def scheme(name: str) -> Scheme:
        return plan.schemes[builder.root(plan.read_by(unit, name))]

    def quantized_copy(name: str) -> str:
        rescaling = scheme(name).rescaling
        source = trunk.rescale(name, rescaling, f"{name}{mark}rescaled") if rescaling else name
        return trunk.quantized_copy(name, scheme(name), mark, source)

    def constant(slot: int) -> str:
        return trunk.constant_copy(unit, choice, slot, scheme(unit.activations[0]))

    if unit.is_embedding:
        trunk.emit_embedding(unit, choice, unit.output + mark, mark)
        is_integer = unit.writes_integers_as(choice)
        return RecordedTensor(unit.output + mark, builder.parameters(unit.output, TABLE) if is_integer else None)
    if not choice.calibrated:
        result = builder.graph.nodes[unit.anchor].output[0] + mark
        trunk.emit_float_io(unit, choice, unit.activations[0], result, mark)
        return RecordedTensor(copy_unit(trunk, unit, CopyInputs({}, constant), mark, without=unit.anchor))
    renamed = {name: quantized_copy(name) for name in unit.activations}
    if unit.is_passthrough:
        (name,) = unit.activations
        trunk.emit_passthrough(unit, scheme(name), f"{name}{mark}q", unit.output + mark, mark)
        recorded = RecordedTensor(unit.output + mark, builder.parameters(builder.root(name), scheme(name)))
        return undivided(plan, unit.output, recorded)
    output_rescaling = plan.output_rescaling(unit)
    if choice.repairs or output_rescaling:
        trunk.repair(unit, choice, scheme(unit.activations[0]), output_rescaling)
    result = copy_unit(trunk, unit, CopyInputs(renamed, constant), mark)
    root = builder.root(unit.output)
    if root not in plan.uint8_outputs:
        return undivided(plan, unit.output, RecordedTensor(result))
    return undivided(plan, unit.output, quantized(trunk, result, builder.parameters(root, plan.schemes[root])))


def quantized(trunk: Emitter, name: str, parameters: QuantizationParameters) -> RecordedTensor:
    """Quantize what a branch ends in."""
    result, *scale_names = (f"{name}{trunk.builder.mark}{part}" for part in ("q", "scale", "zero"))
    trunk.nodes.append(protobuf.node("QuantizeLinear", [name, *scale_names], [result], result))
    trunk.entries.append(scale_entries(scale_names, parameters))
    return RecordedTensor(result, parameters)


def scale_entries(names: Sequence[str], parameters: QuantizationParameters) -> bytes:
    """Serialize scale and zero point under these two names."""
    return protobuf.tensor(names[0], parameters.scale) + protobuf.tensor(names[1], parameters.zero_point)


class CopyInputs(NamedTuple):
    """The inputs of a unit's copy.

    Attributes:
        activations: by activation, the tensor to read instead.
        constant: returns the weight or bias to read in a slot of the anchor.
        behind_anchor: returns what a node behind the anchor reads in a slot; None to read the copies of the unit's own
            tensors.
    """

    activations: Mapping[str, str]
    constant: Callable[[int], str]
    behind_anchor: Callable[[NodeProto, int], str] | None = None


def copy_unit(trunk: Emitter, unit: Unit, inputs: CopyInputs, mark: str, without: int = -1) -> str:
    """Emit a unit's nodes once more with other inputs, and return the name of its output.

    Args:
        trunk: where the copy is emitted.
        unit: the unit.
        inputs: what the copy reads.
        mark: the end of the names of all it writes.
        without: the index of a node that is not copied, because something else writes its output.
    """
    graph = trunk.builder.graph
    inside = {output for index in unit.nodes for output in graph.nodes[index].output}
    for index in (index for index in unit.nodes if index != without):
        node = NodeProto()
        node.CopyFrom(graph.nodes[index])
        node.name += mark
        replaced = trunk.replaced.get(index, {})
        is_anchor = index == unit.anchor
        if len(node.input) in replaced:  # a bias where there was none
            node.input.append("")
        for slot, name in enumerate(node.input):
            if slot in replaced:
                node.input[slot] = replaced[slot]
            elif is_anchor and name in inputs.activations:
                node.input[slot] = inputs.activations[name]
            elif is_anchor and name == unit.operand:
                node.input[slot] = trunk.operand(name)
            elif is_anchor and name in (unit.weight, unit.bias):
                node.input[slot] = inputs.constant(slot)
            elif not is_anchor and inputs.behind_anchor is not None:
                node.input[slot] = inputs.behind_anchor(graph.nodes[index], slot)
            elif name in inside:
                node.input[slot] = name + mark
        for slot, name in enumerate(node.output):
            node.output[slot] = name + mark
        trunk.nodes.append(protobuf.block(protobuf.GRAPH_NODE, node.SerializeToString(deterministic=True)))
    return unit.output + mark
