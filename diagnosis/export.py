"""What was found, in the words of other tools: ONNX Runtime, ai-edge-quantizer, Model Explorer, and our own rules."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from quaver.ops import FP32, INT8, Op, OpConfig, Precision
from quaver.types import PlainDict, PlainMapping

# From good to bad.
_COLOURS = ("#e8f5e9", "#fff59d", "#ef5350")
# Of what is reduced, and of what is not.
_REDUCED, _FLOAT = "#bbdefb", "#ffe0b2"

_DEFAULT = OpConfig(INT8)


def nodes_to_exclude(ops: Iterable[Op], fallback: Iterable[str]) -> list[str]:
    """The graph nodes of the ops that stay in fp32, for `quantize_static(nodes_to_exclude=...)` of ONNX Runtime."""
    chosen = frozenset(fallback)
    return [node for op in ops if op.name in chosen for node in op.nodes]


def rules_yaml(rules: PlainMapping) -> str:
    """Rules as a YAML configuration of ours."""
    content = {"quantization": {"op_name_dict": dict(rules)}}
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000))


def recipe(
    outputs: Mapping[str, str], fallback: Iterable[str], config: Mapping[str, OpConfig] | None = None
) -> list[PlainDict]:
    """A recipe for ai-edge-quantizer: all ops but these are quantized, in the bits and the mode of a configuration.

    `outputs` names the tensor that each op writes; without a configuration static int8 is meant. What is not named
    stays float, as in our models. An output of the model goes by the name of the op that writes it, so that inputs and
    outputs have to be named at the end, where rules that come later win.
    """
    spared, known = frozenset(fallback), config or {}
    chosen = [
        _rule(f"^{re.escape(tensor)};$", "*", "min_max_uniform_quantize", _way(known.get(name, _DEFAULT)))
        for name, tensor in outputs.items()
        if name not in spared
    ]
    ends = [_rule(".*", end, "no_quantize", _way(OpConfig(FP32))) for end in ("INPUT", "OUTPUT")]
    return [*chosen, *ends] if chosen else []


def _rule(regex: str, operation: str, algorithm: str, config: PlainMapping) -> PlainDict:
    return {"regex": regex, "operation": operation, "algorithm_key": algorithm, "op_config": dict(config)}


def _way(pick: OpConfig) -> PlainDict:
    """How an op runs, in the quantizer's words."""
    tensor = {"num_bits": pick.precision.bits, "dtype": "INT"}
    tensors: PlainDict = {}
    if pick.mode == "static":
        tensors["activation_tensor_config"] = {**tensor, "symmetric": False, "granularity": "TENSORWISE"}
    if pick.quantized:
        tensors["weight_tensor_config"] = {**tensor, "symmetric": True, "granularity": "CHANNELWISE"}
    return {
        **tensors,
        "compute_precision": "INTEGER" if pick.mode in ("static", "dynamic") else "FLOAT",
        "explicit_dequantize": pick.mode == "weight_only",
        "skip_checks": False,
        "min_weight_elements": 0,
    }


def error_data(ops: Sequence[Op], outputs: Mapping[str, str], errors: Mapping[str, float]) -> PlainDict:
    """Node data for Model Explorer: the error of each op in decibels below its signal, the worst in red."""
    values = {
        key: {"value": 10 * math.log10(max(errors[op.name], 1e-12))}
        for op in ops
        if math.isfinite(errors.get(op.name, math.nan))
        for key in _keys(op, outputs)
    }
    stops = [{"stop": stop, "bgColor": colour} for stop, colour in zip((0, 0.6, 1), _COLOURS, strict=True)]
    return {"results": values, "gradient": stops}


def precision_data(ops: Sequence[Op], outputs: Mapping[str, str], precisions: Mapping[str, str]) -> PlainDict:
    """Node data for Model Explorer: in how many bits each op runs; its schema takes numbers alone."""
    values = {
        key: {"value": precision.bits, "bgColor": _REDUCED if precision.quantized else _FLOAT}
        for op in ops
        if op.name in precisions
        for precision in (Precision(precisions[op.name]),)
        for key in _keys(op, outputs)
    }
    return {"results": values}


def _keys(op: Op, outputs: Mapping[str, str]) -> list[str]:
    """What the viewer may know a node by: its own name, or that of the tensor it writes."""
    return list(dict.fromkeys([*op.nodes, *([outputs[op.name]] if op.name in outputs else [])]))


def as_json(content: Any) -> str:
    """Plain data as JSON, which knows no infinity and no NaN."""
    return json.dumps(finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def finite(content: Any) -> Any:
    """Plain data with null for what JSON cannot write."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
