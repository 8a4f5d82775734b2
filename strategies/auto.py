"""`auto`: everything that needs no labels first, then as few evaluations as possible."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

from quaver.ops import FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps import weight_bits
from quaver.strategies.steps.alternatives import (
    Alternatives,
    alternatives,
    families,
    family,
    in_family,
    on_offer,
    quantize_all,
)
from quaver.strategies.steps.boundaries import fewer_boundaries
from quaver.strategies.steps.initial import best_calibration, best_variant, fastest, measure_mixed_configs
from quaver.strategies.steps.pareto_front import fallbacks, first_success, ranked
from quaver.strategies.steps.repairs import best_repairs, carry_over
from quaver.strategies.steps.search import Search, evaluate_batch, prune, shortest_prefix
from quaver.strategies.steps.target_budget import recalibrated, within_budget
from quaver.strategies.steps.tuning import TUNING
from quaver.strategies.steps.weight_assignment import WeightLine, assign_weights
from quaver.strategies.steps.weight_bits import Narrowing, smallest_success
from quaver.target_budget import TargetBudget
from quaver.time_model import TimeModel
from quaver.trial import Trial

Speeds: TypeAlias = dict[QuantConfig, float]
"""The times of configurations relative to fp32, predicted or measured."""


@register_strategy
class Auto(Strategy):
    """Measure everything that needs no labels first, then find a config that meets the criterion in few evaluations.

    n is the number of ops that can fall back to fp32.

    1. Initial configuration, without labels. With the objective latency, a time model of ops and conversions and the
       error of each op by itself propose a few mixed-precision configs. These are timed. Among those as fast as the
       fastest, one with clearly less output error is preferred. Then each op type gets the calibration method with the
       least output error. Repairs follow that reduce the error clearly and cost no time, and another mode if that is
       better still. One evaluation. If it fails, one more: repairs that cost time or, with another objective, the
       runner-up calibration.
    2. Narrow weights, with the objective size: this comes before the evaluation of stage 1. All weights that can have
       fewer than 8 bits get them. Then those that are most sensitive for the bytes they save return to 8 bits, as far
       as the output error suggests. Up to four evaluations, none where little is saved. If all fail, the search
       continues with a configuration whose output error is as low as with 8 bits.
    3. Pareto front. Ops are ranked by their sensitivity. The most sensitive ones may get another mode that is clearly
       less sensitive and faster than fp32. With the objective latency, the candidates are the latency/error Pareto
       front of the time model, prefixes of the ranking in their other mode, and the configs of stage 1. Each step tries
       the candidate that removes most error for the time it costs, as long as it is faster than fp32. Up to six
       evaluations. With another objective, all other modes are tried at once. One evaluation.
    4. Prefix, if stage 3 did not succeed. It finds the shortest prefix of the ranking that must fall back: at most
       2 log2(n) + 1 evaluations. Each of up to four ops that rank last and must fall back all the same takes
       log2(n) + 1 more. If none of these ops can be quantized, the stage is repeated among the ops that stage 1 left
       in fp32.
    5. Refine, with time left (`timeout` above 0). Ops return to int8 by halves: about d log2(n/d) evaluations if d ops
       have to stay in fp32. Those d ops then get another int8 choice with less output error. With the objective
       latency, up to four evaluations try moves that save conversions between int8 and fp32.

    With several workers it spends more evaluations to take less time. It evaluates the first two calibrations at once,
    several steps along the front, and as many lengths of the prefix as there are workers, up to 8. Pruning is
    sequential.

    With a target budget instead of a criterion, the candidates are repairs, then points of the front, combined with
    other modes and fallbacks as far as the budget allows. Those within the budget when measured are tried in the order
    of their output error. Up to eight evaluations, none for a model that is known to exceed the budget.

    For a language model the weights alone are searched: see `steps/weight_assignment.py`. An all-fp32 model is never
    proposed.

    Args:
        mixtures: False leaves out the choice of mixed-precision configs in stage 1, to see what it brings.
        front: False leaves out stage 3.
        repairs: False leaves out repairs.
    """

    name = "auto"

    def __init__(self, mixtures: bool = True, front: bool = True, repairs: bool = True) -> None:
        self.mixtures, self.front, self.repairs = mixtures, front, repairs

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        if (table := probe.weight_table()) is not None:
            return (yield from assign_weights(WeightLine(table, space, probe), self.allowed, self.target_budget))
        if self.target_budget is not None:
            return (yield from self._within_budget(self.target_budget, space, probe))
        problem = _Problem(space, probe, self.traits.rewards_speed and probe.has_samples)
        initial = self._choose_initial(problem)
        if self.traits.rewards_small_files and weight_bits.on_offer(space):
            narrowing = Narrowing(initial.first, space, probe)
            if (yield from self._narrow_weights(narrowing)) is not None:
                return
            initial = initial._replace(first=narrowing.next_best)
        failed = yield from self._try_initial(initial, problem)
        if failed is None:
            return
        base = problem.base(failed.config)
        front = yield from self._search_front(failed, base, initial.speeds, problem)
        met, pruned_last = front.met, 0
        if met is None:
            ranking = ranked(base.ranking_of(front.best.config))
            met = yield from shortest_prefix(front.best, ranking, self._at_once)
            pruned_last = 1  # the last op of the shortest prefix is needed, or a shorter one would have been enough
        if met is None:
            yield from self._search_others(base, problem)
            return
        yield from self._refine(met, base, pruned_last, problem)

    def _choose_initial(self, problem: _Problem) -> _Initial:
        """Stage 1: choose the configurations to evaluate first, without labels."""
        space, probe, timed = problem.space, problem.probe, problem.timed
        default = space.default_config()
        speeds = measure_mixed_configs(default, space, probe) if timed and self.mixtures else {}
        starts = fastest(speeds, probe) if speeds else [default]
        calibrated = best_calibration(starts[0], space, probe)
        repair = self.repairs and probe.has_samples
        first, *repaired = best_repairs(calibrated[0], space, probe, timed) if repair else calibrated[:1]
        if timed and self.mixtures and (variant := best_variant(first, space, probe)) != first:
            limit = TUNING.clearly_less_error * probe.output_error(variant)
            first, repaired = variant, [config for config in repaired if probe.output_error(config) < limit]
        return _Initial(first, repaired, calibrated, starts, speeds)

    def _narrow_weights(self, narrowing: Narrowing) -> Search:
        """Stage 2: find the smallest success with weights of fewer bits; None if there is none."""
        small = yield from smallest_success(narrowing, self.allowed, self._at_once)
        if small is not None:
            yield from prune(small, narrowing.smallest, narrowing.given_back(small.config))
        return small

    def _try_initial(self, initial: _Initial, problem: _Problem) -> Search:
        """Evaluate the initial configurations. Return the best of them if all failed, None if the search is over."""
        runners_up = [
            *initial.repaired,
            *(carry_over(initial.first, config, problem.space) for config in initial.calibrated[1:2]),
        ]
        batch = [initial.first, *runners_up[: self.width > 1]]
        first, *others = yield from evaluate_batch(batch, self.width)
        if first.met:
            if problem.timed:
                unrepaired = [config for config in initial.calibrated[:1] if config != first.config]
                yield from self._try_faster(first, [*initial.starts[1:], *unrepaired], problem)
            return None
        if self.width == 1:
            has_runner_up = initial.repaired or not problem.timed
            others = yield from evaluate_batch(runners_up[:1] if has_runner_up else (), self.width)
        if any(trial.met for trial in others):
            return None
        return _best_loss(first, *others)

    def _search_front(self, failed: Trial, base: _Base, speeds: Speeds, problem: _Problem) -> FrontSearch:
        """Stage 3: search along the latency/error Pareto front, or try all other modes at once."""
        candidates: Speeds = {}
        if base.model is not None:
            restyled = _restyle_measured(speeds, base.config, base.whole)
            candidates = _front_candidates(base, base.model) | restyled
        if self.front and len(candidates) > 1:
            met = yield from first_success(failed, candidates, self.allowed, problem.probe, self._at_once)
            return _FrontResult(met, failed)
        if base.other is None:
            return _FrontResult(None, failed)
        (changed,) = yield from evaluate_batch([base.other.config], self.width)
        return _FrontResult(changed if changed.met else None, _best_loss(failed, changed))

    def _search_others(self, base: _Base, problem: _Problem) -> Search:
        """Stage 4 again, among the ops that stage 1 left in fp32: none of its own ops can be quantized."""
        able = set(problem.space.able_to_fall_back(base.whole))
        config = base.whole.fallback(*(name for name in base.config.quantized_ops if name in able))
        if config == base.whole or not able & set(config.quantized_ops):
            return None
        trial: Trial = yield config
        if trial.met:
            return trial
        return (yield from shortest_prefix(trial, ranked(problem.probe.sensitivity(config)), self._at_once))

    def _refine(self, met: Trial, base: _Base, pruned_last: int, problem: _Problem) -> Proposals:
        """Stage 5: bring ops back to int8, as long as the criterion stays met.

        Args:
            met: the first success.
            base: the configuration that it came from.
            pruned_last: the number of fallen ops, from the end of the ranking, that are known to be needed.
            problem: what is searched.
        """
        config = base.config
        if problem.timed:
            config = problem.add_time_savers(config, base.whole)
        fallen = [name for name in ranked(problem.probe.sensitivity(config)) if met.config[name] != config[name]]
        best = yield from prune(met, config, fallen[: len(fallen) - pruned_last][::-1])
        if best is not None:
            best = yield from problem.less_sensitive_variants(best, config)
        if best is not None and problem.timed:
            yield from fewer_boundaries(best, config, problem.space, problem.probe)

    def _try_faster(self, met: Trial, others: Sequence[QuantConfig], problem: _Problem) -> Proposals:
        """Stage 5 after the first trial met the criterion: try what was slightly faster, and quantize more ops."""
        for other in others:
            yield best_calibration(other, problem.space, problem.probe)[0]
        config = problem.add_time_savers(met.config, quantize_all(met.config, problem.space))
        order = ranked(problem.probe.local_error())[::-1]
        yield from prune(met, config, [name for name in order if config[name] != met.config[name]])

    def _within_budget(self, target_budget: TargetBudget, space: TuningSpace, probe: Probe) -> Proposals:
        """Evaluate the configs that use the budget with the least error; of the best one, other calibrations too."""
        start = best_calibration(space.default_config(), space, probe)[0]
        configs = within_budget(start, space, probe, target_budget, self.repairs)
        if not configs and probe.has_samples:
            quickest = fastest(measure_mixed_configs(start, space, probe), probe)
            repaired = [
                best_repairs(config, space, probe, timed=True) if self.repairs else [config] for config in quickest
            ]
            configs = list(chain.from_iterable(repaired))
        first, *calibrations = recalibrated((configs or [start])[0], space, probe)
        # A generator: each calibration is computed on all samples, so not for configs that nobody will ask for.
        others = (recalibrated(config, space, probe)[0] for config in configs[1:])
        proposals = islice(chain([first], calibrations[:1], others), TUNING.max_budget_trials)
        while batch := list(islice(proposals, self._at_once)):
            for trial in (yield from evaluate_batch(batch, self.width)):
                if trial.met and trial.loss is not None and trial.loss <= 0:
                    return

    def worst_case(self, space: TuningSpace) -> int:
        """Return `first_success` + 2 n for pruning + n for other choices + 4 for speed; 8 with a target budget."""
        if self.target_budget is not None:
            return TUNING.max_budget_trials
        return self.first_success(space) + 3 * max(len(space.tunable), 1) + TUNING.max_boundary_trials

    def first_success(self, space: TuningSpace) -> int:
        """Return 2 + 6 along the front (or 1 with other modes) + 4 with fewer bits + 6 log2(n) + 5; more with workers.

        With the objective latency, add 6 log2(n) + 6 for the ops that save no time.
        """
        if self.target_budget is not None:
            return TUNING.max_budget_trials
        at_once, searches = self._at_once, TUNING.max_searches
        depth = math.ceil(math.log2(max(len(space.tunable), 1)))
        prefix = at_once * (depth + searches * (depth + 1))
        if self.traits.rewards_speed:
            return 2 + at_once * math.ceil(TUNING.max_front_trials / at_once) + 2 * prefix + 1
        narrows = self.traits.rewards_small_files and weight_bits.on_offer(space)
        narrow = narrows * at_once * math.ceil(TUNING.max_narrow_trials / at_once)
        return 2 + on_offer(space) + narrow + prefix

    @property
    def _at_once(self) -> int:
        """The number of prefix lengths or steps that are tried at once."""
        return min(self.width, TUNING.max_width)


class _Initial(NamedTuple):
    """The choices of stage 1.

    Attributes:
        first: the configuration to evaluate first.
        repaired: the same with repairs that take time.
        calibrated: calibrations of the chosen ops, without repairs, the best first.
        starts: the chosen mixed-precision config, then the fastest if that is another.
        speeds: measured times of mixed-precision configs.
    """

    first: QuantConfig
    repaired: list[QuantConfig]
    calibrated: list[QuantConfig]
    starts: list[QuantConfig]
    speeds: Speeds


@dataclass(frozen=True, slots=True)
class _Base:
    """The configuration that failed and that the search continues from.

    Attributes:
        config: the configuration.
        sensitivity: what each of its ops does to the outputs by itself.
        whole: all ops quantized, in the families of `config`.
        model: the times of the ops of `whole`; None where time does not matter.
        other: less sensitive choices for its most sensitive ops; None if there are none.
    """

    config: QuantConfig
    sensitivity: Mapping[str, float]
    whole: QuantConfig
    model: TimeModel | None
    other: Alternatives | None

    def ranking_of(self, config: QuantConfig) -> Mapping[str, float]:
        """Return the sensitivity of the ops of `config`: this configuration, or the one with other choices."""
        return self.sensitivity if self.other is None or config == self.config else self.other.sensitivity


@dataclass(frozen=True, slots=True)
class _Problem:
    """The problem to search.

    Attributes:
        space: the choices of the ops.
        probe: measures without labels.
        timed: True if the objective rewards speed and there are samples to measure it on.
    """

    space: TuningSpace
    probe: Probe
    timed: bool

    def base(self, config: QuantConfig) -> _Base:
        """Probe what the search needs to know of a configuration that failed."""
        sensitivity = self.probe.sensitivity(config)
        whole = quantize_all(config, self.space)
        model = self.probe.time_model(whole) if self.timed else None
        other = alternatives(config, sensitivity, self.space, self.probe, model)
        return _Base(config, sensitivity, whole, model, other)

    def add_time_savers(self, config: QuantConfig, whole: QuantConfig) -> QuantConfig:
        """Quantize the ops that save time, also those that stage 1 gave up for accuracy."""
        model, free = self.probe.time_model(whole), self.space.able_to_fall_back(whole)
        quickest = model.fastest(whole, free)
        return config.replace({name: quickest[name] for name in config.fp32_ops if quickest[name].quantized})

    def less_sensitive_variants(self, met: Trial, config: QuantConfig) -> Search:
        """Replace fp32 by another quantized choice with far less output error, where one exists and is faster."""
        best, float_config = met, self.space.all_fp32()
        for name in [name for name in config.quantized_ops if met.config[name] == FLOAT]:
            usual = config[name]
            choices = self._choices_like(self.space[name], usual)
            errors = {choice: self.probe.output_error(float_config.replace({name: choice})) for choice in choices}
            for choice in sorted(errors, key=lambda choice: errors[choice]):
                changed = best.config.replace({name: choice})
                if errors[choice] >= TUNING.replacement_error * errors[usual]:
                    break
                if self.timed and self.probe.speed(changed) >= self.probe.speed(best.config):
                    continue
                trial: Trial = yield changed
                best = trial if trial.met else best
                break
        return best

    def _choices_like(self, op: Op, usual: OpConfig) -> list[OpConfig]:
        """Return the usual choice of an op, and others in its place: details, families, repairs."""
        details = [
            choice for choice in op.quantized_choices if (choice.mode, choice.scheme) == (usual.mode, usual.scheme)
        ]
        others = [in_family(op, wanted, usual) for wanted in families(self.space) if wanted != family(usual)]
        repaired = [changed for repair in op.repairs if (changed := op.repaired(usual, repair)) != usual]
        return [choice for choice in (usual, *details, *others, *repaired) if choice is not None]


class _FrontResult(NamedTuple):
    """The outcome of stage 3.

    Attributes:
        met: a trial that meets the criterion; None if there is none.
        best: the trial from which the search continues otherwise.
    """

    met: Trial | None
    best: Trial


FrontSearch: TypeAlias = Generator[QuantConfig | Sequence[QuantConfig], Any, _FrontResult]


def _best_loss(*trials: Trial) -> Trial:
    """Return the trial with the least loss, the earliest of several; one without a loss is worse than any other."""
    return min(trials, key=lambda trial: math.inf if trial.loss is None else trial.loss)


def _front_candidates(base: _Base, model: TimeModel) -> Speeds:
    """Return all that may be tried after `base` failed, with predicted times: fallbacks, other choices, and both."""
    config, other = base.config, base.other
    candidates = fallbacks(config, base.sensitivity, model)
    if other is not None and other.model is not None:
        steps = TUNING.front_points // 2
        candidates |= {step: _with_times_of(other, step, model).relative(step) for step in other.steps(config, steps)}
        candidates |= fallbacks(other.config, other.sensitivity, other.model, steps)
    return candidates


def _with_times_of(other: Alternatives, config: QuantConfig, model: TimeModel) -> TimeModel:
    """Return the times of ops, with those of `other` for the ops that run so in a configuration."""
    assert other.model is not None
    seconds = {name: other.model.quantized[name] for name in other.changed if config[name] == other.config[name]}
    return replace(model, quantized={**model.quantized, **seconds})


def _restyle_measured(speeds: Mapping[QuantConfig, float], config: QuantConfig, whole: QuantConfig) -> Speeds:
    """Return the measured mixed-precision configs, with ops as in `config`, or as in `whole` where it is fp32."""
    usual = whole.replace({name: config[name] for name in config.quantized_ops})
    return {usual.fallback(*measured.fp32_ops): seconds for measured, seconds in speeds.items()}
