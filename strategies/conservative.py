"""`conservative`: from fp32 upwards, adding int8 ops as long as the criterion is met."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import accumulate, takewhile
from typing import Any

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.search import evaluate_batch
from quaver.trial import Trial

Added = Generator[QuantConfig | Sequence[QuantConfig], Any, tuple[QuantConfig, int]]


@register_strategy
class Conservative(Strategy):
    """Start in fp32 and add one op type after another in int8, the one that saves most time first.

    A type that breaks the criterion is undone and, at the end, added op by op, the least sensitive first, until one
    breaks it. With a target budget, types are added until the model is within it, and of the last type only the least
    sensitive ops. Needs at most k + n evaluations for k op types and n ops. A run without a `timeout` does not end at
    the first type that meets the criterion, but when all were tried.

    With several workers the next types, or ops, are tried at once, each on top of those before it as if they all met
    the criterion: more evaluations, less time, the same path. Trials behind one that did not meet it are lost.
    """

    name = "conservative"
    continues_after_success = True

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        default = space.default_config()
        config = space.all_fp32()
        times = probe.latency() if probe.has_samples else {}
        gain = {kind: sum(times[name].saved for name in space.of_kind(kind) if times) for kind in space.kinds}
        refused: list[str] = []
        by_gain = sorted(space.kinds, key=lambda kind: -gain[kind])
        groups = [[name for name in space.of_kind(kind) if default[name].quantized] for kind in by_gain]
        waiting = [names for names in groups if names]
        if self.target_budget is not None:
            yield from _into_budget(config, default, waiting, probe)
            return
        while waiting:
            config, met = yield from self._added(config, default, waiting[: self.width])
            waiting = waiting[met:]
            if met < self.width and waiting:
                refused += waiting.pop(0)
        sensitivity = probe.sensitivity() if refused else {}
        waiting = [[name] for name in sorted(refused, key=lambda name: sensitivity.get(name, 0.0))]
        while waiting:
            config, met = yield from self._added(config, default, waiting[: self.width])
            if met < min(self.width, len(waiting)):
                return
            waiting = waiting[met:]

    def _added(self, config: QuantConfig, default: QuantConfig, groups: list[list[str]]) -> Added:
        """Quantize each group on top of those before it. Return the last that met the criterion, and the count."""
        changes = [{name: default[name] for name in names} for names in groups]
        on_top = list(accumulate(changes, lambda on, change: on.replace(change), initial=config))
        trials = yield from evaluate_batch(on_top[1:], self.width)
        met = list(takewhile(lambda trial: trial.met, trials))
        return (met[-1].config if met else config), len(met)

    def worst_case(self, space: TuningSpace) -> int:
        """Return k + n; each that breaks the criterion may cost one more for each further worker."""
        return (len(space.kinds) + len(space.quantizable)) * self.width

    def first_success(self, space: TuningSpace) -> int:
        """Return k + 1: a single op that breaks the criterion by itself ends the search."""
        return min((len(space.kinds) + 1) * self.width, self.worst_case(space))


def _into_budget(config: QuantConfig, default: QuantConfig, groups: list[list[str]], probe: Probe) -> Proposals:
    """Quantize one type after another until the budget is kept; of the last one only as many ops as are needed."""
    for names in groups:
        trial: Trial = yield config.replace({name: default[name] for name in names})
        if trial.met:
            break
        config = config.replace({name: default[name] for name in names})
    else:
        return
    sensitivity = probe.sensitivity()
    for name in sorted(names, key=lambda name: sensitivity.get(name, 0.0))[:-1]:
        config = config.replace({name: default[name]})
        trial = yield config
        if trial.met:
            return
