"""Looking inside a model while it runs: the output of chosen ops, and each op's own error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.build.plan import TABLE, Scheme
from quaver.adapters.onnxrt.build.serialized_model import SerializedModel
from quaver.adapters.onnxrt.ops.units import Unit
from quaver.adapters.onnxrt.run import session as sessions
from quaver.affine import QuantizationParameters, QuantizedTensor, as_float
from quaver.introspection import LocalRun, QuantizedRun
from quaver.ops import OpConfig, QuantConfig
from quaver.types import Array, Feed

OutputRecorder = Callable[[Feed], dict[str, Array]]


class RecordedTensor(NamedTuple):
    """A tensor of a session to look at: float, or in integers if it has quantization parameters.

    A float one whose channels are divided is multiplied by `factors`, to be what it is in the float model.
    """

    tensor: str
    parameters: QuantizationParameters | None = None
    factors: Float | None = None

    def output(self) -> bytes:
        """The entry of a graph that gives it out."""
        if self.parameters is None:
            return protobuf.float_output(self.tensor)
        kind = helper.np_dtype_to_tensor_dtype(self.parameters.zero_point.dtype)
        return protobuf.block(
            protobuf.GRAPH_OUTPUT, helper.make_tensor_value_info(self.tensor, kind, None).SerializeToString()
        )

    def of(self, values: Mapping[str, Array]) -> Array | QuantizedTensor:
        """The tensor among those that a session gave."""
        found = values[self.tensor]
        if self.parameters is not None:
            whole = QuantizedTensor(found, self.parameters)
            return whole if self.parameters.axis is None else whole.dequantized()
        return found if self.factors is None else found * self.factors


def record_outputs(builder: Builder, config: QuantConfig | None, ops: Sequence[str], threads: int) -> OutputRecorder:
    """A function that runs a feed and gives the output of each of these ops, dequantized where it is int8."""
    run = record_quantized(builder, config, ops, threads, outputs=False)

    def real(feed: Feed) -> dict[str, Array]:
        seen = run(feed).ops
        return {name: as_float(found) for name, found in seen.items()}

    return real


def record_quantized(
    builder: Builder,
    config: QuantConfig | None,
    ops: Sequence[str],
    threads: int,
    outputs: bool = True,
    others: Mapping[str, str] | None = None,
) -> Callable[[Feed], QuantizedRun]:
    """The same, with the outputs of the model besides, and in integers what is quantized.

    `others` names the tensors of what is no op.
    """
    tensors = {unit.op.name: unit.output for unit in builder.units} | dict(others or {})
    emitter = Emitter(builder, config)
    given = [value.name for value in builder.graph.outputs]
    emitter.run(())
    taps = {name: _tap(emitter, tensors[name]) for name in ops}
    wanted = list(dict.fromkeys([*(tap.tensor for tap in taps.values()), *(given if outputs else ())]))
    session = _session(with_recorded(emitter, taps.values(), given), threads)

    def run(feed: Feed) -> QuantizedRun:
        values = dict(zip(wanted, session.run(wanted, feed), strict=True))
        seen = {name: tap.of(values) for name, tap in taps.items()}
        return QuantizedRun(seen, [values[name] for name in given] if outputs else [])

    return run


def _tap(emitter: Emitter, name: str) -> RecordedTensor:
    """Where to look at what an op writes: in integers, if that is how it goes on."""
    a, seen = emitter.builder, emitter.visible(name)
    root, quantized = a.root(name), a.label(name, "q")
    if root not in emitter.uint8_outputs or quantized not in emitter.emitted:
        return unscaled(emitter, name, RecordedTensor(seen))
    return unscaled(emitter, name, RecordedTensor(quantized, a.params(root, emitter.schemes[root])))


def unscaled(plan: Emitter, name: str, tap: RecordedTensor) -> RecordedTensor:
    """Where to look at a tensor, for what it is in the float model if its channels are divided.

    Integers have a scale for each channel then, and are seen as real numbers.
    """
    repair_name = plan.rescaled_tensors.get(name)
    if repair_name is None:
        return tap
    rescaler = plan.builder.rescaler
    factors = rescaler.of(name, repair_name)
    if tap.parameters is None:
        return tap._replace(factors=factors.reshape(rescaler.shape(name)))
    scale, zero = tap.parameters.scale * factors, np.broadcast_to(tap.parameters.zero_point, factors.shape)
    return tap._replace(parameters=QuantizationParameters(scale, zero.copy(), rescaler.axis(name)))


def with_recorded(emitter: Emitter, taps: Iterable[RecordedTensor], given: Sequence[str]) -> SerializedModel:
    """The model of a walk that gives out these tensors besides its own outputs."""
    extra = {tap.tensor: tap for tap in taps if tap.tensor not in given}
    emitter.entries.extend(tap.output() for tap in extra.values())
    return emitter.finish(())


def local_errors(
    builder: Builder, config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """For each int8 op, fed with float inputs, the squared error of its output and the squared output."""
    trunk, results = trunk_with_branches(builder, config)
    outputs: list[str] = []
    for unit, tap in results.values():
        result = _dequantized(builder, trunk, tap)
        error, total, signal = (f"{result}{builder.mark}{part}" for part in ("error", "noise", "signal"))
        trunk.parts.append(
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


def _dequantized(builder: Builder, trunk: Emitter, tap: RecordedTensor) -> str:
    """A tensor as real numbers within the session."""
    if tap.parameters is None and tap.factors is None:
        return tap.tensor
    names = [builder.label(tap.tensor, part) for part in ("scale", "zero")]
    result = builder.label(tap.tensor, "dq")
    if tap.factors is not None:
        trunk.parts.append(protobuf.node("Mul", [tap.tensor, names[0]], [result], result))
        trunk.entries.append(protobuf.tensor(names[0], tap.factors))
    if tap.parameters is None:
        return result
    axis = {} if tap.parameters.axis is None else {"axis": tap.parameters.axis}
    trunk.parts.append(protobuf.node("DequantizeLinear", [tap.tensor, *names], [result], result, **axis))
    trunk.entries.append(constants(names, tap.parameters))
    return result


def record_branches(
    builder: Builder,
    trunk: Emitter,
    results: Mapping[str, RecordedTensor],
    ops: Sequence[str],
    tensors: Sequence[str],
    threads: int,
    ends: Mapping[str, str] | None = None,
) -> Callable[[Feed], LocalRun]:
    """A function that runs a feed through the float model, and branches of it in int8 from the same float inputs.

    `results` tells where each ends. `ends` are the float tensors to compare with, where they are not what an op writes.
    """
    outputs = {unit.op.name: unit.output for unit in builder.units} | dict(ends or {})
    given = [value.name for value in builder.graph.outputs]
    fed = {value.name for value in builder.graph.inputs}
    others = [name for name in tensors if name in builder.graph.producers]
    floats = [RecordedTensor(name) for name in (*(outputs[name] for name in ops), *others)]
    taps = [*floats, *results.values()]
    session = _session(with_recorded(trunk, taps, given), threads)
    names = list(dict.fromkeys([*given, *(tap.tensor for tap in taps)]))

    def run(feed: Feed) -> LocalRun:
        values = dict(zip(names, session.run(names, feed), strict=True))
        int8 = {name: tap.of(values) for name, tap in results.items()}
        pairs = {name: (values[outputs[name]], int8.get(name)) for name in ops}
        seen = {name: values[name] for name in others} | {name: feed[name] for name in tensors if name in fed}
        return LocalRun(pairs, seen, [values[name] for name in given])

    return run


def trunk_with_branches(
    builder: Builder, config: QuantConfig, ops: Sequence[str] | None = None
) -> tuple[Emitter, dict[str, tuple[Unit, RecordedTensor]]]:
    """The float model as a trunk, with an int8 branch hanging off it for each of these ops that is int8.

    Returns the trunk, to be finished, and for each op its unit and what its branch ends in.
    """
    trunk, plan = Emitter(builder, None), Emitter(builder, config)
    trunk.run(())
    units = [unit for unit in builder.units if config[unit.op.name].quantized and (ops is None or unit.op.name in ops)]
    results = {}
    for number, unit in enumerate(units):
        mark = f"{builder.mark}{number}{builder.mark}"
        results[unit.op.name] = unit, _branch(builder, trunk, unit, config[unit.op.name], plan, mark)
    return trunk, results


def _session(serialized: SerializedModel, threads: int) -> Any:
    return sessions.create(serialized.skeleton(), sessions.options(threads), serialized.store.path.parent)


def _branch(builder: Builder, trunk: Emitter, unit: Unit, choice: OpConfig, plan: Emitter, mark: str) -> RecordedTensor:
    """Add a unit in int8 beside the float trunk, its tensors scaled as in `plan`; returns what it ends in."""

    def scheme(name: str) -> Scheme:
        return plan.schemes[builder.root(plan.read_by(unit, name))]

    def copied(name: str) -> str:
        rescaling = scheme(name).rescaling
        source = trunk.rescale(name, rescaling, f"{name}{mark}rescaled") if rescaling else name
        return trunk.quantized_copy(name, scheme(name), mark, source)

    def constant(slot: int) -> str:
        return trunk.constant_copy(unit, choice, slot, scheme(unit.activations[0]))

    if unit.is_embedding:
        trunk.emit_embedding(unit, choice, unit.output + mark, mark)
        in_integers = unit.writes_integers_as(choice)
        return RecordedTensor(unit.output + mark, builder.params(unit.output, TABLE) if in_integers else None)
    if not choice.calibrated:
        made = builder.graph.nodes[unit.anchor].output[0] + mark
        trunk.emit_float_io(unit, choice, unit.activations[0], made, mark)
        return RecordedTensor(copy_unit(builder, trunk, unit, {}, constant, mark, without=unit.anchor))
    renamed = {name: copied(name) for name in unit.activations}
    if unit.is_passthrough:
        (name,) = unit.activations
        trunk.emit_passthrough(unit, scheme(name), f"{name}{mark}q", unit.output + mark, mark)
        tap = RecordedTensor(unit.output + mark, builder.params(builder.root(name), scheme(name)))
        return unscaled(plan, unit.output, tap)
    if choice.repairs or plan.division(unit):
        trunk.repair(unit, choice, scheme(unit.activations[0]), plan.division(unit))
    result = copy_unit(builder, trunk, unit, renamed, constant, mark)
    if not unit.quantized_output:
        return unscaled(plan, unit.output, RecordedTensor(result))
    root = builder.root(unit.output)
    return unscaled(plan, unit.output, quantized(trunk, result, builder.params(root, plan.schemes[root])))


def quantized(trunk: Emitter, name: str, parameters: QuantizationParameters) -> RecordedTensor:
    """Quantize what a branch ends in."""
    result, *by = (f"{name}{trunk.builder.mark}{part}" for part in ("q", "scale", "zero"))
    trunk.parts.append(protobuf.node("QuantizeLinear", [name, *by], [result], result))
    trunk.entries.append(constants(by, parameters))
    return RecordedTensor(result, parameters)


def constants(names: Sequence[str], parameters: QuantizationParameters) -> bytes:
    """Scale and zero point under these two names."""
    return protobuf.tensor(names[0], parameters.scale) + protobuf.tensor(names[1], parameters.zero_point)


def copy_unit(
    builder: Builder,
    trunk: Emitter,
    unit: Unit,
    renamed: Mapping[str, str],
    constant: Callable[[int], str],
    mark: str,
    without: int = -1,
    behind: Callable[[NodeProto, int], str] | None = None,
) -> str:
    """Add a unit's nodes once more, reading other activations and constants; returns the name of what they produce.

    One of them may be there already: `without` it. `behind` tells what nodes behind the anchor read at a place.
    """
    inside = {output for index in unit.nodes for output in builder.graph.nodes[index].output}
    for index in (index for index in unit.nodes if index != without):
        node = NodeProto()
        node.CopyFrom(builder.graph.nodes[index])
        node.name += mark
        replaced = trunk.replaced.get(index, {})
        if len(node.input) in replaced:  # a bias where there was none
            node.input.append("")
        for slot, name in enumerate(node.input):
            if slot in replaced:
                node.input[slot] = replaced[slot]
            elif index == unit.anchor and name in renamed:
                node.input[slot] = renamed[name]
            elif index == unit.anchor and name == unit.operand:
                node.input[slot] = trunk.operand(name)
            elif index == unit.anchor and name in (unit.weight, unit.bias):
                node.input[slot] = constant(slot)
            elif index != unit.anchor and behind is not None:
                node.input[slot] = behind(builder.graph.nodes[index], slot)
            elif name in inside:
                node.input[slot] = name + mark
        for slot, name in enumerate(node.output):
            node.output[slot] = name + mark
        trunk.parts.append(protobuf.block(protobuf.GRAPH_NODE, node.SerializeToString(deterministic=True)))
    return unit.output + mark
