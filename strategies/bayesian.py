"""`bayesian`: a model of the score over the space, from scikit-optimize."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.encoding import EncodedSpace, Points, value
from quaver.strategies.steps.search import evaluate_batch

# The trees of the model, and the points at which it is evaluated for a proposal: half of them random, half changes of
# the best points so far. Judgement: more took longer and found nothing better.
TREES, POINTS, BEST = 30, 2000, 5
# Attempts to find a configuration that was not tried before. Judgement.
ATTEMPTS = 20


@register_strategy
class Bayesian(Strategy):
    """Bayesian optimization over the precision of ops and how they are quantized.

    A point says how many ops from the front of the sensitivity ranking run in fp32, which of the 16 most sensitive ops
    are exceptions, the calibration method or mode of all quantized ops, and each repair. It starts along the ranking
    (none, the first 1, 2, 4, ... ops), then proposes the point with the largest expected improvement by an extra-trees
    model of the results. A trial's value is its loss until the criterion is met, then the share of fp32 ops, so
    that it continues towards more int8. It proposes one configuration per worker at a time, or `batch`, and learns less
    from each then. It never proposes a configuration twice and ends when it finds no new one; `max_trials` and
    `timeout` end it before.

    With `warm_start=False` it starts from `random_points` random points instead, as scikit-optimize does by itself.
    """

    name = "bayesian"

    def __init__(self, batch: int | None = None, warm_start: bool = True, random_points: int = 6) -> None:
        self.batch, self.warm_start, self.random_points = batch, warm_start, random_points

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        encoded, rng = EncodedSpace(space, probe.ranking()), np.random.default_rng(self.seed)
        start = encoded.along_ranking() if self.warm_start else encoded.draw(self.random_points, rng)
        batch = self.width if self.batch is None else self.batch
        waiting, points, values = list(start), np.empty((0, encoded.dimensions)), np.empty(0)
        tried: set[QuantConfig] = set()
        while True:
            if waiting:
                proposed, waiting = waiting[:batch], waiting[batch:]
            else:
                proposed = list(self._promising(encoded, points, values, rng))
            fresh = _fresh(proposed, encoded, tried, rng, batch)
            if not fresh:
                return
            trials = yield from evaluate_batch([config for _, config in fresh], batch)
            new = [value(trial, self.target_budget is not None) for trial in trials]
            points = np.vstack([points, *(point[None] for point, _ in fresh[: len(new)])])
            values = np.append(values, new)

    def _promising(self, encoded: EncodedSpace, points: Points, values: Points, rng: np.random.Generator) -> Points:
        """Return candidates, the one with the largest expected improvement first."""
        from skopt.acquisition import gaussian_ei
        from skopt.learning import ExtraTreesRegressor

        model: Any = ExtraTreesRegressor(n_estimators=TREES, min_samples_leaf=1, random_state=self.seed)
        best = points[np.argsort(values, kind="stable")[:BEST]]
        near = encoded.change(best[rng.integers(len(best), size=POINTS // 2)], rng)
        candidates = np.vstack([encoded.draw(POINTS // 2, rng), near])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(encoded.features(points), values)
            gains = gaussian_ei(encoded.features(candidates), model, y_opt=values.min())
        ranked: Points = candidates[np.argsort(-gains, kind="stable")]
        return ranked


def _fresh(
    points: list[Any], encoded: EncodedSpace, tried: set[QuantConfig], rng: np.random.Generator, count: int
) -> list[tuple[Any, QuantConfig]]:
    """Return the first points whose configurations are new; if none is, changes of the first one."""
    fresh: list[tuple[Any, QuantConfig]] = []
    extra = [point for at in range(ATTEMPTS) for point in encoded.change(np.array(points[:1]), rng)]
    for point in [*points[: ATTEMPTS * count], *extra]:
        config = encoded.config(point)
        if len(fresh) < count and config not in tried and config.quantized_ops:
            tried.add(config)
            fresh.append((point, config))
    return fresh
