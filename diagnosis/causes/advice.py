"""What can be done about a cause, and what of it the user's own rules allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from quaver.diagnosis.causes.base import Rules
from quaver.diagnosis.text import listed
from quaver.ops import DETAILS, FP32, MODES, Op, OpConfig
from quaver.space import TuningSpace
from quaver.types import PlainDict

# Where a rule says something about a field of `OpConfig`.
_PLACES = {
    "precision": ("activation", "dtype"),
    "calibration": ("activation", "algorithm"),
    "scheme": ("activation", "scheme"),
    "mode": ("activation", "mode"),
    "granularity": ("weight", "granularity"),
}

Constraint = Mapping[str, str]


class Remedy(NamedTuple):
    """One way to cure an op.

    Attributes:
        words: what to do, as the end of a sentence: "keep it in fp32".
        wishes: for each op the fields of its `OpConfig` that this takes.
    """

    words: str
    wishes: Mapping[str, Constraint]


def to_fp32(names: Iterable[str], words: str = "keep it in fp32") -> Remedy:
    """Keep ops in fp32."""
    return Remedy(words, {name: {"precision": str(FP32)} for name in names})


def calibrate_by(names: Iterable[str], method: str, words: str) -> Remedy:
    """Choose the ranges of activations in another way."""
    return Remedy(words, {name: {"calibration": method} for name in names})


def repair(names: Iterable[str], spelled: str) -> Remedy:
    """Repair ops."""
    return Remedy("repair it", {name: {"repairs": spelled} for name in names})


def run_in_mode(name: str, mode: str) -> Remedy:
    """Treat the activations of an op in another way."""
    return Remedy(f"run it in mode {mode}", {name: {"mode": mode}})


def per_channel(name: str) -> Remedy:
    """Give each channel of a weight a scale of its own."""
    return Remedy("give each channel a scale of its own", {name: {"granularity": "per_channel"}})


class AllowedChoices:
    """What the rules leave of what the framework offers.

    Args:
        ops: the ops with all the choices that the framework offers.
        space: the same ops with those that the rules leave.
    """

    def __init__(self, ops: Iterable[Op], space: TuningSpace) -> None:
        self._offered = {op.name: op for op in ops}
        self._space = space

    def allows(self, name: str, wish: Constraint) -> bool:
        """Whether the rules leave an op a choice that fits."""
        if name not in self._space:
            return True
        op = self._space[name]
        return any(_fits(choice, wish, op.repairs) for choice in op.choices)

    def advise(self, remedies: Sequence[Remedy], before: str = "") -> tuple[str, Rules]:
        """The first remedy that is allowed, in words behind `before` and as rules; those that are not are named."""
        forbidden: list[str] = []
        for remedy in remedies:
            blocking = [name for name, wish in remedy.wishes.items() if not self.allows(name, wish)]
            if not blocking:
                refused = f"Your rules do not allow to {_alternatives(forbidden)}. " if forbidden else ""
                words = refused + _capital(before + remedy.words)
                return words, {name: self._rule(name, wish) for name, wish in remedy.wishes.items()}
            why = f" (those for {listed(blocking)})" if len(remedy.wishes) > 1 else ""
            forbidden.append(f"{remedy.words}{why}")
        said = _capital(before.rstrip(" ,.:;").removesuffix(", or"))
        if not forbidden:
            return said, {}
        start = f"{said}; your rules" if said else "Change your rules: they"
        return f"{start} do not allow to {_alternatives(forbidden)}", {}

    def standing(self, name: str) -> Any:
        """The rule that leaves an op just what it has been left; None if that is all."""
        if name not in self._space:
            return None
        left, offered = self._space[name], self._offered[name]
        if left.choices == offered.choices and left.repairs == offered.repairs:
            return None
        return self._rule(name, {})

    def _rule(self, name: str, wish: Constraint) -> Any:
        """A rule that makes a wish come true and takes nothing back of what other rules demand.

        A rule by name takes the place of all others on the op, so it has to repeat them.
        """
        offered = self._offered[name].choices
        left = self._space[name].choices if name in self._space else offered
        if wish.get("precision") == FP32 or not any(choice.quantized for choice in left):
            return str(FP32)
        rule: PlainDict = {}
        told = _narrowest(offered, left, {field: value for field, value in wish.items() if field != "repairs"})
        for field, (part, key) in _PLACES.items():
            if field in told:
                rule.setdefault(part, {})[key] = told[field]
        demanded = next((list(choice.repairs) for choice in left if choice.quantized), [])
        if "repairs" in wish:
            rule["repairs"] = [wish["repairs"]]
        elif name in self._space and self._offered[name].repairs != self._space[name].repairs:
            rule["repairs"] = demanded
        return rule


def _fits(choice: OpConfig, wish: Constraint, repairs: Sequence[str] = ()) -> bool:
    """Whether a choice is what is wished for, when it may be given these repairs besides."""
    able = (*choice.repairs, *(repairs if choice.mode == MODES[0] else ()))
    return all(
        value in able if field == "repairs" else getattr(choice, field) == value for field, value in wish.items()
    )


def _narrowest(offered: Sequence[OpConfig], left: Sequence[OpConfig], wish: Constraint) -> dict[str, list[str]]:
    """The values of those fields alone that must be told to leave what there was left, as far as a wish allows it.

    What a choice says nothing about is not wished for: one with dynamic ranges is calibrated by no method.
    """
    kept = [choice for choice in left if _is_among(choice, {field: [value] for field, value in wish.items()})]
    told = {field: values for field in _PLACES if (values := _values(kept, field))}
    for field in ("mode", *_PLACES):  # first the mode: mostly another field tells it, too
        if field in told and field not in wish:
            others = {name: values for name, values in told.items() if name != field}
            if _values((choice for choice in offered if _is_among(choice, others)), field) == told[field]:
                del told[field]
    return told


def _is_among(choice: OpConfig, told: Mapping[str, Sequence[str]]) -> bool:
    """Whether a rule that tells this leaves a choice."""
    return all(not (value := getattr(choice, field)) or value in values for field, values in told.items())


def _values(choices: Iterable[OpConfig], field: str) -> list[str]:
    """The values of a field that choices have, in the order of the vocabulary."""
    found = dict.fromkeys(str(getattr(choice, field)) for choice in choices if getattr(choice, field))
    order = {value: at for at, value in enumerate(DETAILS.get(field, ()))}
    return sorted(found, key=lambda value: order.get(value, 0))


def _alternatives(words: Sequence[str]) -> str:
    return ", nor to ".join(words)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
