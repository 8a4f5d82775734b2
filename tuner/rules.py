"""The user's op rules: `op_name_dict` and `op_type_dict` narrow what may be chosen.

A rule's value is "fp32" or "int8" (or `quaver.FP32`, or a list of them), or the longer form

    {"activation": {"dtype": ["fp32"], "algorithm": ["minmax"], "scheme": ["asym"]},
     "weight": {"dtype": ["int8"], "granularity": ["per_channel"]},
     "repairs": ["smoothing:0.5", "bias_correction"]}

where `mode` (or `quant_mode`) of the activation is "static", "dynamic" or "weight_only". A weight of "int4" is one in
blocks, and alone in less than 8 bits; `bits` and `group_size` say the same in other words. Who has no such choice is
not meant by a rule on types that asks for nothing else.

An op that cannot do what a rule says of its type, while others of the type can, stays in fp32, unless the rule forbids
that. The type "*" stands for all types. What a rule of a name or another type does not speak of is as it says there,
and an op that cannot do what it says stays in fp32.

`repairs` are done to every op of the rule that offers them, and no others: an empty list forbids them all.
Names are matched literally first, then as regular expressions that must match the whole name (in linear time, see
`quaver.patterns`). The name of a node in the framework's own graph means the op that it is part of, as a whole. Rules
on names win over rules on types, and a later rule wins over an earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quaver.errors import SettingsError
from quaver.ops import CALIBRATIONS, DETAILS, FLOAT, INT8, MODES, PER_BLOCK, SCHEMES, Op, OpConfig, Precision
from quaver.patterns import MatchBudget, Pattern, PatternError
from quaver.repairs import name_of, order, strength_of
from quaver.suggestions import hint
from quaver.types import PlainMapping


def parse_repairs(value: Any, label: str) -> frozenset[str]:
    """Repairs as a rule lists them; none if the list is empty."""
    items = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    for item in items:
        if not isinstance(item, str) or not item or item.split() != [item]:
            raise SettingsError(
                f"{label}: {item!r} is no repair; write a name like 'bias_correction' or 'smoothing:0.5'"
            )
        try:
            strength_of(item)
        except SettingsError as error:
            raise SettingsError(f"{label}: {error}") from None
    twice = next((name for name in map(name_of, items) if [name_of(item) for item in items].count(name) > 1), None)
    if twice is not None:
        raise SettingsError(f"{label}: {twice!r} can be done once, and is listed twice")
    return frozenset(items)


def check_repairs(asked: Mapping[str, Collection[str]], ops: Iterable[Op], chosen: PlainMapping) -> None:
    """Refuse a rule whose repairs no op that it is for offers. `chosen` holds by op which rule that is."""
    known: dict[str, set[str]] = {label: set() for label in asked}
    everywhere: set[str] = set()
    for op in ops:
        names = {name_of(one) for one in op.repairs}
        everywhere |= names
        if op.name in chosen:
            known[chosen[op.name][0]] |= names
    for label, repairs in asked.items():
        for one in sorted(repairs):
            if name_of(one) not in everywhere:
                offered = hint(name_of(one), sorted(everywhere)) if everywhere else "this model's ops offer none"
                raise SettingsError(f"{label}['repairs']: {one!r} is not possible; {offered}")
            if name_of(one) not in known[label]:
                raise SettingsError(f"{label}['repairs']: no op that it is for offers {one!r}")


def with_repairs(op: Op, repairs: Collection[str]) -> Op:
    """An op whose static choices are given those of these repairs that it offers, and no others."""
    names = {name_of(one) for one in op.repairs}
    wanted = tuple(sorted((one for one in repairs if name_of(one) in names), key=order))
    choices = (replace(one, repairs=wanted) if one.mode == MODES[0] else one for one in op.choices)
    return replace(op, choices=tuple(choices), repairs=())


# The key of `op_type_dict` that stands for ops of all types.
ALL_TYPES = "*"
# What users of other tools write for the same thing.
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
_FIELDS = {
    "dtype": ("precision", tuple(_PRECISIONS)),
    "algorithm": ("calibration", CALIBRATIONS),
    "granularity": ("granularity", DETAILS["granularity"]),
    "bits": ("precision", ("4", "8", "32")),
    "group_size": ("granularity", ("64",)),
    "scheme": ("scheme", SCHEMES),
    "mode": ("mode", MODES),
    "quant_mode": ("mode", MODES),
}
_PARTS = {
    "activation": ("dtype", "algorithm", "scheme", "mode", "quant_mode", "granularity"),
    "weight": ("dtype", "granularity", "scheme", "algorithm", "bits", "group_size"),
}
# What may be said of a part but not chosen: its one value, and why.
_FIXED = {
    ("activation", "granularity"): ("per_tensor", "activations have one scale for the whole tensor"),
    ("weight", "scheme"): ("sym", "weights are always symmetric"),
    ("weight", "algorithm"): ("minmax", "weights are always quantized over their whole range"),
}

_IN_BLOCKS = {**_FIXED, ("weight", "scheme"): ("asym", "each block of a weight has a zero point")}
# What numbers of other tools mean.
_NUMBERS = {("bits", "4"): "int4", ("bits", "8"): "int8", ("bits", "32"): "fp32", ("group_size", "64"): PER_BLOCK}

_EVERY = f"op_type_dict[{ALL_TYPES!r}]"

Constraint = dict[str, frozenset[str]]
_IN_FLOAT: Constraint = {"precision": frozenset(["fp32"])}


def apply_rules(
    ops: Sequence[Op], op_name_dict: PlainMapping | None = None, op_type_dict: PlainMapping | None = None
) -> tuple[Op, ...]:
    """The ops with the choices that the rules leave."""
    chosen: dict[str, tuple[str, Constraint]] = {}
    kinds: dict[str, list[str]] = {}
    for op in ops:
        kinds.setdefault(op.kind, []).append(op.name)
    every: Constraint = {}
    for kind, value in (op_type_dict or {}).items():
        if kind == ALL_TYPES and kind not in kinds:
            every = parse(value, _EVERY)
            continue
        if kind not in kinds:
            raise SettingsError(f"op_type_dict: no op of type {kind!r} in this model; {hint(str(kind), sorted(kinds))}")
        label = f"op_type_dict[{kind!r}]"
        wish = parse(value, label)
        able = {op.name for op in ops if op.kind == kind and _able(op, wish)}
        # A type may have ops of two sorts, as products with a weight and without.
        others = _IN_FLOAT if able and "fp32" in wish.get("precision", ("fp32",)) else wish
        meant = able if able and _of_weights_alone(wish) else kinds[kind]
        chosen.update({name: (label, wish if name in able else others) for name in meant})
    budget, names = MatchBudget(), dict.fromkeys(op.name for op in ops)
    for pattern, value in (op_name_dict or {}).items():
        label = f"op_name_dict[{pattern!r}]"
        rule = label, parse(value, label)
        chosen.update(dict.fromkeys([pattern] if pattern in names else _matching(pattern, ops, budget), rule))
    if every:
        check_repairs({_EVERY: every.get("repairs", ())}, ops, dict.fromkeys(names, (_EVERY, every)))
    check_repairs({label: wish.get("repairs", ()) for label, wish in chosen.values()}, ops, chosen)
    narrowed = [_narrow(op, *chosen[op.name]) if op.name in chosen else op for op in ops]
    return (
        _everywhere(narrowed, every, {name: wish for name, (_, wish) in chosen.items()}) if every else tuple(narrowed)
    )


def _everywhere(ops: Sequence[Op], every: Constraint, said: Mapping[str, Constraint]) -> tuple[Op, ...]:
    """The ops with what is wished of all of them, as far as their own rules do not speak of it."""
    found = []
    for op in ops:
        wish = {field: values for field, values in every.items() if field not in said.get(op.name, {})}
        op = _asked(op, wish)
        repaired = with_repairs(op, wish["repairs"]) if "repairs" in wish else op
        left = tuple(choice for choice in repaired.choices if _allowed(choice, wish))
        otherwise = op.choices if _of_weights_alone(wish) else (FLOAT,)
        smaller = tuple(choice for choice in op.smaller if _allowed(choice, wish))
        found.append(replace(repaired, choices=left or otherwise, smaller=smaller))
    if any(op.quantizable for op in ops) and not any(op.quantizable for op in found):
        offered = dict.fromkeys(str(choice) for op in ops for choice in op.choices)
        raise SettingsError(f"{_EVERY} leaves no choice but fp32 for any op; they offer: {', '.join(offered)}")
    return tuple(found)


def _matching(pattern: Any, ops: Sequence[Op], budget: MatchBudget) -> list[str]:
    try:
        expression = Pattern(pattern, budget)
        matches = [op.name for op in ops if expression.matches(op.name)]
        if not matches:  # the name of a node, as the framework's own graph has it
            matches = [op.name for op in ops if pattern in op.nodes]
            matches = matches or [op.name for op in ops if any(expression.matches(node) for node in op.nodes)]
            matches = matches or _named_inside(str(pattern), ops)
    except PatternError as error:
        raise SettingsError(f"op_name_dict: {pattern!r:.200} is no op and no regular expression ({error})") from None
    if not matches:
        advice = hint(str(pattern), [op.name for op in ops])
        raise SettingsError(
            f"op_name_dict: {pattern!r} matches no op of this model (the whole name must match); {advice}"
        )
    return matches


def _named_inside(path: str, ops: Sequence[Op]) -> list[str]:
    """The one op that a node's path tells: its name, with a scope before it or a node behind it, or both.

    A converter drops the scope that all nodes share, and calls an op after its layer: v0/conv0/Conv2D is conv0.
    """
    steps = path.split("/")
    inner = {"/".join(part) for part in (steps, steps[1:], steps[:-1], steps[1:-1]) if part}
    found = [op.name for op in ops if op.name in inner]
    return found if len(found) == 1 and len(steps) > 1 else []


def parse(value: Any, label: str) -> Constraint:
    """A rule's value as {OpConfig field: allowed values}."""
    if isinstance(value, OpConfig):
        told = {field: frozenset([getattr(value, field)]) for field in ("precision", *DETAILS) if getattr(value, field)}
        return told | ({"repairs": frozenset(value.repairs)} if value.repairs else {})
    if isinstance(value, str) or not isinstance(value, Mapping):
        return {"precision": _values(value, "dtype", label)}
    wish: Constraint = {}
    for part, fields in value.items():
        if part == "repairs":
            wish["repairs"] = parse_repairs(fields, f"{label}['repairs']")
            continue
        if part not in _PARTS:
            raise SettingsError(f"{label}: unknown part {part!r}; {hint(str(part), (*_PARTS, 'repairs'))}")
        if not isinstance(fields, Mapping):
            raise SettingsError(f"{label}[{part!r}] must be a mapping like {{'dtype': ['fp32']}}, not {fields!r}")
        for field, wanted in fields.items():
            if field not in _PARTS[part]:
                raise SettingsError(f"{label}[{part!r}]: unknown key {field!r}; {hint(str(field), _PARTS[part])}")
            where = f"{label}[{part!r}][{field!r}]"
            values = _values(wanted, field, where)
            only, why = (_IN_BLOCKS if _asks_for_blocks(fields) else _FIXED).get((part, field), ("", ""))
            if not only:
                name = _FIELDS[field][0]
                wish[name] = wish[name] & values if name in wish else values
            elif only not in values:
                raise SettingsError(f"{where}: {wanted!r} is not possible, {why}; leave it out, or write {only!r}")
    return wish


