"""Mixed-precision configs that use a target budget with the least error, found without labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from quaver.ops import FLOAT, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.alternatives import Alternatives, alternatives, quantize_all
from quaver.strategies.steps.initial import best_calibration, best_variant
from quaver.strategies.steps.pareto_front import make_front, ranked
from quaver.strategies.steps.repairs import best_repairs, carry_over
from quaver.strategies.steps.tuning import TUNING
from quaver.target_budget import TargetBudget
from quaver.time_model import TimeModel

# All ops are offered other choices: once the worst ops are repaired, the sensitivity of the others counts as much.
WHOLE_SENSITIVITY = 1.0


def within_budget(
    start: QuantConfig, space: TuningSpace, probe: Probe, target_budget: TargetBudget, repairs: bool = True
) -> list[QuantConfig]:
    """Return configs that keep the budget as far as can be told, the least error at the outputs first.

    Their ops run as in `start`, with repairs that bring the outputs nearer, in another mode that is clearly less
    sensitive and takes less than fp32, or in fp32.
    """
    lines = list(_lines(start, space, probe, target_budget, repairs and probe.has_samples))
    within: dict[QuantConfig, None] = {}
    for share in TUNING.budget_shares:
        sensitivity = {
            config: line.sensitivity_of(config)
            for line in lines
            for config in line.mixed_configs(share)
            if line.keeps_limits(config)
        }
        order = sorted(sensitivity, key=lambda config: sensitivity[config])
        within |= dict.fromkeys(_measured_within(order[: TUNING.max_budget_candidates], probe, target_budget))
        if len(within) >= TUNING.enough_within_budget:
            break
    errors = dict(zip(within, probe.output_errors(list(within)), strict=True))
    return sorted(within, key=lambda config: errors[config])


def recalibrated(config: QuantConfig, space: TuningSpace, probe: Probe) -> list[QuantConfig]:
    """Return a config with other calibrations, the one with the least error first; repairs are carried over."""
    plain = config.replace({name: replace(pick, repairs=()) for name, pick in config.items() if pick.repairs})
    calibrations = best_calibration(plain, space, probe)
    if plain == config:
        return calibrations
    candidates = list(
        dict.fromkeys([config, *(carry_over(config, calibration, space) for calibration in calibrations)])
    )
    errors = dict(zip(candidates, probe.output_errors(candidates), strict=True))
    return sorted(candidates, key=lambda candidate: errors[candidate])


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit of the budget, as a model of what each op takes of it.

    Attributes:
        model: what ops take in their first choice and in fp32.
        total: the most that a model may take.
        alternatives: what ops take in their less sensitive choice, where that is something else.
    """

    model: TimeModel
    total: float
    alternatives: Mapping[str, float]

    def used_by(self, config: QuantConfig, other: Alternatives | None) -> float:
        """Return what a configuration takes."""
        changed = {
            name: cost for name, cost in self.alternatives.items() if other and config[name] == other.config[name]
        }
        return replace(self.model, quantized={**self.model.quantized, **changed}).predict(config)


