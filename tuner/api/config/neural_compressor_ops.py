"""Neural Compressor's recipes: smoothing and bias correction, and what quaver always or never does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quaver.adapters.repairs.base import repairs
from quaver.api.config.layout import is_own
from quaver.api.config.translation import IgnoredSetting, Problem, Reader, Said, Setting, as_list
from quaver.errors import SettingsError
from quaver.rules import ALL_TYPES, parse
from quaver.suggestions import hint

# The repairs that recipes ask for.
SMOOTHING = "smoothing"
BIAS_CORRECTION = "bias_correction"

# Switches: their usual value, at which there is nothing to do, and what to do for the other one.
_BY_NAME = "write op_name_dict: {NAME: fp32} for those ops; `quaver profile` and `quaver diagnose` list the names"
_SWITCHES: dict[str, tuple[bool, str]] = {
    "first_conv_or_matmul_quantization": (True, _BY_NAME),
    "last_conv_or_matmul_quantization": (True, _BY_NAME),
    "pre_post_process_quantization": (True, _BY_NAME),
    "ffn_matmul_quantization": (True, _BY_NAME),
    "scale_propagation_max_pooling": (True, "a pool always shares the scale of its input; leave it out"),
    "scale_propagation_concat": (
        True,
        "each input of a Concat has its own scale or shares one, as is faster; leave it out",
    ),
    "weight_correction": (False, f"use fast_bias_correction, which is the repair {BIAS_CORRECTION!r}"),
    "layer_wise_quant": (False, "weights are read from the model file as they are needed; leave it out"),
    "add_qdq_pair_to_weight": (False, "it is for TensorRT, and quaver's models are for the CPU; leave it out"),
    "dedicated_qdq_pair": (False, "it is for TensorRT, and quaver's models are for the CPU; leave it out"),
}
_WEIGHT_ONLY = ("rtn_args", "awq_args", "gptq_args", "teq_args", "autoround_args")
_LEVELS = ("ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")
_KNOWN = (
    "smooth_quant",
    "smooth_quant_args",
    "fast_bias_correction",
    "gemm_to_matmul",
    "graph_optimization_level",
    "optypes_to_exclude_output_quant",
    *_SWITCHES,
    *_WEIGHT_ONLY,
)


def recipes(key: str, value: Any) -> Iterable[Said]:
    """All recipes together: some go with others."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping such as {{smooth_quant: true}}, not {value!r:.60}")]
    found: list[Said] = []
    for name, wanted in value.items():
        where = f"{key}.{name}"
        if name in _SWITCHES:
            found += _switch(where, wanted, *_SWITCHES[name])
        elif name == "graph_optimization_level":
            found += _level(where, wanted)
        elif name == "gemm_to_matmul":
            found.append(IgnoredSetting(where, "a Gemm is quantized as it stands"))
        elif name == "optypes_to_exclude_output_quant":
            if wanted:
                found.append(
                    Problem(where, "an op's output is quantized if that pays; write op_type_dict: {TYPE: fp32}")
                )
        elif name in _WEIGHT_ONLY:
            if wanted:
                found.append(Problem(where, "belongs to weight-only 4 bits of language models; leave it out"))
        elif name not in _KNOWN:
            found.append(Problem(where, f"unknown recipe; {hint(str(name), _KNOWN)}"))
    return [*found, *_repairs(key, value)]


def _switch(where: str, wanted: Any, usual: bool, instead: str) -> Iterator[Said]:
    if not isinstance(wanted, bool):
        yield Problem(where, f"must be true or false, not {wanted!r}")
    elif wanted is not usual:
        yield Problem(where, f"{wanted} has no counterpart: {instead}")


def _level(where: str, wanted: Any) -> Iterator[Said]:
    if wanted == "DISABLE_ALL":
        yield Setting("optimise_float", False)
    elif wanted in _LEVELS:
        yield Setting("optimise_float", True)
    elif wanted is not None:
        yield Problem(where, f"unknown level {wanted!r}; {hint(str(wanted), ('DISABLE_ALL', *_LEVELS))}")


