"""Makes a model that goes wrong smaller, as long as it goes wrong in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from graph_builder import Array, InputRecord, make_feeds, record_inputs, recorded_inputs, session_of
from onnx import helper

MAX_TRIES = 150


def shrink(model: onnx.ModelProto, still_wrong: Callable[[onnx.ModelProto], bool]) -> onnx.ModelProto:
    """Return a smaller model for which `still_wrong` holds."""
    tries, smaller = 0, True
    while smaller and tries < MAX_TRIES:
        smaller = False
        for candidate in _candidates(model):
            tries += 1
            if still_wrong(candidate):
                model, smaller = candidate, True
                break
            if tries >= MAX_TRIES:
                break
    return model


def _candidates(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Yield models that hold less: one output, an earlier end, a later beginning, no description of tensors."""
    values = _values(model)
    outputs = [value.name for value in model.graph.output]
    if len(outputs) > 1:
        for name in outputs:
            yield _pruned(model, [name], values)
        for name in outputs:
            yield _pruned(model, [other for other in outputs if other != name], values)
    made = [name for node in model.graph.node for name in node.output if name in values]
    for name in made:
        if [name] != outputs and name not in outputs:
            yield _pruned(model, [name], values)
    for name in reversed(made):
        if name not in outputs:
            yield _cut(model, name, values)
    if model.graph.value_info:
        plain = _copy(model)
        plain.graph.ClearField("value_info")
        yield plain


def _values(model: onnx.ModelProto) -> dict[str, Array]:
    """Return what each tensor of the main graph holds for the first sample, where that can be had."""
    feed = make_feeds(model)[0]
    whole = _copy(model)
    known = {value.name for value in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name]
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made if name not in known)
    try:
        session = session_of(whole.SerializeToString())
        names = [value.name for value in session.get_outputs()]
        pairs = zip(names, session.run(names, feed), strict=True)
    except Exception:
        return {}
    return {name: np.asarray(value) for name, value in pairs if isinstance(value, np.ndarray)}


def _pruned(model: onnx.ModelProto, outputs: list[str], values: dict[str, Array]) -> onnx.ModelProto:
    """Return the part of a model that makes these outputs."""
    part = _copy(model)
    needed, nodes = set(outputs), []
    for node in reversed(part.graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed |= _reads(node)
    described = {value.name: value for value in model.graph.output}
    ends = [
        described.get(name) or helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
        )
        for name in outputs
    ]  # fmt: skip
    kept_nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(nodes)]
    constants = [t for t in model.graph.initializer if t.name in needed]
    inputs = [value for value in model.graph.input if value.name in needed]
    for field in ("node", "output", "initializer", "input", "value_info"):
        part.graph.ClearField(field)
    part.graph.node.extend(kept_nodes)
    part.graph.output.extend(ends)
    part.graph.initializer.extend(constants)
    part.graph.input.extend(inputs)
    names = {value.name for value in inputs}
    record_inputs(part, {name: entry for name, entry in recorded_inputs(model).items() if name in names})
    return part


def _cut(model: onnx.ModelProto, name: str, values: dict[str, Array]) -> onnx.ModelProto:
    """Return a model that gets a tensor as an input, which it computed before."""
    part = _copy(model)
    array = values[name]
    for node in part.graph.node:
        for slot, output in enumerate(node.output):
            if output == name:
                node.output[slot] = f"{name} unused"
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    part.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    scale = float(np.abs(array).max()) / 3 if array.size and array.dtype.kind == "f" else 1.0
    limit = int(array.max()) + 1 if array.size and array.dtype.kind in "iu" else 2
    entry = InputRecord(tuple(array.shape), str(array.dtype), limit, scale)
    record_inputs(part, {**recorded_inputs(model), name: entry})
    return _pruned(part, [value.name for value in part.graph.output], values)


def _reads(node: onnx.NodeProto) -> set[str]:
    names = set(node.input)
    for entry in node.attribute:
        for inner in entry.g.node:
            names |= _reads(inner)
        names |= {value.name for value in entry.g.output}
    return names


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    return twin
