"""The proposals of a strategy, and their answers in the same order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from quaver.adapters import Adapter, Model
from quaver.engine.probe import OutOfTime
from quaver.engine.run.crashes import check_baseline, mark_released
from quaver.errors import BuildError, StrategyError
from quaver.history import RETRIES, History
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy
from quaver.trial import Trial, TrialState


class ProposalQueue:
    """A strategy at work: it proposes one configuration or a list, and the next when all have their trials.

    Attributes:
        over: True once the strategy has ended.
    """

    def __init__(self, strategy: Strategy, space: TuningSpace, probe: Probe) -> None:
        self._space, self._strategy = space, strategy
        self._proposals = strategy.propose(space, probe)
        if not hasattr(self._proposals, "send"):
            name = strategy.name or type(strategy).__name__
            raise StrategyError(f"{name}.propose must be a generator: `yield` each configuration")
        self.over = False
        self._answer: Any = None
        self._single = False
        self._proposed: list[QuantConfig] = []
        self._answers: dict[QuantConfig, Trial] = {}

    @property
    def continues(self) -> bool:
        """Return True if the strategy continues after a success, for now or until it ends."""
        return self._strategy.continues_after_success

    @property
    def waiting(self) -> list[QuantConfig]:
        """Return the proposed configurations that have no trial yet, each once."""
        return [config for config in dict.fromkeys(self._proposed) if config not in self._answers]

    def ask(self) -> list[QuantConfig]:
        """Send the trials to the strategy and return its next proposals; none if it is over."""
        assert not self.waiting, "the strategy waits for trials"
        if self._proposed:
            trials = [self._answers[config] for config in self._proposed]
            self._answer = trials[0] if self._single else trials
        self._proposed, self._answers = [], {}
        try:
            proposed = self._proposals.send(self._answer)
        except StopIteration:
            self.over = True
            return []
        except AttributeError as error:
            if "'send'" not in str(error):
                raise
            raise StrategyError(
                "a strategy's `yield from` needs a generator that takes the trials; to yield the items of a "
                "list, write `for config in configs: yield config`"
            ) from error
        self._single = isinstance(proposed, QuantConfig) or not isinstance(proposed, Sequence)
        self._answer = []  # the answer to an empty list
        self._proposed = [self._space.check(config) for config in ([proposed] if self._single else proposed)]
        return list(self._proposed)

    def answer(self, trial: Trial) -> None:
        """Record the trial of a proposed configuration, to be sent to the strategy."""
        self._answers[trial.config] = trial

    def close(self) -> None:
        """End the strategy."""
        self._proposals.close()


def first_proposal(strategy: Strategy, space: TuningSpace, probe: Probe) -> QuantConfig:
    """Return the first proposal of a strategy; the default configuration if there is no time to measure."""
    queue = ProposalQueue(strategy, space, probe)
    try:
        proposed = queue.ask()
    except OutOfTime:
        proposed = []
    finally:
        queue.close()
    return proposed[0] if proposed else space.default_config()


def record_unscored(
    config: QuantConfig,
    space: TuningSpace,
    adapter: Adapter,
    history: History,
    measured: Callable[[Trial, Model], Trial],
) -> Trial:
    """Build a configuration without scoring it, and record it after the float model, which is trial 0."""
    if history.baseline is None:
        check_baseline(history, space.float_config())
        history.append(_build_unscored(0, space.float_config(), adapter, history, None)[0])
    number = max((trial.number for trial in history.trials), default=0) + 1
    crashes = history.crashes(config)
    if crashes > RETRIES:
        raise BuildError(
            f"the process ended {crashes} times while the configuration that the strategy proposes was built (a crash, "
            "a kill, or no memory left), so it is not tried again: keep some ops in fp32 with op_name_dict or "
            "op_type_dict, or pass eval_func to let the strategy try others"
        )
    trial, model = _build_unscored(number, config, adapter, history, config)
    history.append(trial)
    try:
        return measured(trial, model)
    finally:
        model.close()


def _build_unscored(
    number: int, config: QuantConfig, adapter: Adapter, history: History, build_config: QuantConfig | None
) -> tuple[Trial, Model]:
    """Build a model. The trial is recorded as begun until it is appended."""
    begin = time.monotonic()
    history.begin_trial(number, config)
    try:
        model = adapter.build(build_config)
        digest, size = model.sha256, model.size
    except BaseException:
        mark_released(history, number)
        raise
    trial = Trial(
        number,
        config,
        TrialState.UNSCORED,
        model_hash=digest,
        model_size=size,
        build_seconds=time.monotonic() - begin,
    )
    return trial, model
