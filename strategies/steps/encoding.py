"""A tuning space as a few numbers, which a model of the scores can learn from a few dozen trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quaver.ops import CALIBRATIONS, QuantConfig
from quaver.space import TuningSpace, closest
from quaver.trial import Trial

# The most sensitive ops can be exceptions one by one, the others in groups of similar sensitivity. Judgement: a model
# of a few dozen trials has no use for more dimensions.
SINGLES = 16
GROUPS = 16
# Prior probability of an exception, and of a repair. Judgement: a random point differs from the ranking in one or two.
EXCEPTION_PRIOR, REPAIR_PRIOR = 0.1, 0.2
# Standard deviation of a change of the share, and expected number of other changes (judgement).
SHARE_STEP, CHANGES = 0.15, 1.5

Points = NDArray[np.float64]
"""One point in each row."""


class EncodedSpace:
    """Points of a few dimensions and the configurations that they stand for.

    A point has the number of a variant (a calibration method or mode of all quantized ops), a bit for each repair, a
    share, and a bit for each group of ops. The share says how many ops from the front of the ranking run in fp32, on a
    logarithmic scale: 0 stands for none, 1 for all. A bit turns the decision for a group around.
    """

    def __init__(self, space: TuningSpace, ranking: Sequence[str]) -> None:
        self._space = space
        self.ranking = [name for name in ranking if space[name].tunable]
        self.variants = quantized_variants(space)
        self.repairs = space.repairs
        self.groups = group_ops(self.ranking)
        self._group_of = np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups]).astype(np.intp)
        self._share = 1 + len(self.repairs)

    @property
    def dimensions(self) -> int:
        """Return the number of columns of points."""
        return self._share + 1 + len(self.groups)

    def along_ranking(self) -> Points:
        """Return points in which the first 0, 1, 2, 4, ... ops of the ranking run in fp32."""
        lengths = [0]
        while max(2 * lengths[-1], 1) < len(self.ranking):
            lengths.append(max(2 * lengths[-1], 1))
        points = np.zeros((len(lengths), self.dimensions))
        points[:, self._share] = np.log(np.array(lengths) + 1) / np.log(len(self.ranking) + 1) if self.ranking else 0.0
        return points

    def from_unit(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the point of numbers from 0 to 1, of which the highest set a bit; the variant stays a number."""
        point: NDArray[np.float64] = np.array(values, np.float64)
        point[1 : self._share] = values[1 : self._share] >= 1 - REPAIR_PRIOR
        point[self._share + 1 :] = values[self._share + 1 :] >= 1 - EXCEPTION_PRIOR
        return point

    def draw(self, count: int, rng: np.random.Generator) -> Points:
        """Return random points."""
        points = np.zeros((count, self.dimensions))
        points[:, 0] = rng.integers(len(self.variants), size=count)
        points[:, 1 : self._share] = rng.random((count, len(self.repairs))) < REPAIR_PRIOR
        points[:, self._share] = rng.random(count)
        points[:, self._share + 1 :] = rng.random((count, len(self.groups))) < EXCEPTION_PRIOR
        return points

    def change(self, points: Points, rng: np.random.Generator) -> Points:
        """Return the points with a few random changes each."""
        changed, drawn = points.copy(), self.draw(len(points), rng)
        chosen = rng.random(points.shape) < CHANGES / self.dimensions
        changed[chosen] = (1 - points)[chosen]
        changed[:, 0] = np.where(chosen[:, 0], drawn[:, 0], points[:, 0])
        moved = points[:, self._share] + rng.normal(0, SHARE_STEP, len(points)) * (rng.random(len(points)) < 0.5)
        changed[:, self._share] = np.clip(moved, 0, 1)
        return changed

    def lengths(self, points: Points) -> NDArray[np.intp]:
        """Return how many ops from the front of the ranking run in fp32, without the exceptions."""
        whole: NDArray[np.intp] = np.rint((len(self.ranking) + 1.0) ** points[:, self._share] - 1).astype(np.intp)
        return whole

    def features(self, points: Points) -> Points:
        """Return what a model learns from: the point, and what it means for each of the first ops."""
        variants = np.eye(len(self.variants))[points[:, 0].astype(np.intp)]
        starts = np.searchsorted(self._group_of, np.arange(len(self.groups)))
        falls = (starts < self.lengths(points)[:, None]) ^ (points[:, self._share + 1 :] > 0)
        return np.hstack([variants, points[:, 1 : self._share + 1], falls])

    def config(self, point: NDArray[np.float64]) -> QuantConfig:
        """Return the configuration that a point stands for."""
        variant = self.variants[int(point[0])]
        field = "calibration" if variant in CALIBRATIONS else "mode"
        base = self._space.configure(lambda op: closest(op.choices, {field: variant}))
        repairs = [name for name, bit in zip(self.repairs, point[1 : self._share], strict=True) if bit]
        length = int(self.lengths(point[None])[0])
        falls = (np.arange(len(self.ranking)) < length) ^ (point[self._share + 1 :] > 0)[self._group_of]
        down = [name for name, fall in zip(self.ranking, falls, strict=True) if fall]
        return self._space.repair(base, *repairs).fallback(*down)


def group_ops(ranking: Sequence[str]) -> list[list[str]]:
    """Return the first ops of the ranking one by one, the others in groups of neighbours."""
    single = [[name] for name in ranking[:SINGLES]]
    grouped = list(ranking[SINGLES:])
    count = min(GROUPS, len(grouped))
    return single + [list(part) for part in np.array_split(np.array(grouped, dtype=object), count)] if count else single


def quantized_variants(space: TuningSpace) -> list[str]:
    """Return how all quantized ops may run, where they offer it: a calibration method, or another mode."""
    modes = dict.fromkeys(choice.mode for op in space.ops for choice in op.choices if choice.quantized)
    return [variant for mode in modes for variant in (CALIBRATIONS if mode == "static" else (mode,))]


def value(trial: Trial, budget: bool = False) -> float:
    """Return the value to minimize: 1 + the loss until the criterion is met, then the share of fp32 ops.

    With a target budget the other way round: 1 + the share of fp32 ops until it is kept, then the loss.
    """
    share = len(trial.config.fp32_ops) / max(len(trial.config), 1)
    if budget:
        return 3.0 if trial.loss is None else min(max(trial.loss, -1.0), 1.0) if trial.met else 1.0 + share
    if trial.met:
        return share
    return 3.0 if trial.loss is None else 1.0 + min(max(trial.loss, 0.0), 1.0)
