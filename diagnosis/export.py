"""What was found, in the words of other tools: ONNX Runtime, ai-edge-quantizer, Model Explorer, and our own rules."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from quaver.ops import Op

# From good to bad.
_COLOURS = ("#e8f5e9", "#fff59d", "#ef5350")
# The schema of node data takes numbers alone: bits, and a colour for each.
_PRECISIONS = {"int8": {"value": 8, "bgColor": "#bbdefb"}, "fp32": {"value": 32, "bgColor": "#ffe0b2"}}

_TENSOR = {"num_bits": 8, "dtype": "INT"}
_STATIC_INT8 = {
    "activation_tensor_config": {**_TENSOR, "symmetric": False, "granularity": "TENSORWISE"},
    "weight_tensor_config": {**_TENSOR, "symmetric": True, "granularity": "CHANNELWISE"},
    "compute_precision": "INTEGER",
    "explicit_dequantize": False,
    "skip_checks": False,
    "min_weight_elements": 0,
}
_FLOAT = {
    "compute_precision": "FLOAT", "explicit_dequantize": False, "skip_checks": False, "min_weight_elements": 0,
}  # fmt: skip


def nodes_to_exclude(ops: Iterable[Op], fallback: Iterable[str]) -> list[str]:
    """The graph nodes of the ops that stay in fp32, for `quantize_static(nodes_to_exclude=...)` of ONNX Runtime."""
    chosen = frozenset(fallback)
    return [node for op in ops if op.name in chosen for node in op.nodes]


def rules_yaml(rules: Mapping[str, Any]) -> str:
    """Rules as a YAML configuration of ours."""
    content = {"quantization": {"op_name_dict": dict(rules)}}
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000))


def recipe(outputs: Mapping[str, str], fallback: Iterable[str]) -> list[dict[str, Any]]:
    """A recipe for ai-edge-quantizer: static int8 for all ops but these; `outputs` names the tensor each writes.

    What is not named stays float, as in our models. An output of the model goes by the name of the op that writes it,
    so that inputs and outputs have to be named at the end, where rules that come later win.
    """
    spared = frozenset(fallback)
    chosen = [
        _rule(f"^{re.escape(tensor)};$", "*", "min_max_uniform_quantize", _STATIC_INT8)
        for name, tensor in outputs.items()
        if name not in spared
    ]
    ends = [_rule(".*", end, "no_quantize", _FLOAT) for end in ("INPUT", "OUTPUT")]
    return [*chosen, *ends] if chosen else []


def _rule(regex: str, operation: str, algorithm: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {"regex": regex, "operation": operation, "algorithm_key": algorithm, "op_config": dict(config)}


def error_data(ops: Sequence[Op], outputs: Mapping[str, str], errors: Mapping[str, float]) -> dict[str, Any]:
    """Node data for Model Explorer: the error of each op in decibels below its signal, the worst in red."""
    values = {
        key: {"value": 10 * math.log10(max(errors[op.name], 1e-12))}
        for op in ops
        if math.isfinite(errors.get(op.name, math.nan))
        for key in _keys(op, outputs)
    }
    stops = [{"stop": stop, "bgColor": colour} for stop, colour in zip((0, 0.6, 1), _COLOURS, strict=True)]
    return {"results": values, "gradient": stops}


def precision_data(ops: Sequence[Op], outputs: Mapping[str, str], precisions: Mapping[str, str]) -> dict[str, Any]:
    """Node data for Model Explorer: in how many bits each op runs."""
    values = {
        key: _PRECISIONS[precisions[op.name]]
        for op in ops
        if precisions.get(op.name) in _PRECISIONS
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
