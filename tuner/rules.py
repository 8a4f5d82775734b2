"""Apply the user's rules on ops: `op_name_dict` and `op_type_dict` limit how ops may run.

The value of a rule is "fp32" or "int8" (or `quaver.FP32`, or a list of them), or the long form

    {"activation": {"dtype": ["fp32"], "algorithm": ["minmax"], "scheme": ["asym"]},
     "weight": {"dtype": ["int8"], "granularity": ["per_channel"]},
     "repairs": ["smoothing:0.5", "bias_correction"]}

where `mode` (or `quant_mode`) of the activation is "static", "dynamic" or "weight_only". A weight of "int4" is
quantized in blocks, and only weights can have fewer than 8 bits; `bits` and `group_size` are other ways to write it. A
rule on a type that asks for 4 bits and nothing else applies only to the ops that have such a choice.

If only some ops of a type can do what a rule on the type asks for, the other ops stay in fp32, unless the rule forbids
fp32. The type "*" stands for all types: it fills in what the rule on an op's name or type leaves open, and an op that
cannot do what it asks for stays in fp32.

`repairs` lists exactly the repairs of every op of the rule that offers them; an empty list forbids all repairs.

A name is compared literally first, then as a regular expression that must match the whole name (see
`quaver.patterns`). The name of a node in the framework's graph stands for the whole op that contains it, and the path
of a module ("encoder.layer.0") for all ops inside (see `quaver.op_names`); as with a type, ops that cannot do what the
rule asks for stay in fp32. Rules on names override rules on types, and a later rule overrides an earlier one.

A rule on a type that always runs in fp32 changes nothing if it allows fp32 (see `rules_without_effect`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from quaver.errors import SettingsError
from quaver.op_names import matching_ops, ops_inside
from quaver.ops import (
    BLOCK_SIZES,
    CALIBRATIONS,
    DETAILS,
    FLOAT,
    INT8,
    MODES,
    PER_BLOCK,
    SCHEMES,
    Op,
    OpConfig,
    Precision,
)
from quaver.patterns import MatchBudget
from quaver.repairs import name_of, order, strength_of
from quaver.suggestions import hint
from quaver.types import PlainDict, PlainMapping, PlainValue

# The key of `op_type_dict` that stands for ops of all types.
ALL_TYPES = "*"
# Other tools' names of the same values.
_PRECISIONS = {"fp32": "fp32", "float32": "fp32", "int8": "int8", "uint8": "int8", "int4": "int4", "uint4": "int4"}
_ALIASES = {
    "kl": "entropy",
    "naive": "minmax",
    "min_max": "minmax",
    "per-channel": "per_channel",
    "per-tensor": "per_tensor",
    "per-block": PER_BLOCK,
    "per_group": PER_BLOCK,
    "per-group": PER_BLOCK,
}
# The field of `OpConfig` that each key of a rule limits, and the values that the key may have.
_FIELDS = {
    "dtype": ("precision", tuple(_PRECISIONS)),
    "algorithm": ("calibration", CALIBRATIONS),
    "granularity": ("granularity", DETAILS["granularity"]),
    "bits": ("precision", ("4", "8", "32")),
    "group_size": ("granularity", tuple(str(size) for size in sorted(BLOCK_SIZES.values()))),
    "scheme": ("scheme", SCHEMES),
    "mode": ("mode", MODES),
    "quant_mode": ("mode", MODES),
}
_PARTS = {
    "activation": ("dtype", "algorithm", "scheme", "mode", "quant_mode", "granularity"),
    "weight": ("dtype", "granularity", "scheme", "algorithm", "bits", "group_size"),
}
# Keys of a rule that allow a single value: the value, and the reason.
_FIXED = {
    ("activation", "granularity"): ("per_tensor", "activations have one scale for the whole tensor"),
    ("weight", "scheme"): ("sym", "weights are always symmetric"),
    ("weight", "algorithm"): ("minmax", "weights are always quantized over their whole range"),
}
_FIXED_IN_BLOCKS = {**_FIXED, ("weight", "scheme"): ("asym", "each block of a weight has a zero point")}
# Numbers that stand for a value.
_NUMBERS = {("bits", "4"): "int4", ("bits", "8"): "int8", ("bits", "32"): "fp32"} | {
    ("group_size", str(size)): granularity for granularity, size in BLOCK_SIZES.items()
}

_ALL_TYPES_LABEL = f"op_type_dict[{ALL_TYPES!r}]"

Constraint: TypeAlias = dict[str, frozenset[str]]
"""The allowed values of each field of `OpConfig` that a rule limits."""

_FLOAT_ONLY: Constraint = {"precision": frozenset(["fp32"])}


class _Rule(NamedTuple):
    """A rule and what errors call it."""

    label: str
    constraint: Constraint


def apply_rules(
    ops: Sequence[Op],
    op_name_dict: PlainMapping | None = None,
    op_type_dict: PlainMapping | None = None,
    float_types: Collection[str] | None = (),
) -> tuple[Op, ...]:
    """Return the ops with the choices that the rules leave.

    Args:
        ops: the ops.
        op_name_dict: rules by name.
        op_type_dict: rules by type.
        float_types: types of nodes that always run in fp32; None if they are not known, as for a recorded run whose
            rules were checked when it began.

    Raises:
        SettingsError: a rule matches no op, asks for what no op can do, or leaves an op without a choice.
    """
    rules, for_all = _rules_by_type(ops, op_type_dict or {}, float_types)
    names, budget = dict.fromkeys(op.name for op in ops), MatchBudget()
    for pattern, value in (op_name_dict or {}).items():
        label = f"op_name_dict[{pattern!r}]"
        rule = _Rule(label, parse(value, label))
        matches = [pattern] if pattern in names else matching_ops(pattern, ops, budget)
        inside = [] if matches else ops_inside(pattern, ops, budget)
        rules.update(dict.fromkeys(matches, rule))
        rules.update(_rules_of_group(label, rule.constraint, inside))
    if for_all:
        _check_repairs(ops, dict.fromkeys(names, _Rule(_ALL_TYPES_LABEL, for_all)))
    _check_repairs(ops, rules)
    limited = tuple(_limit(op, rules[op.name]) if op.name in rules else op for op in ops)
    return _limit_all(limited, for_all, rules) if for_all else limited


def _rules_by_type(
    ops: Sequence[Op], op_type_dict: PlainMapping, float_types: Collection[str] | None
) -> tuple[dict[str, _Rule], Constraint]:
    """Return the rule of each op by its type, and the constraint on ops of all types."""
    kinds: dict[str, list[str]] = {}
    for op in ops:
        kinds.setdefault(op.kind, []).append(op.name)
    rules: dict[str, _Rule] = {}
    for_all: Constraint = {}
    for kind, value in op_type_dict.items():
        if kind == ALL_TYPES and kind not in kinds:
            for_all = parse(value, _ALL_TYPES_LABEL)
            continue
        if kind not in kinds and _stays_float(kind, value, float_types):
            continue
        if kind not in kinds:
            raise SettingsError(f"op_type_dict: no op of type {kind!r} in this model; {hint(str(kind), sorted(kinds))}")
        label = f"op_type_dict[{kind!r}]"
        rules |= _rules_of_group(label, parse(value, label), [op for op in ops if op.kind == kind])
    return rules, for_all


def _rules_of_group(label: str, constraint: Constraint, group: Sequence[Op]) -> dict[str, _Rule]:
    """Return the rule of each op of a type or a module, whose ops may be of two sorts: with and without a weight."""
    able = {op.name for op in group if _is_able(op, constraint)}
    otherwise = _FLOAT_ONLY if able and "fp32" in constraint.get("precision", ("fp32",)) else constraint
    applies_to = able if able and _is_only_about_weights(constraint) else [op.name for op in group]
    return {name: _Rule(label, constraint if name in able else otherwise) for name in applies_to}


def _stays_float(kind: str, value: PlainValue, float_types: Collection[str] | None) -> bool:
    """Return True if ops of a type always run in fp32, and a rule on them allows that.

    Raises:
        SettingsError: the rule asks for less than fp32.
    """
    if float_types is not None and kind not in float_types:
        return False
    label = f"op_type_dict[{kind!r}]"
    if "fp32" not in parse(value, label).get("precision", ("fp32",)):
        raise SettingsError(f"{label} asks for less than fp32, but ops of this type always run in fp32: leave it out")
    return True


def rules_without_effect(ops: Sequence[Op], op_type_dict: PlainMapping) -> tuple[str, ...]:
    """Return the types with a rule of which no op can be quantized, so that the rule changes nothing."""
    kinds = {op.kind for op in ops}
    return tuple(str(kind) for kind in op_type_dict if kind not in kinds and kind != ALL_TYPES)


def _limit_all(ops: Sequence[Op], for_all: Constraint, rules: Mapping[str, _Rule]) -> tuple[Op, ...]:
    """Limit ops of all types by the fields that their own rules leave open."""
    limited = []
    for op in ops:
        own = rules[op.name].constraint if op.name in rules else {}
        constraint = {field: values for field, values in for_all.items() if field not in own}
        op = _with_requested_choices(op, constraint)
        repaired = _with_repairs(op, constraint["repairs"]) if "repairs" in constraint else op
        choices = tuple(choice for choice in repaired.choices if _is_allowed(choice, constraint))
        otherwise = op.choices if _is_only_about_weights(constraint) else (FLOAT,)
        smaller = tuple(choice for choice in op.smaller if _is_allowed(choice, constraint))
        limited.append(replace(repaired, choices=choices or otherwise, smaller=smaller))
    if any(op.quantizable for op in ops) and not any(op.quantizable for op in limited):
        offered = dict.fromkeys(str(choice) for op in ops for choice in op.choices)
        raise SettingsError(f"{_ALL_TYPES_LABEL} leaves only fp32 for every op; they offer: {', '.join(offered)}")
    return tuple(limited)


def parse(value: PlainValue, label: str) -> Constraint:
    """Parse the value of a rule.

    Args:
        value: the value.
        label: what errors call the rule.
    """
    if isinstance(value, OpConfig):
        fields = ("precision", *DETAILS)
        constraint = {field: frozenset([getattr(value, field)]) for field in fields if getattr(value, field)}
        return constraint | ({"repairs": frozenset(value.repairs)} if value.repairs else {})
    if isinstance(value, str) or not isinstance(value, Mapping):
        return {"precision": _values(value, "dtype", label)}
    constraint = {}
    for part, keys in value.items():
        if part == "repairs":
            constraint["repairs"] = _parse_repairs(keys, f"{label}['repairs']")
            continue
        if part not in _PARTS:
            raise SettingsError(f"{label}: unknown part {part!r}; {hint(str(part), (*_PARTS, 'repairs'))}")
        if not isinstance(keys, Mapping):
            raise SettingsError(f"{label}[{part!r}] must be a mapping like {{'dtype': ['fp32']}}, not {keys!r}")
        _parse_part(part, keys, label, constraint)
    return constraint


def _parse_part(part: str, keys: Mapping[PlainValue, PlainValue], label: str, constraint: Constraint) -> None:
    """Add the keys of the activation or of the weight to a constraint."""
    fixed = _FIXED_IN_BLOCKS if _asks_for_blocks(keys) else _FIXED
    for key, value in keys.items():
        if key not in _PARTS[part]:
            raise SettingsError(f"{label}[{part!r}]: unknown key {key!r}; {hint(str(key), _PARTS[part])}")
        place = f"{label}[{part!r}][{key!r}]"
        values = _values(value, key, place)
        only, reason = fixed.get((part, key), ("", ""))
        if not only:
            field = _FIELDS[key][0]
            constraint[field] = constraint[field] & values if field in constraint else values
        elif only not in values:
            raise SettingsError(f"{place}: {value!r} is not possible, {reason}; leave it out, or write {only!r}")


def rule_of(choice: OpConfig) -> PlainDict:
    """Return a rule that allows only one choice: the inverse of `parse`."""
    activation = {"dtype": choice.precision, "algorithm": choice.calibration, "scheme": choice.scheme}
    parts = {"activation": {**activation, "mode": choice.mode}, "weight": {"granularity": choice.granularity}}
    return {
        part: {key: [str(value)] for key, value in keys.items() if value}
        for part, keys in parts.items()
        if any(keys.values())
    }


def _asks_for_blocks(keys: Mapping[PlainValue, PlainValue]) -> bool:
    """Return True if the keys of a weight allow only four bits."""
    values = [value for key in ("dtype", "bits") if key in keys for value in _items(keys[key])]
    return bool(values) and all(str(value).lower() in ("4", "int4", "uint4") for value in values)


def _items(value: PlainValue) -> Iterable[PlainValue]:
    return [value] if isinstance(value, str) or not isinstance(value, Iterable) else value


def _values(value: PlainValue, key: str, label: str) -> frozenset[str]:
    """Return the allowed values of a key, as `OpConfig` spells them."""
    possible = _FIELDS[key][1]
    values = set()
    for item in _items(value):
        text = _ALIASES.get(str(item).lower(), str(item).lower())
        number = _NUMBERS.get((key, text)) if isinstance(item, int | str) and not isinstance(item, bool) else None
        spelled = isinstance(item, str) and (text in possible or (key == "dtype" and _is_precision(text)))
        if number is None and not spelled:
            raise SettingsError(f"{label}: {item!r} is not possible; {hint(str(item), possible)}")
        values.add(number or _PRECISIONS.get(text, text))
    if not values:
        raise SettingsError(f"{label}: the list is empty, so nothing would be allowed; {hint('', possible)}")
    return frozenset(values)


def _is_precision(text: str) -> bool:
    try:
        return bool(Precision(text))
    except ValueError:
        return False


def _parse_repairs(value: PlainValue, label: str) -> frozenset[str]:
    """Return the repairs that a rule lists."""
    repairs = list(_items(value))
    for repair in repairs:
        if not isinstance(repair, str) or not repair or repair.split() != [repair]:
            raise SettingsError(
                f"{label}: {repair!r} is not a repair; write a name like 'bias_correction' or 'smoothing:0.5'"
            )
        try:
            strength_of(repair)
        except SettingsError as error:
            raise SettingsError(f"{label}: {error}") from None
    names = [name_of(repair) for repair in repairs]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise SettingsError(f"{label}: {duplicate!r} is listed twice, but can be applied only once")
    return frozenset(repairs)


def _check_repairs(ops: Iterable[Op], rules: Mapping[str, _Rule]) -> None:
    """Refuse a rule with repairs that none of its ops offers. `rules` holds the rule of each op by its name."""
    wanted = {rule.label: rule.constraint.get("repairs", frozenset()) for rule in rules.values()}
    offered: dict[str, set[str]] = {label: set() for label in wanted}
    offered_anywhere: set[str] = set()
    for op in ops:
        names = {name_of(repair) for repair in op.repairs}
        offered_anywhere |= names
        if op.name in rules:
            offered[rules[op.name].label] |= names
    for label, repairs in wanted.items():
        for repair in sorted(repairs):
            if name_of(repair) not in offered_anywhere:
                names = offered_anywhere
                advice = hint(name_of(repair), sorted(names)) if names else "this model's ops offer none"
                raise SettingsError(f"{label}['repairs']: {repair!r} is not possible; {advice}")
            if name_of(repair) not in offered[label]:
                raise SettingsError(f"{label}['repairs']: none of the rule's ops offers {repair!r}")


def _with_repairs(op: Op, repairs: Collection[str]) -> Op:
    """Return an op whose static choices have exactly these repairs, as far as it offers them."""
    offered = {name_of(repair) for repair in op.repairs}
    applied = tuple(sorted((repair for repair in repairs if name_of(repair) in offered), key=order))
    static = MODES[0]
    choices = (
        replace(choice, repairs=applied) if choice.mode == static else choice
        for choice in op.choices
        if choice.mode == static or set(choice.repairs) <= set(repairs)
    )
    return replace(op, choices=tuple(choices), repairs=())


def _with_requested_choices(op: Op, constraint: Constraint) -> Op:
    """Return the op with its smaller choices, too, if a rule asks for one of them."""
    requested = {value for field in ("precision", "granularity") for value in constraint.get(field, ())}
    is_requested = any(requested & {choice.precision, choice.granularity} for choice in op.smaller)
    return op.with_smaller() if is_requested else op


def _is_only_about_weights(constraint: Constraint) -> bool:
    """Return True if a rule allows only fewer than 8 bits, which only weights have."""
    precisions = constraint.get("precision", frozenset())
    return bool(precisions) and all(Precision(precision) < INT8 for precision in precisions)


def _limit(op: Op, rule: _Rule) -> Op:
    """Return an op with the choices that a rule allows; refuse a rule that leaves none."""
    constraint = rule.constraint
    op = _with_requested_choices(op, constraint)
    if "repairs" in constraint:
        op = _with_repairs(op, constraint["repairs"])
    choices = tuple(choice for choice in op.choices if _is_allowed(choice, constraint))
    if not _is_able(op, constraint):
        wanted = f"{' or '.join(_quantized_precisions(op, constraint))} choice".strip()
        offered = ", ".join(str(choice) for choice in op.choices)
        raise SettingsError(f"{rule.label} leaves no {wanted} for op {op.name!r} ({op.kind}); it offers: {offered}")
    smaller = tuple(choice for choice in op.smaller if _is_allowed(choice, constraint))
    return replace(op, choices=choices, smaller=smaller)


def _is_able(op: Op, constraint: Constraint) -> bool:
    """Return True if an op has an allowed choice, and a quantized one unless the constraint rules those out."""
    choices = [choice for choice in _with_requested_choices(op, constraint).choices if _is_allowed(choice, constraint)]
    needs_quantized = bool(_quantized_precisions(op, constraint))
    return bool(choices) and (not needs_quantized or any(choice.quantized for choice in choices))


def _quantized_precisions(op: Op, constraint: Constraint) -> list[str]:
    """Return the precisions below fp32 that a constraint leaves an op."""
    precisions = constraint.get("precision", frozenset(choice.precision for choice in op.choices))
    return sorted(precision for precision in precisions if Precision(precision).quantized)


def _is_allowed(choice: OpConfig, constraint: Constraint) -> bool:
    """Return True if a choice has an allowed value in each field that it fills."""
    values = ((getattr(choice, field), allowed) for field, allowed in constraint.items() if field != "repairs")
    return all(not value or value in allowed for value, allowed in values)
