"""Export a diagnosis to other tools: ONNX Runtime, ai-edge-quantizer, Model Explorer, and quaver's own rules."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import yaml

from quaver.ops import FP32, INT8, Op, OpConfig, Precision
from quaver.types import PlainDict, PlainMapping

Plain = object
"""Builtins, nested to any depth."""

# Colours from a small error to a large one.
_COLOURS = ("#e8f5e9", "#fff59d", "#ef5350")
# Colours of quantized ops and of float ops.
_QUANTIZED, _FLOAT = "#bbdefb", "#ffe0b2"

_DEFAULT = OpConfig(INT8)


def nodes_to_exclude(ops: Iterable[Op], fallback: Iterable[str]) -> list[str]:
    """Return the graph nodes of ops that stay in fp32, for `quantize_static(nodes_to_exclude=...)` of ONNX Runtime."""
    chosen = frozenset(fallback)
    return [node for op in ops if op.name in chosen for node in op.nodes]


def rules_yaml(rules: PlainMapping) -> str:
    """Return rules as a YAML configuration of quaver."""
    content = {"quantization": {"op_name_dict": dict(rules)}}
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000))


def recipe(
    outputs: Mapping[str, str], fallback: Iterable[str], config: Mapping[str, OpConfig] | None = None
) -> list[PlainDict]:
    """Return a recipe for ai-edge-quantizer, which quantizes all ops except the fallback.

    Ops that the recipe does not name stay float, as in quaver. A rule for an op would also match an output of the
    model, so inputs and outputs are named at the end, where later rules win.

    Args:
        outputs: the tensor that each op writes.
        fallback: the ops that stay float.
        config: the bits and modes of the ops; static int8 without it.
    """
    float_ops, choices = frozenset(fallback), config or {}
    op_rules = [
        _rule(f"^{re.escape(tensor)};$", "*", "min_max_uniform_quantize", _op_config(choices.get(name, _DEFAULT)))
        for name, tensor in outputs.items()
        if name not in float_ops
    ]
    boundary_rules = [_rule(".*", end, "no_quantize", _op_config(OpConfig(FP32))) for end in ("INPUT", "OUTPUT")]
    return [*op_rules, *boundary_rules] if op_rules else []


def _rule(regex: str, operation: str, algorithm: str, config: PlainMapping) -> PlainDict:
    return {"regex": regex, "operation": operation, "algorithm_key": algorithm, "op_config": dict(config)}


def _op_config(choice: OpConfig) -> PlainDict:
    """Return how an op runs, in the terms of ai-edge-quantizer."""
    tensor = {"num_bits": choice.precision.bits, "dtype": "INT"}
    tensors: PlainDict = {}
    if choice.mode == "static":
        tensors["activation_tensor_config"] = {**tensor, "symmetric": False, "granularity": "TENSORWISE"}
    if choice.quantized:
        tensors["weight_tensor_config"] = {**tensor, "symmetric": True, "granularity": "CHANNELWISE"}
    return {
        **tensors,
        "compute_precision": "INTEGER" if choice.mode in ("static", "dynamic") else "FLOAT",
        "explicit_dequantize": choice.mode == "weight_only",
        "skip_checks": False,
        "min_weight_elements": 0,
    }


def error_data(ops: Sequence[Op], outputs: Mapping[str, str], errors: Mapping[str, float]) -> PlainDict:
    """Return node data for Model Explorer: the error of each op in decibels below its signal, the worst in red."""
    values = {
        key: {"value": 10 * math.log10(max(errors[op.name], 1e-12))}
        for op in ops
        if math.isfinite(errors.get(op.name, math.nan))
        for key in _keys(op, outputs)
    }
    stops = [{"stop": stop, "bgColor": colour} for stop, colour in zip((0, 0.6, 1), _COLOURS, strict=True)]
    return {"results": values, "gradient": stops}


def precision_data(ops: Sequence[Op], outputs: Mapping[str, str], precisions: Mapping[str, str]) -> PlainDict:
    """Return node data for Model Explorer: the bits of each op, because its schema only takes numbers."""
    values = {
        key: {"value": precision.bits, "bgColor": _QUANTIZED if precision.quantized else _FLOAT}
        for op in ops
        if op.name in precisions
        for precision in (Precision(precisions[op.name]),)
        for key in _keys(op, outputs)
    }
    return {"results": values}


def _keys(op: Op, outputs: Mapping[str, str]) -> list[str]:
    """Return the names that the viewer may use for a node: its own, and that of its output."""
    return list(dict.fromkeys([*op.nodes, *([outputs[op.name]] if op.name in outputs else [])]))


def as_json(content: Plain) -> str:
    """Return plain data as JSON, which has no infinity and no NaN."""
    return json.dumps(finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def finite(content: Plain) -> Plain:
    """Return plain data with null for what JSON cannot write."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
