"""The one loop: ask the strategy, build, score, remember, tell the strategy. It never knows which strategy runs."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from quaver.adapters import Adapter, Model
from quaver.budget import Budget, StopReason
from quaver.criterion import Criterion
from quaver.engine.evaluation import score, watched
from quaver.engine.events import BaselineScored, Observer, TrialFinished, TrialSlow, TrialStarted
from quaver.engine.objective import Objective, pick_best
from quaver.errors import EvaluationError, StrategyError
from quaver.history import History
from quaver.ops import FLOAT, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy
from quaver.trial import Trial, TrialState

log = logging.getLogger(__name__)

# So many failed trials in a row mean that eval_func or the model is broken, not the configuration.
FAILURES_IN_A_ROW = 3
# A strategy that has proposed nothing new for so long will not do so any more.
REPEATS = 1000


class _Stop(Exception):
    """Leave the loop for a reason."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason


@dataclass
class Loop:
    """A run in progress. `run` returns why it ended; all that was learnt is in the history."""

    adapter: Adapter
    space: TuningSpace
    eval_func: Callable[[Any], Any]
    criterion: Criterion
    budget: Budget
    objective: Objective
    history: History
    observer: Observer
    _start: float = field(default_factory=time.monotonic, init=False)
    _resumed: int = field(default=0, init=False)
    _outside: frozenset[int] = field(default=frozenset(), init=False)
    _fp32: Model | None = field(default=None, init=False)
    _proposed: set[QuantConfig] = field(default_factory=set, init=False)
    _repeats: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._resumed = len(self.history.trials)
        # Trials of an earlier run that the rules of this one forbid are remembered, but cannot win.
        self._outside = frozenset(trial.number for trial in self.history.trials if not self.space.allows(trial.config))

    def baseline(self) -> Trial:
        """Score the fp32 model, or remember its score. Any trouble here is the user's to mend at once."""
        known = self.history.baseline
        if known is not None and known.score is not None:
            return known
        config = QuantConfig((op.name, FLOAT) for op in self.space.ops)
        begin = time.monotonic()
        model = self.adapter.build(None)
        built = time.monotonic()
        self.observer(TrialStarted(0, None))
        try:
            value = score(self.eval_func, model)
        except EvaluationError as error:
            raise EvaluationError(f"on the fp32 model {error}") from None
        except Exception as error:
            raise EvaluationError(f"eval_func failed on the fp32 model: {type(error).__name__}: {error}") from error
        trial = Trial(
            0,
            config,
            TrialState.COMPLETE,
            value,
            0.0,
            True,
            time.monotonic() - built,
            built - begin,
            model.sha256,
            model.size,
        )
        self.criterion.check_baseline(value)
        self.history.append(trial)
        model.close()
        return trial

    def run(self, strategy: Strategy, probe: Probe) -> StopReason:
        """Drive a strategy to its end."""
        base = self.baseline()
        self.observer(BaselineScored(base))
        proposals = strategy.propose(self.space, probe)
        if not hasattr(proposals, "send"):
            raise StrategyError(f"{type(strategy).__name__}.propose must be a generator: `yield` each configuration")
        answer: Any = None
        try:
            self._check_budget()
            while True:
                try:
                    asked = proposals.send(answer)
                except AttributeError as error:
                    if "'send'" not in str(error):
                        raise
                    raise StrategyError(
                        "a strategy's `yield from` needs a generator that takes the trials; to yield the items of a "
                        "list, write `for config in configs: yield config`"
                    ) from error
                except StopIteration:
                    # A strategy may itself be done when it hears of a success.
                    self._check_budget()
                    return StopReason.EXHAUSTED
                batch = [asked] if isinstance(asked, QuantConfig) or not isinstance(asked, Sequence) else list(asked)
                trials = [self._answer(config) for config in [self.space.check(config) for config in batch]]
                if not batch:
                    self._repeated()
                answer = trials[0] if isinstance(asked, QuantConfig) else trials
        except _Stop as stop:
            return stop.reason
        except KeyboardInterrupt:
            log.warning("interrupted; the best trial so far is kept")
            return StopReason.INTERRUPTED
        finally:
            proposals.close()
            self._fp32 = None

    def judge(self, trial: Trial) -> Trial:
        """A trial's loss and verdict by the criterion of this run, which may differ from an earlier one's."""
        base = self.history.baseline
        if trial.score is None or base is None or base.score is None:
            return trial
        return replace(
            trial, loss=self.criterion.loss(base.score, trial.score), met=self.criterion.met(base.score, trial.score)
        )

    def trials(self) -> list[Trial]:
        """All trials so far."""
        return [self.judge(trial) for trial in self.history.trials]

    def best(self) -> Trial | None:
        """The best trial so far."""
        return pick_best([trial for trial in self.trials() if trial.number not in self._outside], self.objective)

    def _answer(self, config: QuantConfig) -> Trial:
        known = self.history.find(config)
        if known is None:
            self._check_budget()
            trial = self._try(config)
            self._repeats = 0
        else:
            trial = self.judge(known)
            if config in self._proposed:
                self._repeated()
            else:
                self._repeats = 0
        self._proposed.add(config)
        return trial

    def _repeated(self) -> None:
        self._repeats += 1
        if self._repeats >= REPEATS:
            log.warning("the strategy has proposed nothing new %d times in a row; it would never end", REPEATS)
            raise _Stop(StopReason.EXHAUSTED)

    def _check_budget(self) -> None:
        trials = self.trials()
        earlier = sum(trial.seconds + trial.build_seconds for trial in trials[: self._resumed])
        reason = self.budget.spent(
            evaluated=len(trials),
            seconds=earlier + time.monotonic() - self._start,
            met=any(trial.met and trial.number not in self._outside for trial in trials),
        )
        if reason is not None:
            raise _Stop(reason)
        latest = trials[self._resumed :][-FAILURES_IN_A_ROW:]
        if len(latest) == FAILURES_IN_A_ROW and all(trial.failed for trial in latest):
            raise _Stop(StopReason.FAILURES)

    def _try(self, config: QuantConfig) -> Trial:
        base = self.history.baseline
        assert base is not None
        number = self.history.next_number
        self.observer(TrialStarted(number, self.best()))
        begin = built = done = time.monotonic()
        model: Model | None = None
        try:
            model = self.adapter.build(config)
            built = time.monotonic()
            with watched(base.seconds, lambda seconds: self.observer(TrialSlow(number, seconds, base.seconds))):
                value = score(self.eval_func, model)
            done = time.monotonic()
            digest = model.sha256
            trial = self.judge(
                Trial(number, config, TrialState.COMPLETE, value, model_hash=digest, model_size=model.size)
            )
            trial = replace(trial, seconds=done - built, build_seconds=built - begin + time.monotonic() - done)
            if trial.met:
                trial = replace(trial, measured=self._measure(model))
        except Exception:
            done = time.monotonic()
            trial = Trial(
                number,
                config,
                TrialState.FAILED,
                seconds=done - built,
                build_seconds=built - begin,
                error=traceback.format_exc(),
            )
        finally:
            if model is not None:
                model.close()
        self.history.append(trial)
        self.observer(TrialFinished(trial, self.best()))
        return trial

    def _measure(self, model: Model) -> dict[str, float]:
        feed = self.adapter.kept[0] if self.adapter.kept else None
        try:
            return self.objective.measure(model, self._baseline_model, feed)
        except Exception:  # the score was dearly bought; what is missing is only the figure to compare by
            log.exception("the objective could not be measured")
            return {}

    def _baseline_model(self) -> Model:
        if self._fp32 is None:
            self._fp32 = self.adapter.rebuild(None)
        return self._fp32