def _asks_for_blocks(fields: PlainMapping) -> bool:
    """Whether what is said of a weight asks for four bits and nothing else."""
    said = [value for key in ("dtype", "bits") if key in fields for value in _items(fields[key])]
    return bool(said) and all(str(value).lower() in ("4", "int4", "uint4") for value in said)


def _items(wanted: Any) -> Iterable[Any]:
    return [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else wanted


def _values(wanted: Any, field: str, label: str) -> frozenset[str]:
    known = _FIELDS[field][1]
    values = set()
    for item in _items(wanted):
        text = _ALIASES.get(str(item).lower(), str(item).lower())
        number = _NUMBERS.get((field, text)) if isinstance(item, int | str) and not isinstance(item, bool) else None
        spelled = isinstance(item, str) and (text in known or (field == "dtype" and _is_precision(text)))
        if number is None and not spelled:
            raise SettingsError(f"{label}: {item!r} is not possible; {hint(str(item), known)}")
        values.add(number or _PRECISIONS.get(text, text))
    if not values:
        raise SettingsError(f"{label}: the list is empty, so nothing would be allowed; {hint('', known)}")
    return frozenset(values)


def _is_precision(text: str) -> bool:
    try:
        return bool(Precision(text))
    except ValueError:
        return False


def _asked(op: Op, wish: Constraint) -> Op:
    """The op with all choices that it has, if a rule asks for what is not on offer by itself."""
    named = {value for field in ("precision", "granularity") for value in wish.get(field, ())}
    return op.with_smaller() if any(named & {one.precision, one.granularity} for one in op.smaller) else op


def _of_weights_alone(wish: Constraint) -> bool:
    """Whether a rule asks for nothing but fewer than 8 bits, which only weights have."""
    wanted = wish.get("precision", frozenset())
    return bool(wanted) and all(Precision(one) < INT8 for one in wanted)


def _narrow(op: Op, label: str, wish: Constraint) -> Op:
    op = _asked(op, wish)
    if "repairs" in wish:
        op = with_repairs(op, wish["repairs"])
    left = tuple(choice for choice in op.choices if _allowed(choice, wish))
    if not _able(op, wish):
        quantized = _reduced(op, wish)
        what = f"{' or '.join(quantized)} choice".strip()
        offered = ", ".join(str(choice) for choice in op.choices)
        raise SettingsError(f"{label} leaves no {what} for op {op.name!r} ({op.kind}); it offers: {offered}")
    return replace(op, choices=left, smaller=tuple(choice for choice in op.smaller if _allowed(choice, wish)))


def _able(op: Op, wish: Constraint) -> bool:
    """Whether an op has a choice that is as wished, and a reduced one if those are not ruled out."""
    left = [choice for choice in _asked(op, wish).choices if _allowed(choice, wish)]
    return bool(left) and (not _reduced(op, wish) or any(choice.quantized for choice in left))


def _reduced(op: Op, wish: Constraint) -> list[str]:
    """The reduced precisions that a wish leaves an op."""
    precisions = wish.get("precision", frozenset(choice.precision for choice in op.choices))
    return sorted(wanted for wanted in precisions if Precision(wanted).quantized)


def _allowed(choice: OpConfig, wish: Constraint) -> bool:
    """Whether a choice is as wished. What says nothing about it is not looked at."""
    said = ((getattr(choice, field), values) for field, values in wish.items() if field != "repairs")
    return all(not value or value in values for value, values in said)
