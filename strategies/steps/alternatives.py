"""Other quantized choices for sensitive ops, to be tried before fp32: another mode, a repair, another precision.

Choices are grouped into families: those of one precision, mode and set of repairs. Within a family, choices differ in
details that cost no time. Every choice that an op offers is considered: nothing here depends on what the families are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from quaver.ops import DETAILS, FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.tuning import TUNING
from quaver.time_model import TimeModel

Family: TypeAlias = tuple[str, str, tuple[str, ...]]
"""Precision, mode and repairs of a choice."""


def family(choice: OpConfig) -> Family:
    """Return what a choice has in common with others that take as long."""
    return choice.precision, choice.mode, choice.repairs


def in_family(op: Op, wanted: Family, like: OpConfig) -> OpConfig | None:
    """Return the choice of an op in a family that is nearest to `like`; None if there is none."""

    def similarity(choice: OpConfig) -> int:
        return sum(getattr(choice, field) == getattr(like, field) for field in DETAILS)

    return max((choice for choice in op.quantized_choices if family(choice) == wanted), key=similarity, default=None)


def families(space: TuningSpace, faster_only: bool = False) -> list[Family]:
    """Return the families of all quantized choices, in order; with `faster_only`, of choices listed before fp32."""
    by_order: dict[Family, None] = {}
    for op in space.ops:
        last = op.choices.index(FLOAT) if faster_only and FLOAT in op.choices else len(op.choices)
        by_order |= {family(choice): None for choice in op.choices[:last] if choice.quantized}
    return list(by_order)


def on_offer(space: TuningSpace) -> bool:
    """Return True if any op has quantized choices of more than one family."""
    return any(len({family(choice) for choice in op.quantized_choices}) > 1 for op in space.ops)


def variants(config: QuantConfig, space: TuningSpace) -> Iterator[QuantConfig]:
    """Yield, for each family, the configuration with all its quantized ops in that family, where they have it."""
    for wanted in families(space, faster_only=True):
        changes = {name: in_family(space[name], wanted, config[name]) for name in config.quantized_ops}
        changed = config.replace({name: choice for name, choice in changes.items() if choice is not None})
        if changed != config:
            yield changed


def quantize_all(config: QuantConfig, space: TuningSpace) -> QuantConfig:
    """Return all ops quantized, in the families that `config` has them in. Its profile tells the times of `config`."""
    whole = space.default_config()
    changes = {
        name: choice
        for name in config.quantized_ops
        if family(config[name]) != family(whole[name])
        and (choice := in_family(space[name], family(config[name]), whole[name])) is not None
    }
    return whole.replace(changes)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """A configuration whose most sensitive ops run in another choice.

    Attributes:
        config: all of them changed.
        changed: their names, the one that was most sensitive first.
        sensitivity: what each op does to the outputs by itself now.
        model: the times of ops as in `config`; None where time does not matter.
    """

    config: QuantConfig
    changed: tuple[str, ...]
    sensitivity: Mapping[str, float]
    model: TimeModel | None

    def steps(self, start: QuantConfig, count: int) -> Iterator[QuantConfig]:
        """Yield configurations from `start` towards `config`, with more and more of the ops changed."""
        for length in np.unique(np.geomspace(1, len(self.changed), count).round().astype(int)).tolist():
            yield start.replace({name: self.config[name] for name in self.changed[:length]})


def alternatives(
    config: QuantConfig,
    sensitivity: Mapping[str, float],
    space: TuningSpace,
    probe: Probe,
    model: TimeModel | None,
    share: float = TUNING.suspect_share,
) -> Alternatives | None:
    """Find, for the most sensitive ops, choices that are clearly less sensitive and faster than fp32.

    It takes no evaluations; for each family it takes a session for each op, and a time model.

    Args:
        config: the configuration to start from.
        sensitivity: what each op of `config` does to the outputs by itself.
        space: the choices of the ops.
        probe: measures sensitivity and times.
        model: the times of the ops of `config`; None if time does not matter.
        share: the part of the total sensitivity that the considered ops have together.

    Returns:
        None if there is no such choice.
    """
    suspects = _suspects(sensitivity, share)
    search = _CandidateSearch(config, sensitivity, space, probe, model)
    by_op: dict[str, list[_Candidate]] = {}
    for wanted in families(space):
        for candidate in search.candidates(wanted, suspects):
            by_op.setdefault(candidate.op, []).append(candidate)
    if not by_op:
        return None
    chosen = {name: _best(by_op[name]) for name in suspects if name in by_op}
    if model is not None:
        seconds = {name: candidate.seconds for name, candidate in chosen.items()}
        model = replace(model, quantized={**model.quantized, **seconds})
    return Alternatives(
        config.replace({name: candidate.choice for name, candidate in chosen.items()}),
        tuple(chosen),
        {**sensitivity, **{name: candidate.sensitivity for name, candidate in chosen.items()}},
        model,
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    op: str
    choice: OpConfig
    sensitivity: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _CandidateSearch:
    """Looks for other choices; the attributes are the arguments of `alternatives`."""

    config: QuantConfig
    sensitivity: Mapping[str, float]
    space: TuningSpace
    probe: Probe
    model: TimeModel | None

    def candidates(self, wanted: Family, suspects: Sequence[str]) -> Iterator[_Candidate]:
        """Yield the choices of one family that are clearly less sensitive, and faster than fp32 if that matters."""
        choices = {
            name: choice
            for name in suspects
            if family(self.config[name]) != wanted
            and (choice := in_family(self.space[name], wanted, self.config[name])) is not None
        }
        if not choices:
            return
        alone = self.probe.sensitivity(self.space.float_config().replace(choices))
        limit = TUNING.clearly_less_sensitivity
        better = {name: choices[name] for name in choices if alone[name] < limit * self.sensitivity[name]}
        if not better:
            return
        if self.model is None:
            yield from (_Candidate(name, choice, alone[name], 0.0) for name, choice in better.items())
            return
        timed = self.probe.time_model(quantize_all(self.config, self.space).replace(better))
        for name, choice in better.items():
            if timed.quantized[name] < TUNING.clearly_faster * timed.fp32[name]:
                yield _Candidate(name, choice, alone[name], timed.quantized[name])


def _best(candidates: Sequence[_Candidate]) -> _Candidate:
    """Return the fastest of those that are hardly more sensitive than the least sensitive one."""
    least = min(candidate.sensitivity for candidate in candidates)
    near = [item for item in candidates if TUNING.clearly_less_sensitivity * item.sensitivity <= least]
    return min(near, key=lambda candidate: candidate.seconds)


def _suspects(sensitivity: Mapping[str, float], share: float) -> list[str]:
    """Return the ops that have this part of the total sensitivity together, the most sensitive first."""
    order = sorted(sensitivity, key=lambda name: -sensitivity[name])
    total, so_far, suspects = sum(sensitivity.values()), 0.0, []
    for name in order[: TUNING.max_suspects]:
        if so_far >= share * total:
            break
        suspects.append(name)
        so_far += sensitivity[name]
    return suspects
