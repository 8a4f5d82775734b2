"""`bayesian`: a model of the score over the space, from scikit-optimize."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from quaver.ops import CALIBRATIONS, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace, closest
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.search import evaluate_batch
from quaver.trial import Trial

# The most sensitive ops are decided one by one, the others in groups of similar sensitivity. Judgement: an extra-trees
# model of a few dozen trials has no use for more dimensions.
SINGLES = 16
GROUPS = 16
# The trees of the model, and the points at which it is evaluated for a proposal. Judgement: more took longer and found
# nothing better.
TREES = 30
POINTS = 2000
# Attempts to find a configuration that was not tried before. Judgement.
ATTEMPTS = 20


@register_strategy
class Bayesian(Strategy):
    """Bayesian optimization over the precision of ops and how they are quantized.

    Each of the 16 most sensitive ops is a dimension of its own (int8 or fp32); the others share 16 dimensions in groups
    of neighbours in the ranking, so that 200 ops need no more than 33. The calibration method of all int8 ops, or
    another mode if they have it, is one more, and so is each repair, on all ops that offer it. It starts from fallbacks
    along the ranking (none, the first 1, 2, 4, ... ops), then proposes where an extra-trees model of the results
    expects the most. A trial's value is its loss until the criterion is met, then the share of fp32 ops, so that it
    continues towards more int8. It proposes one configuration per worker at a time, or `batch`, and learns less from
    each then. It never proposes a configuration twice and ends when it finds no new one; `max_trials` and `timeout` end
    it before.
    """

    name = "bayesian"

    def __init__(self, batch: int | None = None) -> None:
        self.batch = batch

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        from skopt import Optimizer
        from skopt.learning import ExtraTreesRegressor
        from skopt.space import Categorical

        groups = group_ops([name for name in probe.ranking() if space[name].tunable])
        variants = quantized_variants(space)
        shared = [Categorical(variants), *(Categorical([0, 1], transform="identity") for _ in space.repairs)]
        dimensions = [*shared, *(Categorical([0, 1], transform="identity") for _ in groups)]
        optimizer: Any = Optimizer(
            dimensions,
            ExtraTreesRegressor(n_estimators=TREES, min_samples_leaf=3, random_state=self.seed),
            n_initial_points=0,
            acq_func="EI",
            acq_optimizer="sampling",
            acq_optimizer_kwargs={"n_points": POINTS},
            random_state=self.seed,
        )
        rng = np.random.default_rng(self.seed)
        tried: set[QuantConfig] = set()
        start = [variants[0], *(0 for _ in space.repairs)]
        warm = [[*start, *([1] * length + [0] * (len(groups) - length))] for length in _lengths(len(groups))]
        batch = self.width if self.batch is None else self.batch
        while True:
            points = [warm.pop(0) for _ in range(min(batch, len(warm)))] or _ask(optimizer, batch)
            fresh = _fresh(points, groups, space, tried, rng)
            if not fresh:
                return
            trials = yield from evaluate_batch([config for _, config in fresh], batch)
            for (point, _), trial in zip(fresh, trials, strict=False):
                _tell(optimizer, point, value(trial, self.target_budget is not None))


def quantized_variants(space: TuningSpace) -> list[str]:
    """Return how all quantized ops may run, where they offer it: a calibration method, or another mode."""
    modes = dict.fromkeys(choice.mode for op in space.ops for choice in op.choices if choice.quantized)
    return [variant for mode in modes for variant in (CALIBRATIONS if mode == "static" else (mode,))]


def group_ops(ranking: Sequence[str]) -> list[list[str]]:
    """Return the first ops of the ranking one by one, the others in groups of neighbours."""
    single = [[name] for name in ranking[:SINGLES]]
    grouped = list(ranking[SINGLES:])
    count = min(GROUPS, len(grouped))
    return single + [list(part) for part in np.array_split(np.array(grouped, dtype=object), count)] if count else single


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


def _lengths(count: int) -> list[int]:
    lengths = [0]
    while max(2 * lengths[-1], 1) < count:
        lengths.append(max(2 * lengths[-1], 1))
    return lengths


def _config(point: Sequence[Any], groups: list[list[str]], space: TuningSpace) -> QuantConfig:
    method, *bits = point
    repairs = [spelled for spelled in space.repairs if bits.pop(0)]
    down = [name for bit, group in zip(bits, groups, strict=True) if bit for name in group]
    field = "calibration" if method in CALIBRATIONS else "mode"
    base = space.configure(lambda op: closest(op.choices, {field: method}))
    return space.repair(base, *repairs).fallback(*down)


def _fresh(
    points: list[Any], groups: list[list[str]], space: TuningSpace, tried: set[QuantConfig], rng: np.random.Generator
) -> list[tuple[Any, QuantConfig]]:
    """Return the points whose configurations are new. One that is not is changed in a few places until it is."""
    fresh = []
    for point in points:
        for _ in range(ATTEMPTS):
            config = _config(point, groups, space)
            if config not in tried and config.quantized_ops:
                tried.add(config)
                fresh.append((point, config))
                break
            if not groups:
                break
            point = list(point)
            for slot in rng.integers(1, len(point), size=max(1, len(point) // 8)):
                point[slot] = 1 - point[slot]
    return fresh


def _ask(optimizer: Any, count: int) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(optimizer.ask(n_points=count)) if count > 1 else [optimizer.ask()]


def _tell(optimizer: Any, point: Any, result: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer.tell(list(point), result)
