"""Neural Compressor's constraints on ops as rules of quaver: by name, by type, and for the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quaver.api.layout import is_own
from quaver.api.words.found import Problem, Reader, Said, Setting, as_list
from quaver.errors import SettingsError
from quaver.rules import ALL_TYPES, parse

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
