"""`BayesianOptimization` of Neural Compressor, on scikit-optimize: for strategies that drive it themselves."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

# Points at which the model is evaluated for a proposal, and random points before it is fitted. Judgement.
POINTS, RANDOM_POINTS = 2000, 3
TREES = 30


class TargetSpace:
    """The points so far, and what each scored."""

    def __init__(self, pbounds: Mapping[Hashable, tuple[float, float]]) -> None:
        self.keys = list(pbounds)
        self.bounds = np.array([pbounds[key] for key in self.keys], dtype=float).reshape(-1, 2)
        self.points: dict[tuple[float, ...], float] = {}

    def register(self, params: Mapping[Hashable, float], target: float | None) -> None:
        """Add a point and its score; a failed one counts like the worst.

        Raises:
            KeyError: if the point is known, or lacks a parameter.
        """
        point = tuple(float(params[key]) for key in self.keys)
        if point in self.points:
            raise KeyError(f"the point {point} is known already")
        self.points[point] = min(self.points.values(), default=0.0) if target is None else float(target)


class BayesianOptimization:
    """Propose parameters within bounds, to maximize a target that is registered in `_space`."""

    def __init__(self, pbounds: Mapping[Hashable, tuple[float, float]], random_seed: int | None = 9527) -> None:
        self._space = TargetSpace(pbounds)
        self._seed = 9527 if random_seed is None else random_seed
        self._rng = np.random.default_rng(self._seed)

    def gen_next_params(self) -> dict[Hashable, float]:
        """Return the parameters with the largest expected improvement."""
        space = self._space
        low, high = space.bounds.T
        drawn = low + self._rng.random((POINTS, len(space.keys))) * (high - low)
        if len(space.points) >= RANDOM_POINTS:
            drawn = drawn[[int(np.argmax(self._expected_improvement(drawn)))]]
        return dict(zip(space.keys, map(float, drawn[0]), strict=True))

    def _expected_improvement(self, points: Any) -> Any:
        from skopt.acquisition import gaussian_ei
        from skopt.learning import ExtraTreesRegressor

        model = ExtraTreesRegressor(n_estimators=TREES, random_state=self._seed)
        known, targets = np.array(list(self._space.points)), -np.array(list(self._space.points.values()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(known, targets)
            return gaussian_ei(points, model, y_opt=targets.min())