def _repairs(key: str, value: Mapping[Any, Any]) -> Iterator[Said]:
    """Which repairs are done to every op that offers them. If no recipe speaks of one, the search decides op by op."""
    offered = [repair.name for repair in repairs()]
    spelled = {"smooth_quant": SMOOTHING, "fast_bias_correction": BIAS_CORRECTION}
    searched = False
    args = value.get("smooth_quant_args") or {}
    if not isinstance(args, Mapping):
        yield Problem(f"{key}.smooth_quant_args", f"must be a mapping such as {{alpha: 0.5}}, not {args!r:.60}")
        args = {}
    for name, told in args.items():
        where = f"{key}.smooth_quant_args.{name}"
        if name == "folding":
            yield IgnoredSetting(where, "what smoothing moves is always folded into the model")
        elif name != "alpha":
            yield Problem(where, "the strength is searched by the error at the outputs; leave it out")
        elif told == "auto":
            searched = True
        elif isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told <= 1:
            spelled["smooth_quant"] = f"{SMOOTHING}:{float(told):g}"
        else:
            yield Problem(where, f"must be a number from 0 to 1, or 'auto', not {told!r}; 'auto' searches it")
    wanted: dict[str, bool] = {}
    for recipe in spelled:
        told, repair = value.get(recipe), spelled[recipe].partition(":")[0]
        if told is not None and not isinstance(told, bool):
            yield Problem(f"{key}.{recipe}", f"must be true or false, not {told!r}")
        elif told and repair not in offered:
            known = ", ".join(offered) or "none"
            yield Problem(
                f"{key}.{recipe}", f"the repair {repair!r} is not offered here (there is {known}); leave it out"
            )
        elif told is not None:
            wanted[recipe] = told
    if wanted and offered and not (searched and wanted.get("smooth_quant")):
        yield Setting(
            "op_type_dict", {ALL_TYPES: {"repairs": [spelled[name] for name, told in wanted.items() if told]}}
        )


# What only the weight-only quantization of large language models has.
_BLOCKWISE = "quaver's weights are in 8 bits with a scale for each channel or one for all, or in 4 with blocks of 64"
_COUNTERPARTS = {"bits": 4, "group_size": 64}


def rules_of(setting: str) -> Reader:
    """A reader of `op_name_dict` or `op_type_dict`, by whatever name it goes."""

    def read(key: str, value: Any) -> Iterable[Said] | None:
        if not isinstance(value, Mapping):
            return None if is_own(key) else [Problem(key, f"must be a mapping of rules, not {value!r:.60}")]
        found: list[Said] = []
        rules = {}
        for pattern, rule in value.items():
            rules[pattern], problems = _rule(rule, f"{key}[{pattern!r}]")
            found += problems
        if "default_qconfig" in rules:
            found.append(
                Problem(f"{key}['default_qconfig']", f"is of PyTorch; write op_type_dict: {{{ALL_TYPES!r}: …}}")
            )
        if not found and rules == value and is_own(key):
            return None
        return [*found, Setting(setting, rules)]

    return read


def model_wise(key: str, value: Any) -> Iterable[Said]:
    """`model_wise`: a rule for the ops of all types."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping with 'activation' and 'weight', not {value!r:.60}")]
    rule, problems = _rule(value, key)
    if "dtype" in value.get("activation", ()) and isinstance(rule.get("weight"), dict):
        rule["weight"].pop("dtype", None)  # whether an op is fp32 is said of its activation
    return [*problems, Setting("op_type_dict", {ALL_TYPES: rule})]


def _rule(rule: Any, label: str) -> tuple[Any, list[Problem]]:
    """A rule in quaver's words, and every part of it that there is none for."""
    if not isinstance(rule, Mapping):
        return rule, list(_refused(rule, label, label))
    parts: dict[Any, Any] = {}
    problems: list[Problem] = []
    for part, fields in rule.items():
        if not isinstance(fields, Mapping):
            parts[part] = fields
            problems += _refused({part: fields}, label, f"{label}[{part!r}]")
            continue
        kept = parts[part] = {}
        for field, wanted in fields.items():
            where = f"{label}[{part!r}][{field!r}]"
            values = as_list(wanted) if isinstance(wanted, str) and "," in wanted else wanted
            if field == "bits" and as_list(wanted) == [8]:
                continue
            if field in _COUNTERPARTS and as_list(wanted) != [_COUNTERPARTS[field]]:
                problems.append(Problem(where, f"{wanted!r} has no counterpart: {_BLOCKWISE}; leave it out"))
                continue
            kept[field] = values
            beside = {"bits": 4} if field == "scheme" and as_list(fields.get("bits")) == [4] else {}
            problems += _refused({part: {**beside, field: values}}, label, where)
    return parts, problems


def _refused(rule: Any, label: str, where: str) -> Iterator[Problem]:
    try:
        parse(rule, label)
    except SettingsError as error:
        yield Problem(where, str(error).removeprefix(f"{where}: ").removeprefix(f"{label}: "))
