"""`mse`: fallbacks in the order of the error at each op's output."""

from __future__ import annotations

from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.trial import Trial


@register_strategy
class Mse(Strategy):
    """Ops whose output differs most between the all-int8 and the fp32 model fall back first, one after another.

    Needs at most 1 + n - 1 evaluations for n ops; the errors come from one pass without labels.
    """

    name = "mse"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        config = space.all_int8()
        trial: Trial = yield config
        errors = probe.mse()
        order = sorted(space.able_to_fall_back(config), key=lambda name: -errors[name])
        for name in order[:-1]:
            config, within = config.fallback(name), trial.met
            trial = yield config
            if self.ceiling is not None and within and not trial.met:
                return  # what falls back from here on takes more, and the budget is used up

    def worst_case(self, space: TuningSpace) -> int:
        """n."""
        return max(len(space.able_to_fall_back(space.all_int8())), 1)
