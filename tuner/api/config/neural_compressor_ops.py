"""Translate Neural Compressor's rules on ops and its recipes: smoothing, bias correction, switches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from quaver.adapters.repairs.base import repairs
from quaver.api.config.layout import is_own
from quaver.api.config.translation import (
    IgnoredSetting,
    Problem,
    TranslatedKey,
    TranslatedSetting,
    Translator,
    YamlMapping,
    as_list,
)
from quaver.errors import SettingsError
from quaver.rules import ALL_TYPES, parse
from quaver.suggestions import hint
from quaver.types import PlainValue

# Names of the repairs that recipes turn on.
SMOOTHING = "smoothing"
BIAS_CORRECTION = "bias_correction"

# Switches: the value that needs no setting, and what to do for the other one.
_BY_NAME = "write op_name_dict: {NAME: fp32} for those ops; `quaver profile` and `quaver diagnose` list the names"
_SWITCHES: dict[str, tuple[bool, str]] = {
    "first_conv_or_matmul_quantization": (True, _BY_NAME),
    "last_conv_or_matmul_quantization": (True, _BY_NAME),
    "pre_post_process_quantization": (True, _BY_NAME),
    "ffn_matmul_quantization": (True, _BY_NAME),
    "scale_propagation_max_pooling": (True, "a pool always shares the scale of its input; leave it out"),
    "scale_propagation_concat": (
        True,
        "inputs of a Concat share a scale where that is faster; leave it out",
    ),
    "weight_correction": (False, f"use fast_bias_correction, which is the repair {BIAS_CORRECTION!r}"),
    "layer_wise_quant": (False, "weights are read from the model file as they are needed; leave it out"),
    "add_qdq_pair_to_weight": (False, "it is for TensorRT, and quaver's models run on the CPU; leave it out"),
    "dedicated_qdq_pair": (False, "it is for TensorRT, and quaver's models run on the CPU; leave it out"),
}
_WEIGHT_ONLY = ("rtn_args", "awq_args", "gptq_args", "teq_args", "autoround_args")
_UNSUPPORTED = {
    "optypes_to_exclude_output_quant": "an op's output is quantized where that pays; write op_type_dict: {TYPE: fp32}",
    **dict.fromkeys(_WEIGHT_ONLY, "belongs to 4-bit weight-only quantization of language models; leave it out"),
}
_LEVELS = ("ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")
_RECIPES = (
    "smooth_quant",
    "smooth_quant_args",
    "fast_bias_correction",
    "gemm_to_matmul",
    "graph_optimization_level",
    *_SWITCHES,
    *_UNSUPPORTED,
)


def recipes(key: str, value: PlainValue) -> Iterable[TranslatedKey]:
    """Translate all recipes together, because some depend on others."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping such as {{smooth_quant: true}}, not {value!r:.60}")]
    translated: list[TranslatedKey] = []
    for name, part in value.items():
        place = f"{key}.{name}"
        if name in _SWITCHES:
            translated += _switch(place, part, *_SWITCHES[name])
        elif name == "graph_optimization_level":
            translated += _level(place, part)
        elif name == "gemm_to_matmul":
            translated.append(IgnoredSetting(place, "a Gemm is quantized as it is"))
        elif name not in _RECIPES:
            translated.append(Problem(place, f"unknown recipe; {hint(str(name), _RECIPES)}"))
        elif name in _UNSUPPORTED and part:
            translated.append(Problem(place, _UNSUPPORTED[name]))
    return [*translated, *_repairs(key, value)]


def _switch(place: str, value: PlainValue, usual: bool, advice: str) -> Iterator[TranslatedKey]:
    if not isinstance(value, bool):
        yield Problem(place, f"must be true or false, not {value!r}")
    elif value is not usual:
        yield Problem(place, f"{value} has no counterpart: {advice}")


def _level(place: str, value: PlainValue) -> Iterator[TranslatedKey]:
    if value == "DISABLE_ALL":
        yield TranslatedSetting("optimise_float", False)
    elif value in _LEVELS:
        yield TranslatedSetting("optimise_float", True)
    elif value is not None:
        yield Problem(place, f"unknown level {value!r}; {hint(str(value), ('DISABLE_ALL', *_LEVELS))}")


def _repairs(key: str, value: YamlMapping) -> Iterator[TranslatedKey]:
    """Translate smoothing and bias correction into a rule on all ops. Without these recipes the search decides."""
    strength, problems = _smoothing_strength(key, value.get("smooth_quant_args") or {})
    yield from problems
    offered = [repair.name for repair in repairs()]
    spelled = {"smooth_quant": SMOOTHING, "fast_bias_correction": BIAS_CORRECTION}
    switched: dict[str, bool] = {}
    for recipe, repair in spelled.items():
        switch = value.get(recipe)
        if switch is not None and not isinstance(switch, bool):
            yield Problem(f"{key}.{recipe}", f"must be true or false, not {switch!r}")
        elif switch and repair not in offered:
            names = ", ".join(offered) or "none"
            problem = f"the repair {repair!r} is not offered here (there is {names}); leave it out"
            yield Problem(f"{key}.{recipe}", problem)
        elif switch is not None:
            switched[recipe] = switch
    if isinstance(strength, float):
        spelled["smooth_quant"] = f"{SMOOTHING}:{strength:g}"
    if switched and offered and not (strength == "auto" and switched.get("smooth_quant")):
        names_on = [spelled[recipe] for recipe, is_on in switched.items() if is_on]
        yield TranslatedSetting("op_type_dict", {ALL_TYPES: {"repairs": names_on}})


