"""`auto`: everything that needs no labels first, then as few evaluations as possible."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps import weight_bits
from quaver.strategies.steps.alternatives import (
    on_offer,
    quantize_all,
)
from quaver.strategies.steps.boundaries import fewer_boundaries
from quaver.strategies.steps.faster_than_fp32 import faster_than_fp32, is_faster
from quaver.strategies.steps.initial import best_calibration, best_variant, fastest, measure_mixed_configs
from quaver.strategies.steps.pareto_front import first_success, ranked
from quaver.strategies.steps.problem import Base, Problem, Speeds, front_candidates, restyle_measured
from quaver.strategies.steps.repairs import best_repairs, carry_over
from quaver.strategies.steps.search import Search, evaluate_batch, prune, recorded, shortest_prefix
from quaver.strategies.steps.target_budget import recalibrated, within_budget
from quaver.strategies.steps.tuning import TUNING
from quaver.strategies.steps.weight_assignment import WeightLine, assign_weights
from quaver.strategies.steps.weight_bits import Narrowing, smallest_success
from quaver.target_budget import TargetBudget
from quaver.trial import Trial


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
    5. With the objective latency, a success that is not faster than fp32 does not end the search yet, not even without
       a timeout. Configurations with fewer and larger parts in int8 are timed, and those that are faster than fp32 are
       tried: up to four evaluations.
    6. Refine, with time left (`timeout` above 0). Ops return to int8 by halves: about d log2(n/d) evaluations if d ops
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
        problem = Problem(space, probe, self.traits.rewards_speed and probe.has_samples)
        yield from recorded(self._search(problem), problem.trials)

    def _search(self, problem: Problem) -> Proposals:
        """Search for a config that meets the criterion."""
        space, probe = problem.space, problem.probe
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
            other = yield from self._search_others(base, problem)
            if other is not None:
                yield from self._demand_gain(other, problem)
            return
        met = (yield from self._demand_gain(met, problem)) or met
        yield from self._refine(met, base, pruned_last, problem)

    def _choose_initial(self, problem: Problem) -> _Initial:
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

    def _try_initial(self, initial: _Initial, problem: Problem) -> Search:
        """Evaluate the initial configurations. Return the best of them if all failed, None if the search is over."""
        runners_up = [
            *initial.repaired,
            *(carry_over(initial.first, config, problem.space) for config in initial.calibrated[1:2]),
        ]
        batch = [initial.first, *runners_up[: self.width > 1]]
        first, *others = yield from evaluate_batch(batch, self.width)
        if first.met:
            yield from self._demand_gain(first, problem)
            if problem.timed:
                unrepaired = [config for config in initial.calibrated[:1] if config != first.config]
                yield from self._try_faster(first, [*initial.starts[1:], *unrepaired], problem)
            return None
        if self.width == 1:
            has_runner_up = initial.repaired or not problem.timed
            others = yield from evaluate_batch(runners_up[:1] if has_runner_up else (), self.width)
        met = next((trial for trial in others if trial.met), None)
        if met is not None:
            yield from self._demand_gain(met, problem)
            return None
        return _best_loss(first, *others)

    def _demand_gain(self, met: Trial, problem: Problem) -> Search:
        """Return `met` if it is faster than fp32. Otherwise search on, also without a timeout, before giving up."""
        if not problem.timed or is_faster(met.config, problem.probe):
            return met
        self.continues_after_success = True
        try:
            faster = yield from faster_than_fp32(met, problem)
        finally:
            self.continues_after_success = False
        return faster or met

    def _search_front(self, failed: Trial, base: Base, speeds: Speeds, problem: Problem) -> FrontSearch:
        """Stage 3: search along the latency/error Pareto front, or try all other modes at once."""
        candidates: Speeds = {}
        if base.model is not None:
            restyled = restyle_measured(speeds, base.config, base.whole)
            candidates = front_candidates(base, base.model) | restyled
        if self.front and len(candidates) > 1:
            met = yield from first_success(failed, candidates, self.allowed, problem.probe, self._at_once)
            return _FrontResult(met, failed)
        if base.other is None:
            return _FrontResult(None, failed)
        (changed,) = yield from evaluate_batch([base.other.config], self.width)
        return _FrontResult(changed if changed.met else None, _best_loss(failed, changed))

    def _search_others(self, base: Base, problem: Problem) -> Search:
        """Stage 4 again, among the ops that stage 1 left in fp32: none of its own ops can be quantized."""
        able = set(problem.space.able_to_fall_back(base.whole))
        config = base.whole.fallback(*(name for name in base.config.quantized_ops if name in able))
        if config == base.whole or not able & set(config.quantized_ops):
            return None
        trial: Trial = yield config
        if trial.met:
            return trial
        return (yield from shortest_prefix(trial, ranked(problem.probe.sensitivity(config)), self._at_once))

    def _refine(self, met: Trial, base: Base, pruned_last: int, problem: Problem) -> Proposals:
        """Stage 6: bring ops back to int8, as long as the criterion stays met.

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

    def _try_faster(self, met: Trial, others: Sequence[QuantConfig], problem: Problem) -> Proposals:
        """Stage 6 after the first trial met the criterion: try what was slightly faster, and quantize more ops."""
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

        With the objective latency, add 6 log2(n) + 6 for the ops that save no time, and 4 for a success that is not
        faster than fp32.
        """
        if self.target_budget is not None:
            return TUNING.max_budget_trials
        at_once, searches = self._at_once, TUNING.max_searches
        depth = math.ceil(math.log2(max(len(space.tunable), 1)))
        prefix = at_once * (depth + searches * (depth + 1))
        if self.traits.rewards_speed:
            front = at_once * math.ceil(TUNING.max_front_trials / at_once)
            return 2 + front + 2 * prefix + 1 + TUNING.max_gain_trials
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
