"""Drive a strategy without history, budget or clock, to see what it proposes."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from quaver.criterion import Criterion
from quaver.engine.run.proposals import ProposalQueue
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import Int8Ops
from quaver.errors import StrategyError
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy, make_strategy, prepared
from quaver.trial import Trial, TrialState

# Proposals in a row without a new configuration after which a strategy counts as endless (judgement).
MAX_REPEATS = 1000
# Size of the float model in bytes; only ratios matter.
FLOAT_SIZE = 1_000_000


class Drivable(Protocol):
    """A model that `drive` accepts, such as `SimulatedModel`."""

    @property
    def baseline(self) -> float:
        """Return the score of the fp32 model."""

    @property
    def space(self) -> TuningSpace:
        """Return the tuning space."""

    @property
    def probe(self) -> Probe:
        """Return the probe that the strategy asks."""

    def score(self, config: QuantConfig) -> float:
        """Return the score that eval_func would return; an exception makes a failed trial."""


def drive(
    strategy: str | type[Strategy] | Strategy,
    model: Drivable,
    criterion: Criterion | None = None,
    max_trials: int = 1000,
    stop_at_first: bool = True,
    *,
    earlier: Iterable[Trial] = (),
    seed: int = 0,
    objective: str = "latency",
    width: int = 1,
) -> list[Trial]:
    """Run a strategy on a model and return its trials, each configuration once, in order.

    Args:
        strategy: a name, a class or an instance.
        model: usually a `SimulatedModel`.
        criterion: the accuracy criterion; a relative loss of 1 % by default.
        max_trials: largest number of trials.
        stop_at_first: end at the first trial that meets the criterion, as `timeout=0` does.
        earlier: trials of an earlier run, which are replayed instead of scored; they count like new ones.
        seed: seed of the strategy.
        objective: objective that the strategy sees.
        width: number of parallel trials that the strategy sees. `drive` itself runs them one by one.

    Raises:
        StrategyError: a proposal lies outside the space, or the strategy continues without new proposals.
    """
    criterion = criterion or Criterion()
    driven = prepared(
        make_strategy(strategy),
        seed=seed,
        objective=objective,
        allowed=criterion.allowed,
        width=width,
        target_budget=criterion.target_budget,
    )
    judge = Judge(criterion, Int8Ops())
    judge.begin(Trial(0, model.space.float_config(), TrialState.COMPLETE, model.baseline, model_size=FLOAT_SIZE))
    replayed = {trial.config: trial for trial in earlier}
    answers: dict[QuantConfig, Trial] = {}
    queue = ProposalQueue(driven, model.space, model.probe)
    repeats = 0
    try:
        while True:
            before = len(answers)
            for config in queue.waiting:
                if config not in answers:
                    trial = replayed.get(config) or _score(len(answers) + 1, config, model, criterion)
                    answers[config] = judge.verdict(trial)
                queue.answer(answers[config])
                if len(answers) >= max_trials or (stop_at_first and judge.suffices(answers[config])):
                    return list(answers.values())
            repeats = 0 if len(answers) > before else repeats + 1
            if repeats >= MAX_REPEATS:
                raise StrategyError(
                    f"the strategy proposed nothing new {MAX_REPEATS} times in a row, so it would never end"
                )
            queue.ask()
            if queue.over:
                return list(answers.values())
    finally:
        queue.close()


def _score(number: int, config: QuantConfig, model: Drivable, criterion: Criterion) -> Trial:
    try:
        trial = Trial(number, config, TrialState.COMPLETE, model.score(config))
        if criterion.target_budget is None:
            return trial
        size, latency = round(FLOAT_SIZE * model.probe.size(config)), model.probe.speed(config)
        return replace(trial, model_size=size, measured={"latency": latency})
    except Exception:
        return Trial(number, config, TrialState.FAILED, error=traceback.format_exc())
