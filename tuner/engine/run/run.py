"""A run by ask and tell: which configuration to score next, what was learnt from it, and when it is over.

It never knows which strategy runs, nor who calls eval_func: the loop of `fit`, or one of the user's own.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable

from quaver.adapters import Adapter, Model
from quaver.budget import Budget, StopReason
from quaver.criterion import Criterion
from quaver.engine.events import BaselineScored, SamplesOrdered, TrialFinished, TrialStarted
from quaver.engine.executors.base import Outcome
from quaver.engine.observers import Observer
from quaver.engine.probe import OutOfTime
from quaver.engine.run.crashes import check_baseline, exceeded_crash_limit, mark_released
from quaver.engine.run.finish import note_unquantizable
from quaver.engine.run.pending_trial import PendingTrial
from quaver.engine.run.proposals import ProposalQueue, first_proposal, record_unscored
from quaver.engine.run.scheduling import EVERY, Clock, Order
from quaver.engine.scoring.confirmation import confirmations, is_required
from quaver.engine.scoring.early_stop import EarlyStopReference, rules_out
from quaver.engine.scoring.evaluate import as_score
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import Objective
from quaver.engine.timing.objective_measurer import ObjectiveMeasurer
from quaver.errors import SettingsError, StrategyError
from quaver.history import History
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.statistics import ordered
from quaver.strategies import Strategy
from quaver.trial import Trial

log = logging.getLogger(__name__)

# So many failed trials in a row mean that eval_func or the model is broken, not the configuration.
FAILURES_IN_A_ROW = 3
# What may be spent of the timeout without a trial.
BEFORE_THE_FIRST = 0.5
# What is kept of the timeout, at most, to measure the best trials again.
FOR_FINALISTS = 0.05
# A strategy that has proposed nothing new for so long will not do so any more.
REPEATS = 1000
# The chance at most that a trial is stopped which all samples would accept, unless the user says another.
DELTA = 0.05
# Scores of the fp32 model that would come as they do in random order with a smaller chance are called ordered.
SUSPECT = 1e-3


class Run:
    """A strategy on a model, until criterion and budget or the strategy itself end it.

    Attributes:
        judge: all trials so far, judged.
        reason: why it is over; None while it goes on.
        isolated: whether trials are evaluated in processes of their own. Those that end theirs need no counting then,
            and what is measured here waits until none is under way.
    """

    def __init__(
        self,
        adapter: Adapter,
        space: TuningSpace,
        criterion: Criterion,
        budget: Budget,
        objective: Objective,
        history: History,
        observer: Observer,
        clock: Clock | None = None,
        width: int = 1,
        delta: float | None = DELTA,
    ) -> None:
        self.adapter, self.space, self.history = adapter, space, history
        self.reason: StopReason | None = None
        self.isolated = False
        # Trials of an earlier run that the rules of this one forbid are remembered, but cannot win.
        self.judge = Judge(criterion, objective, space.allows)
        self.judge.begin(history.baseline)
        self.judge.extend(history.trials)
        self.judge.confirm(confirmations(history.notes, criterion), is_required(history.notes))
        self._budget, self._observer = budget, observer
        self._clock = clock or Clock()
        if clock is None:
            self._clock.go_on(history)
        self._owed = False
        self._dialogue: ProposalQueue | None = None
        self._strategy: tuple[Strategy, Probe] | None = None
        self._pending: dict[QuantConfig, PendingTrial] = {}
        self._measuring = ObjectiveMeasurer(adapter, history, self.judge, objective)
        self._delta = None if criterion.target_budget is not None else delta  # within a budget nothing is ruled out
        self._proposed: set[QuantConfig] = set()
        self._repeats = 0
        self._width, self._order = width, Order(width)
        self._numbers = {trial.number for trial in history.trials}
        self._lowest = 1
        self._hurried = self._named = False

    def begin(self, strategy: Strategy, probe: Probe) -> None:
        """Let a strategy propose what is asked for from now on. It is not started before the baseline is known."""
        self._strategy = strategy, probe

    def ask(self) -> PendingTrial | None:
        """The next trial to score; None when the run is over.

        A strategy that proposed several at once can be asked again before the first is told.
        """
        pending = self.next(all_at_once=True)
        if pending is None and self.reason is None:
            if self.judge.baseline is None:
                raise StrategyError(
                    "the fp32 model was asked for, and its score is not told yet: call tell(trial, score)"
                )
            numbers = ", ".join(str(pending.number) for pending in self._pending.values())
            raise StrategyError(f"the strategy waits for the scores of trial(s) {numbers}: call tell(trial, score)")
        return pending

    def next(self, all_at_once: bool = False) -> PendingTrial | None:
        """As `ask`, but None as well while there is nothing to ask for before one of those under way is told.

        Of a long list no more than the width are under way, unless the caller wants them `all_at_once`.
        """
        if self.reason is None and self.judge.baseline is None:
            return None if self._pending else self._ask_baseline()
        try:
            while self.reason is None:
                if not self._pending:
                    self._measure_what_waits()
                if self._hurried:
                    if self._pending:
                        return None
                    self._check_budget()
                    raise _Stop(StopReason.TIMEOUT)
                dialogue = self._dialogue or self._open()
                pending = self._next(dialogue, all_at_once)
                if pending is not None:
                    return pending
                if self._pending:
                    return None
        except _Stop as stop:
            if not self._pending:
                self.stop(stop.reason)
            # Else those that are under way come to their end first: they are paid for.
        return None

    def model_of(self, number: int) -> Model:
        """The model of the trial of that number, which was asked for and is not told."""
        return next(pending for pending in self._pending.values() if pending.number == number).model

    def usual(self) -> float | None:
        """Seconds that the evaluation of the fp32 model took, if there was one."""
        base = self.history.baseline
        return None if base is None or base.unscored else base.seconds

    @property
    def reference(self) -> EarlyStopReference:
        """What an evaluation is held against while it goes on."""
        return EarlyStopReference.of(self.judge.criterion, self.history.baseline, self._delta)

    def tell(self, pending: PendingTrial, score: object, seconds: float | None = None) -> Trial:
        """Record the score of a trial that was asked for, and return it judged.

        Args:
            pending: what `ask` gave.
            score: what eval_func may return: a number, the scores of samples, a dict of metrics, or a generator.
            seconds: how long the evaluation took; since the model was built, if not given.
        """
        value = as_score(score, self.reference)
        return self._take(pending, pending.scored(value, time.monotonic(), seconds), value.streamed)

    def fail(self, pending: PendingTrial, error: str) -> Trial:
        """Record that a trial has no score, with the reason."""
        return self._take(pending, pending.failed(error))

    def record(self, pending: PendingTrial, outcome: Outcome) -> Trial:
        """Record what an executor made of a trial: a score if there is one, else why not."""
        streamed = outcome.score is not None and outcome.score.streamed
        return self._take(pending, pending.carried_out(outcome), streamed)

    def take_unscored(self) -> Trial:
        """End the run with what the strategy proposes before it has heard of a score. One that it has stays."""
        assert self._strategy is not None
        known = next((trial for trial in self.judge.trials if trial.unscored and self.space.allows(trial.config)), None)
        if known is None:
            config = first_proposal(self._strategy[0], self.space, self._strategy[1])
            self._observer(TrialStarted(1, None))
            known = record_unscored(config, self.space, self.adapter, self.history, self._measuring.measured)
            self.judge.add(known)
            self._name_what_is_left_out()
            self._observer(TrialFinished(known, known, self.judge.criterion.is_relative))
        self.reason = StopReason.UNSCORED
        self.close()
        return known

    def stop(self, reason: StopReason) -> None:
        """End the run, if it has not ended before: the winner is decided, unless the user has no time for that."""
        if self.reason is None:
            if reason is not StopReason.INTERRUPTED:
                self._measure_what_waits()
                self._measuring.decide(self._left, self._observer)
            self._keep_time()
        self.reason = self.reason or reason
        self.close()

    def close(self) -> None:
        """Let go of the strategy and of all models. What was told is in the history."""
        if self._dialogue is not None:
            self._dialogue.close()
        for pending in reversed(self._pending.values()):
            pending.close()
            mark_released(self.history, pending.number)
        self._pending.clear()
        self._measuring.close()

    def _ask_baseline(self) -> PendingTrial:
        config = self.space.float_config()
        if not self.isolated:
            check_baseline(self.history, config)
        return self._dispatch(0, config, lambda: self.adapter.build(None))

    def _open(self) -> ProposalQueue:
        """Start the strategy, unless an earlier run has done all there is to do."""
        base = self.history.baseline
        assert base is not None and self._strategy is not None
        self.judge.check()
        self._observer(BaselineScored(base))
        self._dialogue = ProposalQueue(self._strategy[0], self.space, self._strategy[1])
        self._measuring.measure_missing(self.space)
        if self.judge.evaluated:
            self._name_what_is_left_out()
        # If the baseline left time for a trial, there will be one, whatever measurements take.
        self._owed = not self.judge.evaluated and self._clock.seconds < self._budget.timeout
        if self._width == 1:
            self._check_budget()
        # Else a trial that was cut off may be missing before one that decides: the strategy goes through all of them.
        return self._dialogue

    def _next(self, dialogue: ProposalQueue, all_at_once: bool) -> PendingTrial | None:
        """The next configuration that the strategy waits for and nobody knows yet; None to be called again."""
        for config in dialogue.waiting:
            if config in self._pending:
                continue
            known = self._find(config)
            if known is None:
                if self._order.must_wait and not all_at_once:
                    return None
                self._check_budget()
                self._repeats = 0
                self._proposed.add(config)
                number = self._free_number()
                known = exceeded_crash_limit(self.history, number, config, self.isolated)
                if known is None:
                    return self._dispatch(number, config, lambda config=config: self.adapter.build(config))  # type: ignore[misc]
                self._add_given_up(known)
            self._order.replay(self.judge.verdict(known))
            self._count_repeat(config in self._proposed)
            self._proposed.add(config)
            dialogue.answer(self.judge.verdict(known))
        if dialogue.waiting:
            return None
        self._order.mark_settled()
        try:
            asked = dialogue.ask()
        except OutOfTime:
            return self._force_default_trial()
        if dialogue.over:
            self._check_budget()  # a strategy may itself be done when it hears of a success
            raise _Stop(StopReason.EXHAUSTED)
        if not asked:
            self._count_repeat(True)
        return None

    def out_of_time(self) -> bool:
        """Whether measurements without labels must end: before the first trial they get half of the timeout."""
        share = 1.0 if self.judge.evaluated else BEFORE_THE_FIRST
        self._keep_time(EVERY)
        return 0 < share * self._budget.timeout <= self._clock.seconds

    def _left(self) -> float:
        """Seconds that are left of the timeout."""
        return self._budget.timeout - self._clock.seconds if self._budget.timeout > 0 else math.inf

    def _force_default_trial(self) -> PendingTrial:
        """No time is left to measure, and the strategy is over; but something must be tried."""
        config = self.space.default_config()
        if self.judge.evaluated or self.history.find(config) is not None:
            raise _Stop(StopReason.TIMEOUT)
        number = self._free_number()
        failed = exceeded_crash_limit(self.history, number, config, self.isolated)
        if failed is not None:
            self._add_given_up(failed)
            raise _Stop(StopReason.TIMEOUT)
        self._hurried = True
        return self._dispatch(number, config, lambda: self.adapter.build(config))

    def _add_given_up(self, trial: Trial) -> None:
        """Take in the failed trial of a configuration that is not tried again."""
        self._numbers.add(trial.number)
        self._finished(self.judge.add(trial))

    def _free_number(self) -> int:
        """The lowest that no trial has: a run that goes on gives those that were cut off the numbers they had."""
        under_way = {pending.number for pending in self._pending.values()}
        while self._lowest in self._numbers:
            self._lowest += 1
        taken = under_way | self._numbers
        return next(number for number in itertools.count(self._lowest) if number not in taken)

    def _dispatch(self, number: int, config: QuantConfig, build: Callable[[], Model]) -> PendingTrial:
        self._observer(TrialStarted(number, self.judge.best))
        if number:
            self._order.ask(number)
        if not self.isolated:
            self.history.begin_trial(number, config)
        pending = self._pending[config] = PendingTrial(number, config, build)
        return pending

    def _take(self, pending: PendingTrial, trial: Trial, streamed: bool = False) -> Trial:
        if self._pending.get(pending.config) is not pending:
            raise StrategyError(f"trial {pending.number} was told before, or its run is over")
        try:
            if pending.number == 0:
                return self._take_baseline(trial, streamed)
            self.history.append(trial)
            self._numbers.add(trial.number)
            trial = self.judge.verdict(trial)
            if self._measuring.wants(trial) and self.isolated:
                self._measuring.defer(trial)
            elif self._measuring.wants(trial):
                trial = self._measuring.measured(trial, pending.model)
            self._keep_time()
            trial = self.judge.add(trial)
        finally:
            del self._pending[pending.config]
            pending.close()
            mark_released(self.history, pending.number)
        self._order.tell(trial)
        self._name_what_is_left_out()
        if self._dialogue is not None:
            self._dialogue.answer(trial)
        self._finished(trial)
        return trial

    def _finished(self, trial: Trial) -> None:
        self._observer(TrialFinished(trial, self.judge.best, self.judge.criterion.is_relative))

    def _take_baseline(self, trial: Trial, streamed: bool) -> Trial:
        self.judge.begin(trial)
        try:
            self.judge.check()
        except SettingsError:
            self.judge.begin(None)
            raise
        self.history.append(trial)
        self._keep_time()
        if streamed and self._delta is not None:
            for metric, samples in trial.samples.items():
                chance = ordered(samples.array)
                if chance < SUSPECT:
                    self._observer(SamplesOrdered(metric, chance))
        return self.judge.verdict(trial)

    def _find(self, config: QuantConfig) -> Trial | None:
        """The scored trial of a configuration, if any; a stopped one only if this criterion rules it out, too."""
        known, base = self.history.find(config), self.history.baseline
        if known is None or known.unscored:
            return None
        if not known.stopped or base is None:
            return known
        return known if rules_out(self.judge.criterion, base, known, self._delta or DELTA) else None

    def _measure_what_waits(self) -> None:
        """Measure what is to be compared now that nothing else is under way, in the order asked."""
        for measured in self._measuring.measure_deferred():
            self._order.tell(measured)
            if self._dialogue is not None:
                self._dialogue.answer(measured)

    def _name_what_is_left_out(self) -> None:
        """Once in a run, and not before the first trial: note what cannot be quantized, and its time."""
        if not self._named:
            self._named = True
            note_unquantizable(
                self.adapter, self.history, timed=bool(self.adapter.probe_samples) and not self.out_of_time()
            )

    def _count_repeat(self, repeated: bool) -> None:
        self._repeats = self._repeats + 1 if repeated else 0
        if self._repeats >= REPEATS:
            log.warning("the strategy has proposed nothing new %d times in a row; it would never end", REPEATS)
            raise _Stop(StopReason.EXHAUSTED)

    def _keep_time(self, every: float = 0.0) -> None:
        """A resumed run must know what this one has used of its timeout."""
        if self._budget.timeout > 0:
            self._clock.keep(self.history, every)

    def _check_budget(self) -> None:
        reason = self._budget.spent(
            evaluated=self.judge.evaluated + len(self._pending),
            seconds=self._clock.seconds + self._measuring.reserved_seconds(FOR_FINALISTS * self._budget.timeout),
            met=self.judge.content if self._width == 1 else self._order.any_counted(self.judge.suffices),
        )
        if reason is StopReason.MET and self.judge.criterion.target_budget is not None:
            reason = StopReason.NOTHING_LOST
        if reason is StopReason.TIMEOUT and self._owed and not (self.judge.evaluated or self._pending):
            return
        if reason is not None:
            raise _Stop(reason)
        if self._order.failures >= FAILURES_IN_A_ROW:
            raise _Stop(StopReason.FAILURES)


class _Stop(Exception):
    """Leave the conversation with the strategy for a reason."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason
