"""Other reduced ways to run ops that do harm, to be tried before fp32: another mode, a repair, another precision.

Choices go by families: those of one precision, mode and set of repairs. Within a family, choices differ in details that
cost no time. Whatever an op has among its choices is looked at: nothing here knows what the families are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quaver.ops import DETAILS, FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.time_model import TimeModel

# Another choice has to do less than this part of the harm to be worth it: it gives up time.
CLEARLY_LESS_HARM = 0.5
# And it has to take less than this part of what fp32 takes.
CLEARLY_FASTER = 0.95
# Ops are looked at that do so much of all harm together, and no more than so many: each costs sessions.
OF_ALL_HARM = 0.98
SUSPECTS = 48

Family = tuple[str, str, tuple[str, ...]]


def family(choice: OpConfig) -> Family:
    """What a choice has in common with others that take as long."""
    return choice.precision, choice.mode, choice.repairs


def in_family(op: Op, wanted: Family, like: OpConfig) -> OpConfig | None:
    """The choice of an op in a family that is nearest to how it runs now; None if there is none."""

    def alike(choice: OpConfig) -> int:
        return sum(getattr(choice, field) == getattr(like, field) for field in DETAILS)

    return max((choice for choice in op.quantized_choices if family(choice) == wanted), key=alike, default=None)


def families(space: TuningSpace, paying: bool = False) -> list[Family]:
    """Those of all reduced choices, in order; with `paying` only of choices that stand before fp32."""
    found: dict[Family, None] = {}
    for op in space.ops:
        last = op.choices.index(FLOAT) if paying and FLOAT in op.choices else len(op.choices)
        found |= {family(choice): None for choice in op.choices[:last] if choice.quantized}
    return list(found)


def on_offer(space: TuningSpace) -> bool:
    """Whether any op has reduced choices of more than one family."""
    return any(len({family(choice) for choice in op.quantized_choices}) > 1 for op in space.ops)


def variants(config: QuantConfig, space: TuningSpace) -> Iterator[QuantConfig]:
    """The configuration with all its reduced ops in another family, where they have it; one for each family."""
    for wanted in families(space, paying=True):
        changes = {name: in_family(space[name], wanted, config[name]) for name in config.quantized_ops}
        changed = config.replace({name: choice for name, choice in changes.items() if choice is not None})
        if changed != config:
            yield changed


def in_full(config: QuantConfig, space: TuningSpace) -> QuantConfig:
    """All ops reduced, in the families that a configuration has them in: what its ops take is told by this one."""
    whole = space.default_config()
    others = {
        name: choice
        for name in config.quantized_ops
        if family(config[name]) != family(whole[name])
        and (choice := in_family(space[name], family(config[name]), whole[name])) is not None
    }
    return whole.replace(others)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """A configuration whose most harmful ops run in another way.

    Attributes:
        config: with all of them changed.
        changed: their names, the one that did most harm first.
        harm: what each op does to the outputs by itself now.
        model: the times of ops as in `config`; None where time does not matter.
    """

    config: QuantConfig
    changed: tuple[str, ...]
    sensitivity: Mapping[str, float]
    model: TimeModel | None

    def steps(self, start: QuantConfig, count: int) -> Iterator[QuantConfig]:
        """From `start` towards `config`: more and more of the ops changed."""
        for length in np.unique(np.geomspace(1, len(self.changed), count).round().astype(int)).tolist():
            yield start.replace({name: self.config[name] for name in self.changed[:length]})


def alternatives(
    config: QuantConfig,
    sensitivity: Mapping[str, float],
    space: TuningSpace,
    probe: Probe,
    model: TimeModel | None,
    part: float = OF_ALL_HARM,
) -> Alternatives | None:
    """For the ops that do most harm, the choice of another family that does clearly less and is faster than fp32.

    Without a `model` of the times of `config`, time does not matter. None if there is no such choice. Ops are looked at
    that do this `part` of all harm. No evaluations; for each family a session for each op, and a time model.
    """
    suspects = _suspects(sensitivity, part)
    found: dict[str, list[_Candidate]] = {}
    for wanted in families(space):
        for one in _candidates(wanted, suspects, config, sensitivity, space, probe, model):
            found.setdefault(one.op, []).append(one)
    if not found:
        return None
    chosen = {name: _best(found[name]) for name in suspects if name in found}
    if model is not None:
        model = replace(model, quantized={**model.quantized, **{name: one.seconds for name, one in chosen.items()}})
    return Alternatives(
        config.replace({name: one.choice for name, one in chosen.items()}),
        tuple(chosen),
        {**sensitivity, **{name: one.sensitivity for name, one in chosen.items()}},
        model,
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    op: str
    choice: OpConfig
    sensitivity: float
    seconds: float


def _candidates(
    wanted: Family,
    suspects: Sequence[str],
    config: QuantConfig,
    sensitivity: Mapping[str, float],
    space: TuningSpace,
    probe: Probe,
    model: TimeModel | None,
) -> Iterator[_Candidate]:
    """Of one family: what does clearly less harm, and is faster than fp32 if that matters."""
    others = [name for name in suspects if family(config[name]) != wanted]
    choices = {name: choice for name in others if (choice := in_family(space[name], wanted, config[name])) is not None}
    if not choices:
        return
    alone = probe.sensitivity(space.float_config().replace(choices))
    milder = {name: choices[name] for name in choices if alone[name] < CLEARLY_LESS_HARM * sensitivity[name]}
    if not milder:
        return
    timed = None if model is None else probe.time_model(in_full(config, space).replace(milder))
    for name, choice in milder.items():
        if timed is None:
            yield _Candidate(name, choice, alone[name], 0.0)
        elif timed.quantized[name] < CLEARLY_FASTER * timed.fp32[name]:
            yield _Candidate(name, choice, alone[name], timed.quantized[name])


def _best(candidates: Sequence[_Candidate]) -> _Candidate:
    """The fastest of those that do hardly more harm than the one that does least."""
    least = min(one.sensitivity for one in candidates)
    return min((one for one in candidates if CLEARLY_LESS_HARM * one.sensitivity <= least), key=lambda one: one.seconds)


def _suspects(sensitivity: Mapping[str, float], part: float) -> list[str]:
    """The ops that do this part of the harm, the worst first."""
    ranked = sorted(sensitivity, key=lambda name: -sensitivity[name])
    whole, done, found = sum(sensitivity.values()), 0.0, []
    for name in ranked[:SUSPECTS]:
        if done >= part * whole:
            break
        found.append(name)
        done += sensitivity[name]
    return found
