"""What rules say about repairs: those an op is given, or none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from quaver.errors import SettingsError
from quaver.nearest import hint
from quaver.ops import MODES, Op
from quaver.repairs import name_of, order, strength_of


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


def check_repairs(asked: Mapping[str, Collection[str]], ops: Iterable[Op], chosen: Mapping[str, Any]) -> None:
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
