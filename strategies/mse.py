"""`mse`: fallbacks in the order of the error that each op adds; one that does not help is undone."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, TypeAlias

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.alternatives import alternatives, on_offer
from quaver.strategies.steps.search import prune
from quaver.trial import Trial

# A fallback helps if it removes at least this part of the allowed loss: less may be chance. Several at once help if
# they remove this part of the whole loss, because each op removes a little. Judgement.
HELPFUL_PART = 0.1
# When this many fallbacks were undone, and at each doubling, they are tried together: some only help together.
FALLBACKS_TOGETHER = 3
Walk: TypeAlias = Generator[QuantConfig, Any, Trial]


@register_strategy
class Mse(Strategy):
    """Move ops to fp32 one after another, the largest squared error on their own output first.

    1. All ops in int8; the errors come from one pass without labels. Sensitive ops run in another mode that is clearly
       less sensitive, where there is one.
    2. One op after another falls back, the largest error first. A fallback that does not help is undone. After 3,
       6, 12, ... of these, all of them fall back at once: a few ops may help only together.
    3. If no op is left and the criterion is not met, the undone fallbacks are added up again.
    4. With time left, ops return to int8 as long as the criterion stays met.

    Needs at most 2 n + log2(n) evaluations to the first success for n ops, one more where ops have other modes, and 2 n
    more to the end.
    """

    name = "mse"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        best: Trial = yield space.default_config()
        if self.target_budget is None:
            best = yield from _other_modes(best, space, probe)
            if best.met:
                return
        start = best.config
        errors = probe.mse()
        order = sorted(space.able_to_fall_back(start), key=lambda name: -errors[name])
        if self.target_budget is not None:
            yield from _until_used_up(best, order)
            return
        best = yield from self._one_by_one(best, order)
        if not best.met:
            best = yield from _added_up(best, [name for name in order if best.config[name].quantized])
        if best.met:
            yield from prune(best, start, [name for name in reversed(order) if not best.config[name].quantized])

    def _one_by_one(self, best: Trial, order: list[str]) -> Walk:
        """Keep the fallbacks that help, alone or together."""
        doubted: list[str] = []
        limit = FALLBACKS_TOGETHER
        for name in order:
            trial = yield from _fallen(best, [name])
            if _gains(trial, best, HELPFUL_PART * self.allowed):
                best = trial
            else:
                doubted.append(name)
            if len(doubted) == limit and not best.met:
                limit *= 2
                trial = yield from _fallen(best, doubted)
                if _gains(trial, best, HELPFUL_PART * _loss(best)):
                    best, doubted, limit = trial, [], FALLBACKS_TOGETHER
            if best.met:
                break
        return best

    def worst_case(self, space: TuningSpace) -> int:
        """Return twice `first_success`, less one: as many again to bring ops back."""
        return 2 * self.first_success(space) - 1

    def first_success(self, space: TuningSpace) -> int:
        """Return 2 n - 1 (all int8, each op, n - 2 of them added up), and those tried together or in other modes.

        It is one more if rules keep other ops in int8: then all n ops may fall back together.
        """
        default = space.default_config()
        ops = len(space.able_to_fall_back(default))
        others_stay = len(default.quantized_ops) > ops
        return max(2 * ops - 1 + others_stay, 1) + (ops // FALLBACKS_TOGETHER).bit_length() + on_offer(space)


def _other_modes(first: Trial, space: TuningSpace, probe: Probe) -> Walk:
    """Return the better of a trial and the one with its most sensitive ops in other modes."""
    other = None
    if not first.met and on_offer(space):
        other = alternatives(first.config, probe.sensitivity(first.config), space, probe, model=None)
    if other is None:
        return first
    trial: Trial = yield other.config
    return trial if _gains(trial, first, 0.0) else first


def _fallen(best: Trial, names: list[str]) -> Walk:
    """Move these ops to fp32, too; return the trial before if that would leave nothing quantized."""
    config = best.config.fallback(*names)
    if not config.quantized_ops:
        return best
    trial: Trial = yield config
    return trial


def _added_up(best: Trial, names: list[str]) -> Walk:
    for name in names:
        if best.met:
            break
        best = yield from _fallen(best, [name])
    return best


def _until_used_up(trial: Trial, order: list[str]) -> Walk:
    """Move one op after another to fp32 as long as the target budget is kept."""
    for name in order[:-1]:
        within = trial.met
        trial = yield trial.config.fallback(name)
        if within and not trial.met:
            break  # every further fallback exceeds the budget, too
    return trial


def _gains(trial: Trial, before: Trial, least: float) -> bool:
    """Return True if a trial lowers the loss by at least `least`, or has a loss after one that failed."""
    return trial.met or (trial.loss is not None and (before.loss is None or trial.loss <= before.loss - least))


def _loss(trial: Trial) -> float:
    return math.inf if trial.loss is None else trial.loss
