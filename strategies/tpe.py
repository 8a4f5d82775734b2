"""`tpe`: tree-structured Parzen estimators, from Optuna."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from quaver.errors import MissingPackageError
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.encoding import EncodedSpace, value
from quaver.strategies.steps.search import evaluate_batch

# Told for a suggestion that repeats an earlier configuration; no trial is worse.
WORST = 3.0
# Suggestions in a row without a new configuration after which the strategy ends. Judgement.
MAX_REPEATS = 50


@register_strategy
class Tpe(Strategy):
    """Optuna's sampler over the space of `bayesian`: how many ops fall back, exceptions, calibration and repairs.

    Its first `random_points` trials are random, the others drawn near the better ones. It proposes one configuration
    per worker at a time, or `batch`, never one twice, and ends when the sampler finds no new one; `max_trials` and
    `timeout` end it before. It needs the extra `[optuna]`.
    """

    name = "tpe"

    def __init__(self, batch: int | None = None, random_points: int = 10) -> None:
        self.batch, self.random_points = batch, random_points

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        optuna = _import_optuna()
        encoded = EncodedSpace(space, probe.ranking())
        distributions = _distributions(optuna, encoded)
        batch = self.width if self.batch is None else self.batch
        with _quiet(optuna):
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=self.random_points, seed=self.seed, constant_liar=batch > 1
            )
            study = optuna.create_study(sampler=sampler)
        tried: set[QuantConfig] = set()
        while True:
            fresh = _fresh(study, distributions, encoded, tried, batch)
            if not fresh:
                return
            trials = yield from evaluate_batch([config for _, config in fresh], batch)
            for (suggestion, _), trial in zip(fresh, trials, strict=False):
                study.tell(suggestion, value(trial, self.target_budget is not None))


def _fresh(
    study: Any, distributions: dict[str, Any], encoded: EncodedSpace, tried: set[QuantConfig], count: int
) -> list[tuple[Any, QuantConfig]]:
    """Return suggestions whose configurations are new. Others get the worst value, so that the sampler moves on."""
    fresh: list[tuple[Any, QuantConfig]] = []
    repeats = 0
    while len(fresh) < count and repeats < MAX_REPEATS:
        suggestion = study.ask(distributions)
        config = encoded.config(encoded.from_unit(np.array([suggestion.params[name] for name in distributions])))
        if config in tried or not config.quantized_ops:
            study.tell(suggestion, WORST)
            repeats += 1
            continue
        tried.add(config)
        fresh.append((suggestion, config))
    return fresh


def _distributions(optuna: Any, encoded: EncodedSpace) -> dict[str, Any]:
    """Return the dimensions of a point, in the order of its columns."""
    unit = optuna.distributions.FloatDistribution(0.0, 1.0)
    names = [*(f"repair {name}" for name in encoded.repairs), "share"]
    names += [f"exception {number}" for number in range(len(encoded.groups))]
    variants = optuna.distributions.CategoricalDistribution(tuple(range(len(encoded.variants))))
    return {"variant": variants, **dict.fromkeys(names, unit)}


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingPackageError(
            "the strategy tpe needs optuna, which is not installed: pip install 'quaver[optuna]', or use 'bayesian'"
        ) from error
    return optuna


@contextlib.contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Leave out Optuna's message that a study was created."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