@dataclass(frozen=True, slots=True)
class _Line:
    """The mixed-precision configs between a configuration, less sensitive choices for its ops, and fp32.

    Attributes:
        start: how ops run first.
        free: the ops that may fall back.
        sensitivity: what each op of `start` does to the outputs by itself.
        other: the less sensitive choices; None if there are none.
        limits: the limits of the budget.
    """

    start: QuantConfig
    free: Sequence[str]
    sensitivity: Mapping[str, float]
    other: Alternatives | None
    limits: Sequence[_Limit]

    def keeps_limits(self, config: QuantConfig) -> bool:
        """Return True if a configuration is predicted to keep all limits."""
        return all(limit.used_by(config, self.other) <= limit.total for limit in self.limits)

    def sensitivity_of(self, config: QuantConfig) -> float:
        """Return the sum of what the ops of a configuration do to the outputs, each by itself."""
        return sum(self._op_sensitivity(name, config[name]) for name in config.quantized_ops)

    def mixed_configs(self, share: float) -> Iterator[QuantConfig]:
        """Yield points of the front and prefixes of the ranking within a share of each limit, each filled up to it."""
        yield self.start
        for limit in self.limits:
            part = replace(limit, total=share * limit.total)
            yield from self._along(self.start, self.sensitivity, limit.model, part)
            if self.other is not None:
                model = replace(limit.model, quantized={**limit.model.quantized, **limit.alternatives})
                yield from self._along(self.other.config, self.other.sensitivity, model, part)

    def _along(
        self, start: QuantConfig, sensitivity: Mapping[str, float], model: TimeModel, limit: _Limit
    ) -> Iterator[QuantConfig]:
        longest = start  # the longest prefix of the ranking that the limit allows
        for name in ranked({name: sensitivity.get(name, 0.0) for name in self.free}):
            longer = longest.fallback(name)
            if not longer.quantized_ops or model.predict(longer) > limit.total:
                break
            longest = longer
        for config in (*(point.config for point in make_front(start, self.free, model, sensitivity)), longest):
            if model.predict(config) <= limit.total:
                yield config
                yield self._filled(config, limit)

    def _filled(self, config: QuantConfig, limit: _Limit) -> QuantConfig:
        """Move ops to a less sensitive choice or to fp32, most sensitivity for its cost first, within the limit."""
        for _, name, choice in sorted(self._moves(config, limit), key=lambda move: -move[0]):
            if config[name] == FLOAT:
                continue
            changed = config.replace({name: choice})
            if changed.quantized_ops and limit.used_by(changed, self.other) <= limit.total:
                config = changed
        return config

    def _moves(self, config: QuantConfig, limit: _Limit) -> Iterator[tuple[float, str, OpConfig]]:
        """Yield the moves of each op with the sensitivity that they remove for their cost; two steps if worth more."""
        for name in self.free:
            now, gentle = config[name], self.start[name] if self.other is None else self.other.config[name]
            if not now.quantized:
                continue
            at_once = self._worth(name, now, FLOAT, limit)
            if gentle in (now, self.start[name]):
                yield at_once, name, FLOAT
                continue
            step = self._worth(name, now, gentle, limit)
            yield step, name, gentle
            yield (at_once if step < at_once else self._worth(name, gentle, FLOAT, limit)), name, FLOAT

    def _worth(self, name: str, before: OpConfig, after: OpConfig, limit: _Limit) -> float:
        cost = self._cost(name, after, limit) - self._cost(name, before, limit)
        removed = self._op_sensitivity(name, before) - self._op_sensitivity(name, after)
        return removed / max(cost, TUNING.tiny)

    def _cost(self, name: str, pick: OpConfig, limit: _Limit) -> float:
        if not pick.quantized:
            return limit.model.fp32.get(name, 0.0)
        usual = limit.model.quantized.get(name, 0.0)
        return usual if pick == self.start[name] else limit.alternatives.get(name, usual)

    def _op_sensitivity(self, name: str, pick: OpConfig) -> float:
        if not pick.quantized:
            return 0.0
        is_start = self.other is None or pick == self.start[name]
        sensitivity = self.sensitivity if is_start or self.other is None else self.other.sensitivity
        return sensitivity.get(name, 0.0)


def _lines(
    start: QuantConfig, space: TuningSpace, probe: Probe, target_budget: TargetBudget, repairs: bool
) -> Iterator[_Line]:
    """Yield the line of `start` in the mode that suits it best, and of that with repairs.

    Repairs replace it, unless they take time: then both lines are tried.
    """
    timed = target_budget.latency is not None
    if timed and probe.has_samples:
        start = best_variant(start, space, probe)
    for config in best_repairs(start, space, probe, timed) if repairs else [start]:
        free = space.able_to_fall_back(config)
        sensitivity = probe.sensitivity(config)
        model = probe.time_model(quantize_all(start, space)) if timed else None
        other = alternatives(config, sensitivity, space, probe, model, WHOLE_SENSITIVITY)
        limits = []
        if model is not None and target_budget.latency is not None:
            whole = model.rest + sum(model.fp32.values())
            seconds = {} if other is None or other.model is None else other.model.quantized
            limits.append(_Limit(model, TUNING.rounding * target_budget.latency * whole, seconds))
        if target_budget.size is not None:
            limits.append(_Limit(_sizes(config, free, probe), TUNING.rounding * target_budget.size, {}))
        yield _Line(config, free, sensitivity, other, limits)


def _sizes(start: QuantConfig, free: Sequence[str], probe: Probe) -> TimeModel:
    """Return what each op adds to the file in fp32; a weight takes as much in each quantized choice."""
    least = probe.size(start)
    more = {name: max(probe.size(start.fallback(name)) - least, 0.0) for name in free}
    return TimeModel(more, dict.fromkeys(more, 0.0), least)


def _measured_within(
    configs: Sequence[QuantConfig], probe: Probe, target_budget: TargetBudget
) -> Iterator[QuantConfig]:
    """Yield those that keep the budget when whole models are measured."""
    if target_budget.size is not None:
        configs = [config for config in configs if probe.size(config) <= target_budget.size]
    speeds = probe.speeds(configs) if target_budget.latency is not None and configs else [0.0] * len(configs)
    for config, speed in zip(configs, speeds, strict=True):
        if target_budget.latency is None or speed <= target_budget.latency:
            yield config
