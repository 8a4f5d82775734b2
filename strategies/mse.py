"""`mse`: fallbacks in the order of the error at each op's output."""

from __future__ import annotations

from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.alternatives import alternatives, on_offer
from quaver.trial import Trial


@register_strategy
class Mse(Strategy):
    """Ops whose output differs most between the all-int8 and the fp32 model fall back first, one after another.

    Before that, those that do harm run in another reduced choice which does clearly less, where there is one. Needs at
    most 1 + n evaluations for n ops, n where there is none; errors are measured without labels.
    """

    name = "mse"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        config = space.all_int8()
        first: Trial = yield config
        other = None
        if not first.met and on_offer(space):
            other = alternatives(config, probe.sensitivity(config), space, probe, model=None)
        if other is not None:
            trial: Trial = yield other.config
            better = trial.loss is not None and (first.loss is None or trial.loss < first.loss)
            config = other.config if better else config
        errors = probe.mse()
        order = sorted(space.able_to_fall_back(config), key=lambda name: -errors[name])
        for name in order[:-1]:
            config = config.fallback(name)
            yield config

    def worst_case(self, space: TuningSpace) -> int:
        """n, and one more where ops have choices in other modes or repairs."""
        return max(len(space.able_to_fall_back(space.all_int8())), 1) + on_offer(space)
