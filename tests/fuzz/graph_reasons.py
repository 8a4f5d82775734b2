"""Reasons why an int8 model differs from the float one without a defect: coarse steps, or another branch of an If."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from graph_builder import Array, Feed, session_of
from onnx import helper, numpy_helper

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.ops import OpConfig

# The same steps may round to other sides in another order of sums: an error of at most twice the size is the same.
STEPS_MARGIN = 4.0


def error_of_steps(
    adapter: OnnxAdapter, ranges: Mapping[str, Any], name: str, choice: OpConfig, feeds: Sequence[Feed]
) -> float:
    """Return the squared error that 8-bit steps alone make in one op, as a part of its squared output.

    The float op runs on inputs and weights that are rounded here, to the steps of their calibrated ranges. No kernel
    and no builder of int8 models takes part.

    Args:
        adapter: the adapter, calibrated.
        ranges: the ranges of all tensors by method, as calibration returned them.
        name: the op.
        choice: how it is quantized.
        feeds: what to run.
    """
    graph = adapter._model.graph
    unit = next(unit for unit in adapter._units if unit.op.name == name)
    nodes = [graph.nodes[index] for index in sorted(unit.nodes)]
    written = {output for node in nodes for output in node.output}
    read = list(dict.fromkeys(name for node in nodes for name in node.input if name and name not in written))
    inputs = [name for name in read if name not in graph.constants]
    constants = {name: np.asarray(graph.constants[name]) for name in read if name in graph.constants}
    op_alone = _session(graph, nodes, inputs, constants, unit.output)
    weights = {} if unit.weight is None else {unit.weight: _rounded_weight(constants[unit.weight], unit, choice)}
    op_rounded = _session(graph, nodes, inputs, constants | weights, unit.output)

    def rounded(tensor: str, value: Array) -> Array:
        own = {"": (float(value.min(initial=0.0)), float(value.max(initial=0.0)))}
        by_method = ranges.get(tensor) or ranges.get(adapter._builder.root(tensor)) or own
        return _to_steps(value, *by_method.get(choice.calibration, next(iter(by_method.values()))))

    noise = signal = 0.0
    source = adapter._builder.assemble(None, tuple(name for name in inputs if name in graph.producers))
    trunk = session_of(onnx.load_model_from_string(b"".join(map(bytes, source.chunks()))).SerializeToString())
    names = [output.name for output in trunk.get_outputs()]
    for feed in feeds:
        values = {**dict(zip(names, trunk.run(names, feed), strict=True)), **feed}
        exact = {name: values[name] for name in inputs}
        coarse = {name: rounded(name, value) if name in unit.activations else value for name, value in exact.items()}
        (before,), (after,) = op_alone.run(None, exact), op_rounded.run(None, coarse)
        after = rounded(unit.output, after) if unit.quantized_output else after
        noise += float(np.square(np.float64(after) - before).sum())
        signal += float(np.square(np.float64(before)).sum())
    return noise / max(signal, 1e-6)


def _session(graph: Any, nodes: Sequence[Any], inputs: Sequence[str], constants: Mapping[str, Array], out: str) -> Any:
    values = [helper.make_tensor_value_info(name, graph.types.get(name, 1), None) for name in inputs]
    result = helper.make_tensor_value_info(out, onnx.TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    body = helper.make_graph(list(nodes), "op", values, [result], tensors)
    model = helper.make_model(body, opset_imports=graph.shell.opset_import, ir_version=10)
    model.functions.extend(graph.shell.functions)
    return session_of(model.SerializeToString())


def _to_steps(values: Array, low: float, high: float) -> Array:
    """Round values to the 255 steps of a range, which includes zero."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = max((high - low) / 255, 1e-30)
    zero = np.rint(-low / step)
    return np.asarray((np.clip(np.rint(values / step) + zero, 0, 255) - zero) * step, np.float32)


def _rounded_weight(weight: Array, unit: Any, choice: OpConfig) -> Array:
    axes = None
    if choice.granularity == "per_channel" and unit.axis is not None:
        axes = tuple(axis for axis in range(weight.ndim) if axis != unit.axis % weight.ndim)
    step = np.maximum(np.abs(weight).max(axis=axes, keepdims=True) / 127, 1e-30)
    return np.asarray(np.rint(weight / step) * step, np.float32)


def outputs_of_other_branch(model: onnx.ModelProto, built: onnx.ModelProto, feed: Feed) -> list[Array] | None:
    """Return the outputs of the given model in the branches that a built model takes.

    A condition that is computed from int8 values may fall to the other side, and the branches may have other shapes.
    The given model is run with the conditions of the built one.

    Returns:
        The outputs; an empty list if the given model fails with these conditions; None if no condition differs.
    """
    conditions = [node.input[0] for node in model.graph.node if node.op_type == "If"]
    constants = {tensor.name for tensor in model.graph.initializer} | {value.name for value in model.graph.input}
    forced = {}
    for name in dict.fromkeys(name for name in conditions if name not in constants):
        pair = [_condition(each, name, feed) for each in (model, built)]
        if pair[1] is None:  # an op before it failed, in another branch perhaps: this condition was not reached
            break
        if not np.array_equal(*pair):
            forced[name] = pair[1]
    if not forced:
        return None
    try:
        session = session_of(_with_conditions(model, list(forced)).SerializeToString())
        return list(session.run(None, {**feed, **{_forced(name): value for name, value in forced.items()}}))
    except Exception:
        return []


def _condition(model: onnx.ModelProto, name: str, feed: Feed) -> Array | None:
    """Return the value of a condition; None if it cannot be computed."""
    try:
        session = session_of(_up_to(model, name).SerializeToString())
        return np.asarray(session.run(None, _read(session, feed))[0])
    except Exception:
        return None


def _with_conditions(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return the model with these conditions of Ifs as inputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if node.op_type == "If" and node.input[0] in names:
            node.input[0] = _forced(node.input[0])
    values = (helper.make_tensor_value_info(_forced(name), onnx.TensorProto.BOOL, None) for name in names)
    copy.graph.input.extend(values)
    return copy


def _forced(name: str) -> str:
    return f"{name} of the built model"


def _read(session: Any, feed: Feed) -> Feed:
    return {value.name: feed[value.name] for value in session.get_inputs()}


def _up_to(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Return the part of a model that computes one tensor."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    nodes, needed = [], {name}
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            nodes.insert(0, node)
            needed.update(_names(node))
    del part.graph.node[:], part.graph.output[:]
    part.graph.node.extend(nodes)
    part.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, None))
    return part


def _names(node: onnx.NodeProto) -> set[str]:
    """Return all tensors that a node and its bodies name."""
    bodies = [entry.g for entry in node.attribute if entry.type == onnx.AttributeProto.GRAPH]
    inner = (name for body in bodies for child in body.node for name in _names(child))
    return {*node.input, *inner, *(value.name for body in bodies for value in body.output)} - {""}
