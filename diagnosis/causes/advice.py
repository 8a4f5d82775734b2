"""Advice for a cause, within what the user's own rules allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from quaver.diagnosis.causes.base import Rules
from quaver.formatting import first_names
from quaver.ops import DETAILS, FP32, MODES, Op, OpConfig
from quaver.space import TuningSpace
from quaver.types import PlainDict

# Field of `OpConfig` -> the part and the key of a rule that sets it.
_RULE_KEYS = {
    "precision": ("activation", "dtype"),
    "calibration": ("activation", "algorithm"),
    "scheme": ("activation", "scheme"),
    "mode": ("activation", "mode"),
    "granularity": ("weight", "granularity"),
}

Constraint = Mapping[str, str]
"""Field of `OpConfig` -> the value that it must have."""

OpRule = str | PlainDict
"""A rule for one op: "fp32", or its parts as builtins."""


class Remedy(NamedTuple):
    """One way to fix an op.

    Attributes:
        words: what to do, as the end of a sentence: "keep it in fp32".
        constraints: for each op, the fields of its `OpConfig` that this needs.
    """

    words: str
    constraints: Mapping[str, Constraint]


def to_fp32(names: Iterable[str], words: str = "keep it in fp32") -> Remedy:
    """Return the remedy to keep ops in fp32."""
    return Remedy(words, {name: {"precision": str(FP32)} for name in names})


def calibrate_by(names: Iterable[str], method: str, words: str) -> Remedy:
    """Return the remedy to calibrate the activations of ops with another method."""
    return Remedy(words, {name: {"calibration": method} for name in names})


def repair(names: Iterable[str], spelled: str) -> Remedy:
    """Return the remedy to repair ops."""
    return Remedy("repair it", {name: {"repairs": spelled} for name in names})


def run_in_mode(name: str, mode: str) -> Remedy:
    """Return the remedy to run an op in another mode."""
    return Remedy(f"run it in mode {mode}", {name: {"mode": mode}})


def per_channel(name: str) -> Remedy:
    """Return the remedy to give each channel of a weight its own scale."""
    return Remedy("give each channel a scale of its own", {name: {"granularity": "per_channel"}})


class AllowedChoices:
    """The choices that the user's rules leave of those that the framework offers.

    Args:
        ops: the ops with all the choices that the framework offers.
        space: the same ops with the choices that the rules leave.
    """

    def __init__(self, ops: Iterable[Op], space: TuningSpace) -> None:
        self._offered = {op.name: op for op in ops}
        self._space = space

    def allows(self, name: str, constraint: Constraint) -> bool:
        """Return True if the rules leave an op a choice that satisfies the constraint."""
        if name not in self._space:
            return True
        op = self._space[name]
        return any(_fits(choice, constraint, op.repairs) for choice in op.choices)

    def advise(self, remedies: Sequence[Remedy], before: str = "") -> tuple[str, Rules]:
        """Return the first allowed remedy, in words and as rules. Forbidden remedies before it are named.

        Args:
            remedies: the remedies, the best first.
            before: advice in front of the remedy.
        """
        forbidden: list[str] = []
        for remedy in remedies:
            blocking = [name for name, constraint in remedy.constraints.items() if not self.allows(name, constraint)]
            if not blocking:
                refused = f"Your rules do not allow to {_alternatives(forbidden)}. " if forbidden else ""
                words = refused + _capital(before + remedy.words)
                return words, {name: self._rule(name, constraint) for name, constraint in remedy.constraints.items()}
            why = f" (those for {first_names(blocking)})" if len(remedy.constraints) > 1 else ""
            forbidden.append(f"{remedy.words}{why}")
        sentence = _capital(before.rstrip(" ,.:;").removesuffix(", or"))
        if not forbidden:
            return sentence, {}
        start = f"{sentence}; your rules" if sentence else "Change your rules: they"
        return f"{start} do not allow to {_alternatives(forbidden)}", {}

    def rule_in_force(self, name: str) -> OpRule | None:
        """Return a rule that leaves an op exactly its current choices; None if it has all of them."""
        if name not in self._space:
            return None
        left, offered = self._space[name], self._offered[name]
        if left.choices == offered.choices and left.repairs == offered.repairs:
            return None
        return self._rule(name, {})

    def _rule(self, name: str, constraint: Constraint) -> OpRule:
        """Return a rule that satisfies a constraint and keeps everything that other rules demand.

        A rule by name replaces all other rules for the op, so it has to repeat them.
        """
        offered = self._offered[name].choices
        left = self._space[name].choices if name in self._space else offered
        if constraint.get("precision") == FP32 or not any(choice.quantized for choice in left):
            return str(FP32)
        rule: PlainDict = {}
        values = _narrowest(offered, left, {field: value for field, value in constraint.items() if field != "repairs"})
        for field, (section, key) in _RULE_KEYS.items():
            if field in values:
                rule.setdefault(section, {})[key] = values[field]
        demanded = next((list(choice.repairs) for choice in left if choice.quantized), [])
        if "repairs" in constraint:
            rule["repairs"] = [constraint["repairs"]]
        elif name in self._space and self._offered[name].repairs != self._space[name].repairs:
            rule["repairs"] = demanded
        return rule


def _fits(choice: OpConfig, constraint: Constraint, repairs: Sequence[str] = ()) -> bool:
    """Return True if a choice satisfies a constraint, given the repairs that may be added to it."""
    available = (*choice.repairs, *(repairs if choice.mode == MODES[0] else ()))
    return all(
        value in available if field == "repairs" else getattr(choice, field) == value
        for field, value in constraint.items()
    )


def _narrowest(offered: Sequence[OpConfig], left: Sequence[OpConfig], constraint: Constraint) -> dict[str, list[str]]:
    """Return the fields, with their values, that a rule must name to leave these choices and satisfy a constraint.

    A field that is empty in a choice never excludes it: dynamic ranges have no calibration method.
    """
    choices = [choice for choice in left if _is_among(choice, {field: [value] for field, value in constraint.items()})]
    rule = {field: values for field in _RULE_KEYS if (values := _values(choices, field))}
    for field in ("mode", *_RULE_KEYS):  # the mode comes first: another field mostly implies it
        if field in rule and field not in constraint:
            other_fields = {name: values for name, values in rule.items() if name != field}
            if _values((choice for choice in offered if _is_among(choice, other_fields)), field) == rule[field]:
                del rule[field]
    return rule


def _is_among(choice: OpConfig, rule: Mapping[str, Sequence[str]]) -> bool:
    """Return True if a rule with these values leaves a choice."""
    return all(not (value := getattr(choice, field)) or value in values for field, values in rule.items())


def _values(choices: Iterable[OpConfig], field: str) -> list[str]:
    """Return the values of a field in these choices, in the order of the vocabulary."""
    values = dict.fromkeys(str(getattr(choice, field)) for choice in choices if getattr(choice, field))
    order = {value: position for position, value in enumerate(DETAILS.get(field, ()))}
    return sorted(values, key=lambda value: order.get(value, 0))


def _alternatives(words: Sequence[str]) -> str:
    return ", nor to ".join(words)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
