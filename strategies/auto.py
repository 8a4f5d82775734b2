"""`auto`: everything that needs no labels first, then as few evaluations as can be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, islice

from quaver.ops import FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps import weight_bits as narrowing
from quaver.strategies.steps.alternatives import (
    Alternatives,
    alternatives,
    families,
    family,
    in_family,
    in_full,
    on_offer,
)
from quaver.strategies.steps.boundaries import STEPS, fewer_boundaries
from quaver.strategies.steps.initial import (
    CLEARLY_LESS_ERROR,
    best_calibration,
    best_variant,
    fastest,
    measured_mixtures,
)
from quaver.strategies.steps.pareto_front import MOST, POINTS, fallbacks, first_success, predicted, ranked
from quaver.strategies.steps.repairs import best_repairs, carry_over
from quaver.strategies.steps.search import SEARCHES, Search, evaluate_batch, prune, shortest_prefix
from quaver.strategies.steps.target_budget import recalibrated, within_budget
from quaver.strategies.steps.weight_bits import Narrowing, smallest_success
from quaver.target_budget import TargetBudget
from quaver.time_model import TimeModel
from quaver.trial import Trial

# What takes the place of fp32 in the end disturbs the outputs by less than this part of what was given up for it.
FAR_LESS = 0.25
# With more workers than this, a search would pay for them and be no sooner at its end.
AT_ONCE = 8
# So many mixtures are evaluated for the most accurate within a budget.
BUDGETED = 8


@register_strategy
class Auto(Strategy):
    """Everything that needs no labels first; then fallbacks chosen with their time in view; then pruning.

    1. Without labels. When the objective is latency: a time model of ops and of conversions between them, and the error
       of each op by itself, propose a few mixtures of int8 and fp32; they are measured, and of those that are as fast
       as the fastest the one that disturbs the outputs clearly less is taken. Then the calibration method of each op
       type with the least error at the outputs; the repairs that make the error clearly less and take no time; and
       another mode, if that is better still. One evaluation.
    2. If that fails, repairs that take time; or, when the objective is another, the runner-up calibration. One
       evaluation at most.
       When the objective is size, weights of fewer than 8 bits come before that: all that can be; then, as far as the
       error at the outputs tells what is enough, those back in 8 bits that do most harm for the bytes they save. Up to
       four evaluations, none where little is saved. Then it goes on with what is as good as 8 bits by that error.
    3. Ops ranked by the harm each does alone. Those that do most of it are offered other modes which do clearly less
       harm and take less time than fp32. When the objective is latency: for each price of harm the mixture that is
       fastest by the time model. On this front, among prefixes of the ranking, and with more and more ops in their
       other mode, and the mixtures of 1, the one that takes most error away for the time it gives up, as long as it
       is faster than fp32. Up to six evaluations. When it is another, all other modes at once. One evaluation.
    4. If that was not enough, or the objective is another: the shortest prefix of the ranking that must fall back. At
       most 2 log2(n) + 1 evaluations; log2(n) + 1 more for each of up to four ops that rank last and must fall back all
       the same. If none of these ops can be reduced, the same among those that 1 left in fp32.
    5. With time left (`timeout` above 0): ops go back to int8 by halves, about d log2(n/d) evaluations for d ops that
       are really needed; then those d in another int8 choice that disturbs the output less; then, when the objective
       is latency, moves that save conversions between int8 and fp32, up to four evaluations.

    With several workers it pays more evaluations for less time: the first two calibrations at once, several steps along
    the front, and a search among as many lengths of the prefix as there are workers, up to 8. Pruning goes one by one.

    With a budget instead of a criterion: repairs, then points of that front, filled up with other modes and fallbacks
    as far as the budget goes, of which those that keep it when they are measured are ordered by their error at the
    outputs. Up to eight evaluations, none for what is known to exceed the budget.

    An all-fp32 model is never proposed. `mixtures=False` leaves out the choice of ops in 1, `repairs=False` repairs,
    `front=False` leaves out 3: to see what they bring.
    """

    name = "auto"

    def __init__(self, mixtures: bool = True, front: bool = True, repairs: bool = True) -> None:
        self.mixtures, self.front, self.repairs = mixtures, front, repairs

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        default_config = space.default_config()
        if self.target_budget is not None:
            yield from self._within(self.target_budget, default_config, space, probe)
            return
        timed = self.traits.rewards_speed and probe.has_samples
        speeds = measured_mixtures(default_config, space, probe) if timed and self.mixtures else {}
        wanted = fastest(speeds, probe) if speeds else [default_config]
        calibrated = best_calibration(wanted[0], space, probe)
        repair = self.repairs and probe.has_samples
        repaired = best_repairs(calibrated[0], space, probe, timed) if repair else calibrated[:1]
        if timed and self.mixtures and (other_way := best_variant(repaired[0], space, probe)) != repaired[0]:
            most = CLEARLY_LESS_ERROR * probe.output_error(other_way)
            repaired = [other_way, *(one for one in repaired[1:] if probe.output_error(one) < most)]
        if self.traits.rewards_small_files and narrowing.on_offer(space):
            fewer = Narrowing(repaired[0], space, probe)
            small = yield from smallest_success(fewer, self.allowed, self._at_once)
            if small is not None:
                yield from prune(small, fewer.smallest, fewer.given_back(small.config))
                return
            repaired = [fewer.next_best, *repaired[1:]]
        others = [*repaired[1:], *(carry_over(repaired[0], config, space) for config in calibrated[1:2])]
        first, *tried = yield from evaluate_batch([repaired[0], *others[: self.width > 1]], self.width)
        if first.met:
            if timed:
                plain = [config for config in calibrated[:1] if config != first.config]
                yield from self._quicker(first, [*wanted[1:], *plain], space, probe)
            return
        best = first
        if self.width == 1:
            tried = yield from evaluate_batch(others[:1] if repaired[1:] or not timed else (), self.width)
        for trial in tried:
            if trial.met:
                return
            if trial.loss is not None and (best.loss is None or trial.loss < best.loss):
                best = trial
        config = best.config
        sensitivity = probe.sensitivity(config)
        start = in_full(config, space)
        model = probe.time_model(start) if timed else None
        other = alternatives(config, sensitivity, space, probe, model)
        found, needed = None, 0
        ways = {} if model is None else _ways(config, sensitivity, model, other) | _like(speeds, config, start)
        if self.front and len(ways) > 1:
            found = yield from first_success(best, ways, self.allowed, probe, self._at_once)
        elif other is not None:
            (changed,) = yield from evaluate_batch([other.config], self.width)
            found = changed if changed.met else None
            if changed.loss is not None and (best.loss is None or changed.loss < best.loss):
                best = changed
        if found is None:
            ranking = ranked(sensitivity if other is None or best.config == config else other.sensitivity)
            found = yield from shortest_prefix(best, ranking, self._at_once)
            needed = 1  # the last op of the shortest prefix, or a shorter one would have done
        if found is None:
            yield from self._others_alone(config, start, space, probe)
            return
        if timed:
            config = _paying(config, start, space, probe)
        fallen = [name for name in ranked(probe.sensitivity(config)) if found.config[name] != config[name]]
        found = yield from prune(found, config, fallen[: len(fallen) - needed][::-1])
        if found is not None:
            found = yield from _milder_choices(found, config, space, probe, timed)
        if found is not None and timed:
            yield from fewer_boundaries(found, config, space, probe)

    def _within(self, target_budget: TargetBudget, start: QuantConfig, space: TuningSpace, probe: Probe) -> Proposals:
        """The mixtures that use a budget up with the least error; of the best in view, other calibrations too."""
        start = best_calibration(start, space, probe)[0]
        found = within_budget(start, space, probe, target_budget, self.repairs)
        if not found and probe.has_samples:
            quick = fastest(measured_mixtures(start, space, probe), probe)
            ways = [best_repairs(one, space, probe, timed=True) if self.repairs else [one] for one in quick]
            found = list(chain.from_iterable(ways))
        first, *others = recalibrated((found or [start])[0], space, probe)
        rest = (recalibrated(config, space, probe)[0] for config in found[1:])
        # Not those of which nobody will ask: each calibration is looked at on all samples.
        proposals = islice(chain([first], others[:1], rest), BUDGETED)
        while asked := list(islice(proposals, self._at_once)):
            for trial in (yield from evaluate_batch(asked, self.width)):
                if trial.met and trial.loss is not None and trial.loss <= 0:
                    return

    def _others_alone(self, failed: QuantConfig, start: QuantConfig, space: TuningSpace, probe: Probe) -> Search:
        """The ops that `failed` left in fp32, without its own, of which none can be reduced: better than nothing."""
        able = set(space.able_to_fall_back(start))
        others = start.fallback(*(name for name in failed.quantized_ops if name in able))
        if others == start or not able & set(others.quantized_ops):
            return None
        trial: Trial = yield others
        if trial.met:
            return trial
        return (yield from shortest_prefix(trial, ranked(probe.sensitivity(others)), self._at_once))

    def _quicker(self, met: Trial, others: list[QuantConfig], space: TuningSpace, probe: Probe) -> Proposals:
        """With time left: what was faster by a hair, and the ops back that were given up for accuracy."""
        for other in others:
            yield best_calibration(other, space, probe)[0]
        config = _paying(met.config, in_full(met.config, space), space, probe)
        errors = probe.local_error()
        yield from prune(met, config, [name for name in ranked(errors)[::-1] if config[name] != met.config[name]])

    def worst_case(self, space: TuningSpace) -> int:
        """To the first success; then at most 2 n for pruning, n for milder choices, 4 for speed. Within a budget 8."""
        if self.target_budget is not None:
            return BUDGETED
        return self.first_success(space) + 3 * max(len(space.tunable), 1) + STEPS

    def first_success(self, space: TuningSpace) -> int:
        """2, 6 along the front or 1 with other modes, 4 with fewer bits, and 6 log2(n) + 5; more with workers.

        When the objective is latency, once more 6 log2(n) + 6 among the ops that save no time.
        """
        if self.target_budget is not None:
            return BUDGETED
        depth = math.ceil(math.log2(max(len(space.tunable), 1)))
        search = self._at_once * (depth + SEARCHES * (depth + 1))
        if self.traits.rewards_speed:
            return 2 + self._at_once * math.ceil(MOST / self._at_once) + 2 * search + 1
        narrow = self.traits.rewards_small_files and narrowing.on_offer(space)
        return 2 + on_offer(space) + narrow * self._at_once * math.ceil(narrowing.MOST / self._at_once) + search

    @property
    def _at_once(self) -> int:
        """How many lengths or steps are tried at once."""
        return min(self.width, AT_ONCE)


def _ways(
    config: QuantConfig, sensitivity: Mapping[str, float], model: TimeModel, other: Alternatives | None
) -> dict[QuantConfig, float]:
    """All that may be tried after `config` failed, with predicted times: fallbacks, other choices, and both."""
    found = fallbacks(config, sensitivity, model)
    if other is not None and other.model is not None:
        found |= {one: predicted(one, _switched(model, other, one)) for one in other.steps(config, POINTS // 2)}
        found |= fallbacks(other.config, other.sensitivity, other.model, POINTS // 2)
    return found


def _like(speeds: Mapping[QuantConfig, float], config: QuantConfig, start: QuantConfig) -> dict[QuantConfig, float]:
    """Mixtures that were measured before, their ops as in a configuration, or as in `start` where that has them not."""
    usual = start.replace({name: config[name] for name in config.quantized_ops})
    return {usual.fallback(*one.fp32_ops): seconds for one, seconds in speeds.items()}


def _switched(model: TimeModel, other: Alternatives, config: QuantConfig) -> TimeModel:
    """The times of ops, as in `other` of those that a configuration runs so."""
    assert other.model is not None
    seconds = {name: other.model.quantized[name] for name in other.changed if config[name] == other.config[name]}
    return replace(model, quantized={**model.quantized, **seconds})


def _paying(config: QuantConfig, start: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """With the ops reduced that save time, also those that were given up for accuracy before the first trial."""
    model, free = probe.time_model(start), space.able_to_fall_back(start)
    quick = model.fastest(start, free)
    return config.replace({name: quick[name] for name in config.fp32_ops if quick[name].quantized})


def _repaired(op: Op, pick: OpConfig) -> list[OpConfig]:
    """A choice with each repair that it can be given."""
    return [made for spelled in op.repairs if (made := op.repaired(pick, spelled)) != pick]


def _milder_choices(found: Trial, config: QuantConfig, space: TuningSpace, probe: Probe, timed: bool) -> Search:
    """Instead of fp32, another reduced choice that disturbs the output far less; where one exists, and is faster."""
    best, float_model = found, space.all_fp32()
    for name in [name for name in config.quantized_ops if found.config[name] == FLOAT]:
        usual = config[name]
        others = [in_family(space[name], wanted, usual) for wanted in families(space) if wanted != family(usual)]
        own = [one for one in space[name].quantized_choices if (one.mode, one.scheme) == (usual.mode, usual.scheme)]
        choices = [choice for choice in (usual, *own, *others, *_repaired(space[name], usual)) if choice is not None]
        errors = {choice: probe.output_error(float_model.replace({name: choice})) for choice in choices}
        for choice in sorted(errors, key=lambda choice: errors[choice]):
            changed = best.config.replace({name: choice})
            if errors[choice] >= FAR_LESS * errors[usual]:
                break
            if timed and probe.speed(changed) >= probe.speed(best.config):
                continue
            trial: Trial = yield changed
            best = trial if trial.met else best
            break
    return best