def _smoothing_strength(key: str, arguments: PlainValue) -> tuple[float | str | None, list[TranslatedKey]]:
    """Return the alpha of `smooth_quant_args`, "auto" where it is searched, and what the other arguments mean."""
    if not isinstance(arguments, Mapping):
        problem = f"must be a mapping such as {{alpha: 0.5}}, not {arguments!r:.60}"
        return None, [Problem(f"{key}.smooth_quant_args", problem)]
    strength: float | str | None = None
    translated: list[TranslatedKey] = []
    for name, value in arguments.items():
        place = f"{key}.smooth_quant_args.{name}"
        if name == "folding":
            translated.append(IgnoredSetting(place, "smoothing is always folded into the model"))
        elif name != "alpha":
            problem = "the strength is searched by the error at the outputs; leave it out"
            translated.append(Problem(place, problem))
        elif value == "auto":
            strength = "auto"
        elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            strength = float(value)
        else:
            problem = f"must be a number from 0 to 1, or 'auto', not {value!r}; 'auto' searches it"
            translated.append(Problem(place, problem))
    return strength, translated


# Only the weight-only quantization of large language models has other values.
_BLOCKWISE = "quaver's weights are in 8 bits with a scale for each channel or one for all, or in 4 with blocks of 64"
_COUNTERPARTS = {"bits": 4, "group_size": 64}


def rules_of(setting: str) -> Translator:
    """Return a translator of `op_name_dict` or `op_type_dict`, which have several names."""

    def translator(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
        if not isinstance(value, Mapping):
            return None if is_own(key) else [Problem(key, f"must be a mapping of rules, not {value!r:.60}")]
        translated: list[TranslatedKey] = []
        rules = {}
        for pattern, rule in value.items():
            rules[pattern], problems = _rule(rule, f"{key}[{pattern!r}]")
            translated += problems
        if "default_qconfig" in rules:
            problem = f"is of PyTorch; write op_type_dict: {{{ALL_TYPES!r}: …}}"
            translated.append(Problem(f"{key}['default_qconfig']", problem))
        if not translated and rules == value and is_own(key):
            return None
        return [*translated, TranslatedSetting(setting, rules)]

    return translator


def model_wise(key: str, value: PlainValue) -> Iterable[TranslatedKey]:
    """Translate `model_wise`, a rule on ops of all types."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping with 'activation' and 'weight', not {value!r:.60}")]
    rule, problems = _rule(value, key)
    if "dtype" in value.get("activation", ()) and isinstance(rule.get("weight"), dict):
        rule["weight"].pop("dtype", None)  # the activation decides whether an op is fp32
    return [*problems, TranslatedSetting("op_type_dict", {ALL_TYPES: rule})]


def _rule(rule: PlainValue, label: str) -> tuple[PlainValue, list[Problem]]:
    """Return a rule as quaver writes it, and a problem for each part without counterpart."""
    if not isinstance(rule, Mapping):
        return rule, list(_refused(rule, label, label))
    parts: dict[PlainValue, PlainValue] = {}
    problems: list[Problem] = []
    for part, fields in rule.items():
        if not isinstance(fields, Mapping):
            parts[part] = fields
            problems += _refused({part: fields}, label, f"{label}[{part!r}]")
            continue
        translated = parts[part] = {}
        for field, value in fields.items():
            place = f"{label}[{part!r}][{field!r}]"
            values = as_list(value) if isinstance(value, str) and "," in value else value
            if field == "bits" and as_list(value) == [8]:
                continue
            if field in _COUNTERPARTS and as_list(value) != [_COUNTERPARTS[field]]:
                problems.append(Problem(place, f"{value!r} has no counterpart: {_BLOCKWISE}; leave it out"))
                continue
            translated[field] = values
            context = {"bits": 4} if field == "scheme" and as_list(fields.get("bits")) == [4] else {}
            problems += _refused({part: {**context, field: values}}, label, place)
    return parts, problems


def _refused(rule: PlainValue, label: str, place: str) -> Iterator[Problem]:
    """Yield the problem of a rule that quaver refuses."""
    try:
        parse(rule, label)
    except SettingsError as error:
        yield Problem(place, str(error).removeprefix(f"{place}: ").removeprefix(f"{label}: "))
