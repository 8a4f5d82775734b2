"""Weights of fewer bits, where size counts: as many as the criterion bears, the rest in eight.

Every op that can have one gets it at first. On the way back to eight bits those come first that do most harm for the
bytes they save; a few points of that line are looked at without labels, and the error at their outputs tells which to
try.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from quaver.ops import Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.alternatives import in_family
from quaver.strategies.steps.pareto_front import CAUTION, TINY
from quaver.strategies.steps.search import Search, evaluate_batch
from quaver.trial import Trial

# So many points of the line are looked at from either end, and so many are tried.
POINTS = 8
MOST = 4
# What disturbs the outputs by no more than so many times as eight bits do is as good.
AS_GOOD = 1.1
# Fewer bits that save less than this part of the file are worth no evaluation of their own.
WORTH = 0.1
# With several workers, points are tried beside each other that have this part of the error each of the one before.
APART = 0.5


def fewer_bits(op: Op, usual: OpConfig) -> OpConfig | None:
    """The choice of an op with fewer bits than the usual one; None if it has none."""
    if not usual.quantized:
        return None
    return next((choice for choice in op.quantized_choices if choice.precision.bits < usual.precision.bits), None)


def on_offer(space: TuningSpace) -> bool:
    """Whether an op has a choice of fewer bits than its default."""
    return any(fewer_bits(op, op.choices[0]) is not None for op in space.ops)


class Narrowing:
    """Between a configuration of eight bits and the same with the fewest: what lies there, found as it is asked for.

    Attributes:
        start: the one of eight bits that would be tried otherwise.
        smallest: all ops with the fewest bits, where that saves anything; `start` if nowhere.
    """

    def __init__(self, start: QuantConfig, space: TuningSpace, probe: Probe) -> None:
        self.start, self._space, self._probe = start, space, probe
        found = {name: choice for name, pick in start.items() if (choice := fewer_bits(space[name], pick)) is not None}
        eight = {name: _eight_bits(space[name], start[name], choice) for name, choice in found.items()}
        self._eight = start.replace(eight)
        whole = probe.size(self._eight)
        self._saved = {name: whole - probe.size(self._eight.replace({name: found[name]})) for name in found}
        self._chosen = {name: choice for name, choice in found.items() if self._saved[name] > 0}
        self.smallest = self._eight.replace(self._chosen) if self._chosen else start

    def pays(self, config: QuantConfig) -> bool:
        """Whether a configuration is much smaller than the one of eight bits."""
        return self._probe.size(config) <= (1 - WORTH) * self._probe.size(self.start)

    @functools.cached_property
    def order(self) -> list[str]:
        """The ops with fewer bits, in the order in which they go back to eight: most harm for the bytes saved first."""
        alone = self._space.float_config()
        sensitivity = dict(self._probe.sensitivity(alone.replace(self._chosen)))
        others = [name for name in self._chosen if name not in sensitivity]  # that may not run in fp32
        errors = self._probe.output_errors([alone.replace({name: self._chosen[name]}) for name in others])
        sensitivity |= dict(zip(others, errors, strict=True))
        return sorted(self._chosen, key=lambda name: -sensitivity[name] / self._saved[name])

    @functools.cached_property
    def points(self) -> Mapping[QuantConfig, float]:
        """The smallest, and those with more and more of `order` in eight bits, with the error at their outputs.

        Those alone that are much smaller than `start`.
        """
        count = len(self.order)
        steps = np.geomspace(1, count, POINTS).round().astype(int)
        back = [self.order[:length] for length in np.unique([*steps, *(count - steps)]).tolist()]
        made = [self.smallest.replace({name: self._eight[name] for name in names}) for names in back]
        found = [one for one in dict.fromkeys([self.smallest, *made]) if self.pays(one)]
        return dict(zip(found, self._probe.output_errors(found), strict=True))

    def within(self, error: float) -> QuantConfig | None:
        """The smallest of the points that disturbs the outputs by no more than that."""
        return next((point for point, found in self.points.items() if found <= error), None)

    def given_back(self, config: QuantConfig) -> list[str]:
        """The ops that a point has in eight bits, those that do least harm for their bytes first."""
        changed = [name for name in self._chosen if config[name] != self.smallest[name]]
        return sorted(changed, key=self.order.index, reverse=True) if changed else []

    @property
    def next_best(self) -> QuantConfig:
        """Where to go on if no point was successful, or none was worth a trial: what is as good as `start`, or that."""
        if self.smallest == self.start:
            return self.start
        error, least = self._probe.output_errors([self.start, self.smallest])
        if not self.pays(self.smallest):
            return self.smallest if least <= AS_GOOD * error else self.start
        return self.within(AS_GOOD * error) or self.start


def _eight_bits(op: Op, usual: OpConfig, choice: OpConfig) -> OpConfig:
    """What an op goes back to: in the mode that it has with fewer bits, for that does little harm."""
    return in_family(op, (usual.precision, choice.mode, ()), usual) or usual


def smallest_success(narrowing: Narrowing, allowed: float, width: int = 1) -> Search:
    """The smallest model that meets the criterion, as far as the error at the outputs tells it.

    After a trial that fails, the next one has as much less error as its loss is too large; or the least error that
    there is, once. None after a few trials, or if fewer bits save too little to be tried.
    """
    if not narrowing.pays(narrowing.smallest):
        return None
    chosen = [narrowing.smallest]
    if width > 1:
        chosen = _apart(narrowing, narrowing.points[narrowing.smallest], width)
    for _ in range(0, MOST, width):
        trials: list[Trial] = yield from evaluate_batch(chosen, width)
        met = next((trial for trial in trials if trial.met), None)
        last = trials[-1]
        if met is not None or last.loss is None:
            return met
        error, least = narrowing.points[last.config], min(narrowing.points.values())
        if error <= least:
            return None
        enough = CAUTION * error * min(allowed / max(last.loss, TINY), 1.0)
        chosen = _apart(narrowing, max(enough, least), width)
    return None


def _apart(narrowing: Narrowing, error: float, width: int) -> list[QuantConfig]:
    """The smallest within an error, and for other workers within less and less of it."""
    found = [narrowing.within(error * APART**step) for step in range(width)]
    return list(dict.fromkeys(point for point in found if point is not None))
