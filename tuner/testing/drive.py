"""A loop without history, budget or clock: just enough to see what a strategy does."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from quaver.criterion import Criterion
from quaver.engine.run.proposals import ProposalQueue
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import Objective
from quaver.errors import StrategyError
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy, make_strategy, prepared
from quaver.trial import Trial, TrialState

# A strategy that has proposed nothing new for so long will not do so any more.
REPEATS = 1000
# What the file of a float model takes, in bytes.
SIZE = 1_000_000


class Drivable(Protocol):
    """What `drive` needs of a model; `SimulatedModel` is one."""

    @property
    def baseline(self) -> float:
        """The score of the fp32 model."""

    @property
    def space(self) -> TuningSpace:
        """What may be chosen."""

    @property
    def probe(self) -> Probe:
        """What a strategy may ask."""

    def score(self, config: QuantConfig) -> float:
        """What eval_func would return; an exception is a failed trial."""


def drive(
    strategy: str | type[Strategy] | Strategy,
    model: Drivable,
    criterion: Criterion | None = None,
    max_trials: int = 1000,
    stop_at_first: bool = True,
    *,
    known: Iterable[Trial] = (),
    seed: int = 0,
    objective: str = "latency",
    width: int = 1,
) -> list[Trial]:
    """Run a strategy on a model and return its trials, each configuration once, in order.

    Args:
        strategy: a name, a class or an instance.
        model: usually a `SimulatedModel`.
        criterion: what counts as met; a loss of one per cent if not given.
        max_trials: how many to evaluate at most.
        stop_at_first: end at the first trial that meets the criterion, or that loses nothing within a budget, as
            `timeout=0` does.
        known: trials of an earlier run, to be answered from instead of being scored; they count like new ones.
        seed: the strategy's.
        objective: the strategy's.
        width: how many trials the strategy may take to be evaluated side by side. Here they are not.

    Raises:
        StrategyError: a proposal lies outside the space, or the strategy proposes nothing new any more but goes on.
    """
    criterion = criterion or Criterion()
    made = prepared(
        make_strategy(strategy),
        seed=seed,
        objective=objective,
        allowed=criterion.allowed,
        width=width,
        target_budget=criterion.target_budget,
    )
    judge = Judge(criterion, Objective())
    judge.begin(Trial(0, model.space.float_config(), TrialState.COMPLETE, model.baseline, model_size=SIZE))
    earlier = {trial.config: trial for trial in known}
    answers: dict[QuantConfig, Trial] = {}
    dialogue = ProposalQueue(made, model.space, model.probe)
    repeats = 0
    try:
        while True:
            before = len(answers)
            for config in dialogue.waiting:
                if config not in answers:
                    trial = earlier.get(config) or _tried(len(answers) + 1, config, model, criterion)
                    answers[config] = judge.verdict(trial)
                dialogue.answer(answers[config])
                if len(answers) >= max_trials or (stop_at_first and judge.suffices(answers[config])):
                    return list(answers.values())
            repeats = 0 if len(answers) > before else repeats + 1
            if repeats >= REPEATS:
                raise StrategyError(f"nothing new was proposed {REPEATS} times in a row; it would never end")
            dialogue.ask()
            if dialogue.over:
                return list(answers.values())
    finally:
        dialogue.close()


def _tried(number: int, config: QuantConfig, model: Drivable, criterion: Criterion) -> Trial:
    try:
        trial = Trial(number, config, TrialState.COMPLETE, model.score(config))
        if criterion.target_budget is None:
            return trial
        size, latency = round(SIZE * model.probe.size(config)), model.probe.speed(config)
        return replace(trial, model_size=size, measured={"latency": latency})
    except Exception:
        return Trial(number, config, TrialState.FAILED, error=traceback.format_exc())
