"""A quantized model whose activations, weights and biases are not rounded: what is left is what repairs changed."""

from __future__ import annotations

import numpy as np
import onnx

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.build.repairs import Factors, _bias_place, _transposed, as_repairable, rescaled
from quaver.ops import QuantConfig


def proto(adapter: OnnxAdapter, config: QuantConfig | None) -> onnx.ModelProto:
    """The model of a configuration."""
    model = adapter.assemble(config)
    return onnx.load_from_string(b"".join(model._serialized.chunks()))  # type: ignore[attr-defined]


def unrounded(adapter: OnnxAdapter, config: QuantConfig) -> onnx.ModelProto:
    """The model of a configuration of rescaled ops, with all that quantizes taken out."""
    model, weights = proto(adapter, config), _float_constants(adapter, config)
    constants = {tensor.name for tensor in model.graph.initializer}
    source: dict[str, str] = {}
    kept = []
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            source[node.output[0]] = node.input[0]
        elif node.op_type == "DequantizeLinear" and node.input[0] not in constants:
            source[node.output[0]] = source.get(node.input[0], node.input[0])  # some ops write integers
        elif node.output[0] not in weights:
            node.input[:] = [source.get(name, name) for name in node.input]
            kept.append(node)
    given = [value.name for value in model.graph.output if value.name in source]
    kept += [onnx.helper.make_node("Identity", [source[name]], [name]) for name in given]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    for tensor in [tensor for tensor in model.graph.initializer if tensor.name not in used]:
        model.graph.initializer.remove(tensor)
    fresh = {name: value for name, value in weights.items() if name not in constants}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in fresh.items())
    return model


def _float_constants(adapter: OnnxAdapter, config: QuantConfig) -> dict[str, np.ndarray]:
    """Weights and biases of int8 ops before they are rounded, by the names that they go by in a model."""
    builder = adapter._builder
    emitter, found = Emitter(builder, config), {}
    for unit in builder.units:
        op = as_repairable(builder.graph, unit)
        if op is None or unit.anchor not in emitter.static_choices:
            continue
        reads, writes = emitter.rescaled_inputs.get(unit.anchor), emitter.output_rescaling(unit)
        factors = Factors(
            reads=builder.rescaler.factors_of(op.reads, reads) if reads else None,
            writes=builder.rescaler.factors_of(unit.output, writes) if writes else None,
        )
        changed = rescaled(op, factors)
        weight = np.ascontiguousarray(_transposed(builder.graph, unit, changed.weight))
        if reads or writes:
            found[f"{unit.op.name}|weight|dq"] = weight
        else:
            axis = f"axis{unit.axis}" if config[unit.op.name].granularity == "per_channel" else "tensor"
            found[f"{unit.weight}|{axis}|dq"] = weight
        place = _bias_place(builder.graph, unit)
        if changed.bias is not None and place is not None and place[0] == unit.anchor:
            found[f"{unit.op.name}|bias"] = changed.bias
    return found
