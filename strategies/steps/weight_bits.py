"""Weights of fewer bits, where size counts: as many as the criterion allows, the rest in eight.

Every op that can have fewer bits gets them at first. On the way back to eight bits, the ops that are most sensitive for
the bytes they save come first. The output error at a few points of that line, computed without labels, tells which to
try.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from quaver.ops import Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.alternatives import in_family
from quaver.strategies.steps.search import Search, evaluate_batch
from quaver.strategies.steps.tuning import TUNING
from quaver.trial import Trial


def fewer_bits(op: Op, usual: OpConfig) -> OpConfig | None:
    """Return the choice of an op with fewer bits than the usual one, repaired if that is on offer; None if none is."""
    if not usual.quantized:
        return None
    fewer = [choice for choice in op.quantized_choices if choice.precision.bits < usual.precision.bits]
    repaired = [choice for choice in fewer if choice.repairs and replace(choice, repairs=()) == fewer[0]]
    return next(iter([*repaired, *fewer]), None)


def on_offer(space: TuningSpace) -> bool:
    """Return True if an op has a choice of fewer bits than its default."""
    return any(fewer_bits(op, op.choices[0]) is not None for op in space.ops)


class Narrowing:
    """The line between a configuration of eight bits and the same one with the fewest bits.

    Points of it are computed when they are asked for.

    Attributes:
        start: the configuration of eight bits that would be tried otherwise.
        smallest: all ops with the fewest bits, where that saves anything; `start` if nowhere.
    """

    def __init__(self, start: QuantConfig, space: TuningSpace, probe: Probe) -> None:
        self.start, self._space, self._probe = start, space, probe
        narrow = {name: choice for name, pick in start.items() if (choice := fewer_bits(space[name], pick)) is not None}
        eight = {name: _eight_bits(space[name], start[name], choice) for name, choice in narrow.items()}
        self._eight = start.replace(eight)
        whole = probe.size(self._eight)
        self._saved = {name: whole - probe.size(self._eight.replace({name: narrow[name]})) for name in narrow}
        self._chosen = {name: choice for name, choice in narrow.items() if self._saved[name] > 0}
        self.smallest = self._eight.replace(self._chosen) if self._chosen else start

    def is_worthwhile(self, config: QuantConfig) -> bool:
        """Return True if a configuration is much smaller than the one of eight bits."""
        return self._probe.size(config) <= (1 - TUNING.worthwhile_saving) * self._probe.size(self.start)

    @functools.cached_property
    def order(self) -> list[str]:
        """The ops with fewer bits, in the order in which they return to eight: most sensitive for its bytes first."""
        alone = self._space.float_config()
        sensitivity = dict(self._probe.sensitivity(alone.replace(self._chosen)))
        always_quantized = [name for name in self._chosen if name not in sensitivity]
        errors = self._probe.output_errors([alone.replace({name: self._chosen[name]}) for name in always_quantized])
        sensitivity |= dict(zip(always_quantized, errors, strict=True))
        return sorted(self._chosen, key=lambda name: -sensitivity[name] / self._saved[name])

    @functools.cached_property
    def points(self) -> Mapping[QuantConfig, float]:
        """The smallest, and those with more and more of `order` in eight bits, with the error at their outputs.

        Only those that are much smaller than `start`.
        """
        count = len(self.order)
        steps = np.geomspace(1, count, TUNING.narrow_points).round().astype(int)
        back = [self.order[:length] for length in np.unique([*steps, *(count - steps)]).tolist()]
        wider = [self.smallest.replace({name: self._eight[name] for name in names}) for names in back]
        configs = [config for config in dict.fromkeys([self.smallest, *wider]) if self.is_worthwhile(config)]
        return dict(zip(configs, self._probe.output_errors(configs), strict=True))

    def within(self, limit: float) -> QuantConfig | None:
        """Return the smallest of the points whose output error is at most `limit`."""
        return next((point for point, error in self.points.items() if error <= limit), None)

    def given_back(self, config: QuantConfig) -> list[str]:
        """Return the ops that a point has in eight bits, those that are least sensitive for their bytes first."""
        changed = [name for name in self._chosen if config[name] != self.smallest[name]]
        return sorted(changed, key=self.order.index, reverse=True) if changed else []

    @property
    def next_best(self) -> QuantConfig:
        """The configuration to continue with if no point was successful: one as good as `start`, or `start` itself."""
        if self.smallest == self.start:
            return self.start
        error, least = self._probe.output_errors([self.start, self.smallest])
        limit = TUNING.as_good_as_8_bits * error
        if not self.is_worthwhile(self.smallest):
            return self.smallest if least <= limit else self.start
        return self.within(limit) or self.start


def _eight_bits(op: Op, usual: OpConfig, choice: OpConfig) -> OpConfig:
    """Return the choice that an op returns to: eight bits in the mode of its narrow choice, which is a gentle one."""
    return in_family(op, (usual.precision, choice.mode, ()), usual) or usual


def smallest_success(narrowing: Narrowing, allowed: float, width: int = 1) -> Search:
    """Find the smallest model that meets the criterion, as far as the error at the outputs tells it.

    After a trial that fails, the next one has an error as much smaller as the loss is too large; or the least error
    that there is, once. None after a few trials, or if fewer bits save too little to be tried.
    """
    if not narrowing.is_worthwhile(narrowing.smallest):
        return None
    chosen = [narrowing.smallest]
    if width > 1:
        chosen = _descending(narrowing, narrowing.points[narrowing.smallest], width)
    for _ in range(0, TUNING.max_narrow_trials, width):
        trials: list[Trial] = yield from evaluate_batch(chosen, width)
        met = next((trial for trial in trials if trial.met), None)
        last = trials[-1]
        if met is not None or last.loss is None:
            return met
        error, least = narrowing.points[last.config], min(narrowing.points.values())
        if error <= least:
            return None
        enough = TUNING.aim * error * min(allowed / max(last.loss, TUNING.tiny), 1.0)
        chosen = _descending(narrowing, max(enough, least), width)
    return None


def _descending(narrowing: Narrowing, error: float, width: int) -> list[QuantConfig]:
    """Return the smallest point within an error, and for further workers points within less and less of it."""
    points = [narrowing.within(error * TUNING.narrow_error_step**step) for step in range(width)]
    return list(dict.fromkeys(point for point in points if point is not None))
