"""Mixtures of all ways to run ops that use a budget for the model up, with the least harm; found without labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from quaver.ops import FLOAT, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.alternatives import Alternatives, alternatives, in_full
from quaver.strategies.steps.initial import best_calibration, best_variant
from quaver.strategies.steps.pareto_front import make_front, ranked
from quaver.strategies.steps.repairs import best_repairs, carry_over
from quaver.target_budget import TargetBudget
from quaver.time_model import TimeModel

# So many of the mixtures that should do least harm are measured, all at once.
LOOKED_AT = 10
# A prediction may be off: if too few mixtures keep the budget when they are measured, others are looked for that should
# take so much of it.
SHARES = (1.0, 0.93, 0.85)
ENOUGH = 3
# Once the worst ops are mended, the rest of the harm counts as much: all ops are offered other modes.
ALL = 1.0
TINY = 1e-12
# What the sums of a prediction may be off by.
ROUNDING = 1 + 1e-9


def within_budget(
    start: QuantConfig, space: TuningSpace, probe: Probe, target_budget: TargetBudget, repairs: bool = True
) -> list[QuantConfig]:
    """Mixtures that keep the budget as far as can be told, the least error at the outputs first.

    Their ops run as in `start`, with repairs that bring the outputs nearer, in another mode that does clearly less harm
    and takes less than fp32, or in fp32.
    """
    lines = list(_lines(start, space, probe, target_budget, repairs and probe.has_samples))
    kept: dict[QuantConfig, None] = {}
    for share in SHARES:
        found = {one: line.harm_of(one) for line in lines for one in line.mixtures(share) if line.keeps(one)}
        kept |= dict.fromkeys(_kept(sorted(found, key=lambda one: found[one])[:LOOKED_AT], probe, target_budget))
        if len(kept) >= ENOUGH:
            break
    errors = dict(zip(kept, probe.output_errors(list(kept)), strict=True))
    return sorted(kept, key=lambda one: errors[one])


def recalibrated(config: QuantConfig, space: TuningSpace, probe: Probe) -> list[QuantConfig]:
    """The same with other calibrations, the one with the least error first; its repairs are kept."""
    plain = config.replace({name: replace(pick, repairs=()) for name, pick in config.items() if pick.repairs})
    found = best_calibration(plain, space, probe)
    if plain == config:
        return found
    ways = list(dict.fromkeys([config, *(carry_over(config, one, space) for one in found)]))
    errors = dict(zip(ways, probe.output_errors(ways), strict=True))
    return sorted(ways, key=lambda one: errors[one])


@dataclass(frozen=True, slots=True)
class _Limit:
    """What is limited, as a model of what each op takes of it.

    Attributes:
        model: of ops as they run first.
        most: how much there is of it.
        milder: what ops take in their milder choice, where that is something else.
    """

    model: TimeModel
    most: float
    milder: Mapping[str, float]

    def taken(self, config: QuantConfig, other: Alternatives | None) -> float:
        """What a configuration takes."""
        changed = {name: taken for name, taken in self.milder.items() if other and config[name] == other.config[name]}
        return replace(self.model, quantized={**self.model.quantized, **changed}).predict(config)


@dataclass(frozen=True, slots=True)
class _Line:
    """Mixtures of a configuration, of milder choices for its ops, and of fp32.

    Attributes:
        start: how ops run first.
        free: those that may fall back.
        harm: what each op of `start` does to the outputs by itself.
        other: the milder choices; None if there are none.
        limits: what may not be exceeded.
    """

    start: QuantConfig
    free: Sequence[str]
    sensitivity: Mapping[str, float]
    other: Alternatives | None
    limits: Sequence[_Limit]

    def keeps(self, config: QuantConfig) -> bool:
        """Whether a configuration is predicted to keep all limits."""
        return all(limit.taken(config, self.other) <= limit.most for limit in self.limits)

    def harm_of(self, config: QuantConfig) -> float:
        """What the ops of a configuration do to the outputs together, each by itself."""
        return sum(self._does(name, config[name]) for name in config.quantized_ops)

    def mixtures(self, share: float) -> Iterator[QuantConfig]:
        """Points of the front and prefixes of the ranking that keep a share of each limit, each filled up to it."""
        yield self.start
        for limit in self.limits:
            part = replace(limit, most=share * limit.most)
            yield from self._along(self.start, self.sensitivity, limit.model, part)
            if self.other is not None:
                model = replace(limit.model, quantized={**limit.model.quantized, **limit.milder})
                yield from self._along(self.other.config, self.other.sensitivity, model, part)

    def _along(
        self, start: QuantConfig, sensitivity: Mapping[str, float], model: TimeModel, limit: _Limit
    ) -> Iterator[QuantConfig]:
        longest = start
        for name in ranked(
            {name: sensitivity.get(name, 0.0) for name in self.free}
        ):  # the longest prefix that can be paid
            longer = longest.fallback(name)
            if not longer.quantized_ops or model.predict(longer) > limit.most:
                break
            longest = longer
        for config in (*(point.config for point in make_front(start, self.free, model, sensitivity)), longest):
            if model.predict(config) <= limit.most:
                yield config
                yield self._filled(config, limit)

    def _filled(self, config: QuantConfig, limit: _Limit) -> QuantConfig:
        """With more ops in a milder choice or in fp32, what takes most harm away for its cost first, while it lasts."""
        for _, name, choice in sorted(self._moves(config, limit), key=lambda move: -move[0]):
            if config[name] == FLOAT:
                continue
            changed = config.replace({name: choice})
            if changed.quantized_ops and limit.taken(changed, self.other) <= limit.most:
                config = changed
        return config

    def _moves(self, config: QuantConfig, limit: _Limit) -> Iterator[tuple[float, str, OpConfig]]:
        """What may be done for each op, and the harm it takes away for its cost; by steps if these are worth more."""
        for name in self.free:
            now, mild = config[name], self.start[name] if self.other is None else self.other.config[name]
            if not now.quantized:
                continue
            at_once = self._worth(name, now, FLOAT, limit)
            if mild in (now, self.start[name]):
                yield at_once, name, FLOAT
                continue
            step = self._worth(name, now, mild, limit)
            yield step, name, mild
            yield (at_once if step < at_once else self._worth(name, mild, FLOAT, limit)), name, FLOAT

    def _worth(self, name: str, before: OpConfig, after: OpConfig, limit: _Limit) -> float:
        costs = self._seconds(name, after, limit) - self._seconds(name, before, limit)
        return (self._does(name, before) - self._does(name, after)) / max(costs, TINY)

    def _seconds(self, name: str, pick: OpConfig, limit: _Limit) -> float:
        if not pick.quantized:
            return limit.model.fp32.get(name, 0.0)
        usual = limit.model.quantized.get(name, 0.0)
        return usual if pick == self.start[name] else limit.milder.get(name, usual)

    def _does(self, name: str, pick: OpConfig) -> float:
        if not pick.quantized:
            return 0.0
        known = self.sensitivity if self.other is None or pick == self.start[name] else self.other.sensitivity
        return known.get(name, 0.0)


def _lines(
    start: QuantConfig, space: TuningSpace, probe: Probe, target_budget: TargetBudget, repairs: bool
) -> Iterator[_Line]:
    """Of `start` in the mode that suits it best; with repairs in its place, or besides if they take time."""
    timed = target_budget.latency is not None
    if timed and probe.has_samples:
        start = best_variant(start, space, probe)
    for config in best_repairs(start, space, probe, timed) if repairs else [start]:
        free = space.able_to_fall_back(config)
        sensitivity = probe.sensitivity(config)
        model = probe.time_model(in_full(start, space)) if timed else None
        other = alternatives(config, sensitivity, space, probe, model, ALL)
        limits = []
        if model is not None and target_budget.latency is not None:
            whole = model.rest + sum(model.fp32.values())
            milder = {} if other is None or other.model is None else other.model.quantized
            limits.append(_Limit(model, ROUNDING * target_budget.latency * whole, milder))
        if target_budget.size is not None:
            limits.append(_Limit(_sizes(config, free, probe), ROUNDING * target_budget.size, {}))
        yield _Line(config, free, sensitivity, other, limits)


def _sizes(start: QuantConfig, free: Sequence[str], probe: Probe) -> TimeModel:
    """What each op adds to the file in fp32; a weight takes as much in each reduced choice."""
    least = probe.size(start)
    more = {name: max(probe.size(start.fallback(name)) - least, 0.0) for name in free}
    return TimeModel(more, dict.fromkeys(more, 0.0), least)


def _kept(configs: Sequence[QuantConfig], probe: Probe, target_budget: TargetBudget) -> Iterator[QuantConfig]:
    """Those that keep the budget when whole models are looked at."""
    if target_budget.size is not None:
        configs = [config for config in configs if probe.size(config) <= target_budget.size]
    speeds = probe.speeds(configs) if target_budget.latency is not None and configs else [0.0] * len(configs)
    for config, speed in zip(configs, speeds, strict=True):
        if target_budget.latency is None or speed <= target_budget.latency:
            yield config
