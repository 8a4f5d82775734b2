"""`conservative`: from fp32 upwards, never giving accuracy away."""

from __future__ import annotations

from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.trial import Trial


@register_strategy
class Conservative(Strategy):
    """Starts in fp32 and adds one op type after another in int8, the one that saves most time first.

    A type that breaks the criterion is taken back and, at the end, added op by op, the least sensitive first, until
    one breaks it. Needs at most k + n evaluations for k op types and n ops. Give it a `timeout`: without one a run
    ends at the first type that meets the criterion.
    """

    name = "conservative"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        default = space.all_int8()
        config = space.all_fp32()
        times = probe.latency()
        gain = {kind: sum(times[name].saved for name in space.of_kind(kind)) for kind in space.kinds}
        refused: list[str] = []
        for kind in sorted(space.kinds, key=lambda kind: -gain[kind]):
            names = [name for name in space.of_kind(kind) if default[name].reduced]
            if not names:
                continue
            trial: Trial = yield config.replace({name: default[name] for name in names})
            if trial.met:
                config = trial.config
            else:
                refused += names
        harm = probe.sensitivity() if refused else {}
        for name in sorted(refused, key=lambda name: harm.get(name, 0.0)):
            trial = yield config.replace({name: default[name]})
            if not trial.met:
                return
            config = trial.config

    def worst_case(self, space: TuningSpace) -> int:
        """k + n."""
        return len(space.kinds) + len(space.quantizable)

    def first_success(self, space: TuningSpace) -> int:
        """k + 1: a single op that breaks the criterion by itself ends the search."""
        return min(len(space.kinds) + 1, self.worst_case(space))
