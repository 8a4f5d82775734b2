"""`mse_v2`: at each step the fallback that lowers the output error most."""

from __future__ import annotations

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.trial import Trial


@register_strategy
class MseV2(Strategy):
    """At each step, move the op to fp32 that lowers the output error of the model most.

    The choice costs a session for each remaining op and no evaluation. Once the criterion is met, and with time
    left, ops return to int8, the one that raises the output error least first. Needs at most 1 + 2 (n - 1)
    evaluations for n ops. `candidates` is the number of ops that each step considers, the most sensitive first.
    """

    name = "mse_v2"

    def __init__(self, candidates: int = 32) -> None:
        self.candidates = candidates

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        trial: Trial = yield space.default_config()
        start = config = space.default_config()
        ranking = [name for name in probe.ranking() if start[name].quantized]
        fallen: list[str] = []
        budget_kept = False  # with a target budget, fallbacks continue until they have used it up
        while len(fallen) < len(ranking) - 1:
            if trial.met if self.target_budget is None else budget_kept and not trial.met:
                break
            budget_kept = trial.met
            left = [name for name in ranking if name not in fallen][: self.candidates]
            errors = probe.output_errors([config.fallback(name) for name in left])
            fallen.append(min(zip(errors, range(len(left)), left, strict=True))[2])
            config = config.fallback(fallen[-1])
            trial = yield config
        if not trial.met or self.target_budget is not None:
            return
        for name in sorted(fallen, key=lambda name: probe.output_error(_restored(config, start, name))):
            trial = yield _restored(config, start, name)
            if trial.met:
                config = trial.config

    def worst_case(self, space: TuningSpace) -> int:
        """Return 1 + 2 (n - 1)."""
        return 2 * self.first_success(space) - 1

    def first_success(self, space: TuningSpace) -> int:
        """Return n."""
        return max(len(space.able_to_fall_back(space.default_config())), 1)


def _restored(config: QuantConfig, start: QuantConfig, name: str) -> QuantConfig:
    return config.replace({name: start[name]})
