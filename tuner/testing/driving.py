"""A loop without history, budget or clock: just enough to see what a strategy does."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from quaver.criterion import Criterion
from quaver.errors import StrategyError
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy, make_strategy, prepared
from quaver.trial import Trial, TrialState

# A strategy that has proposed nothing new for so long will not do so any more.
REPEATS = 1000


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
) -> list[Trial]:
    """Run a strategy on a model and return its trials, each configuration once, in order.

    Args:
        strategy: a name, a class or an instance.
        model: usually a `SimulatedModel`.
        criterion: what counts as met; a loss of one per cent if not given.
        max_trials: how many to evaluate at most.
        stop_at_first: end at the first trial that meets the criterion, as `timeout=0` does.
        known: trials of an earlier run, to be answered from instead of being scored; they count like new ones.
        seed: the strategy's.
        objective: the strategy's.

    Raises:
        StrategyError: a proposal lies outside the space, or the strategy proposes nothing new any more but goes on.
    """
    made = prepared(make_strategy(strategy), seed=seed, objective=objective)
    judge = _Judge(model, criterion or Criterion(), {trial.config: trial for trial in known})
    proposals = made.propose(model.space, model.probe)
    answer: Any = None
    repeats = 0
    try:
        while True:
            try:
                asked = proposals.send(answer)
            except StopIteration:
                return judge.trials
            single = isinstance(asked, QuantConfig) or not isinstance(asked, Sequence)
            batch = [model.space.check(config) for config in ([asked] if single else asked)]
            before = len(judge.trials)
            answers = []
            for config in batch:
                answers.append(judge.answer(config))
                if len(judge.trials) >= max_trials or (stop_at_first and answers[-1].met):
                    return judge.trials
            repeats = 0 if len(judge.trials) > before else repeats + 1
            if repeats >= REPEATS:
                raise StrategyError(f"nothing new was proposed {REPEATS} times in a row; it would never end")
            answer = answers[0] if single else answers
    finally:
        proposals.close()


class _Judge:
    """Scores configurations, each once."""

    def __init__(self, model: Drivable, criterion: Criterion, known: dict[QuantConfig, Trial]) -> None:
        self._model, self._criterion, self._known = model, criterion, known
        self._answers: dict[QuantConfig, Trial] = {}

    @property
    def trials(self) -> list[Trial]:
        """All so far, in the order in which they were asked for."""
        return list(self._answers.values())

    def answer(self, config: QuantConfig) -> Trial:
        """The trial of a configuration, from memory if there is one."""
        if config not in self._answers:
            self._answers[config] = self._known.get(config) or self._try(len(self._answers) + 1, config)
        return self._answers[config]

    def _try(self, number: int, config: QuantConfig) -> Trial:
        try:
            score = self._model.score(config)
        except Exception:
            return Trial(number, config, TrialState.FAILED, error=traceback.format_exc())
        loss = self._criterion.loss(self._model.baseline, score)
        met = self._criterion.met(self._model.baseline, score)
        return Trial(number, config, TrialState.COMPLETE, score, loss, met)
