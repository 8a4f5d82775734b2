"""A run by ask and tell: which configuration to score next, what to record of it, and when the run is over.

The run knows neither the strategy nor who calls eval_func: the loop of `fit`, or one of the user's own.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable

from quaver.adapters import Model
from quaver.budget import StopReason
from quaver.engine.events import BaselineScored, SamplesOrdered, TrialFinished, TrialStarted
from quaver.engine.executors.base import Evaluation
from quaver.engine.probe import OutOfTime
from quaver.engine.run.crashes import check_baseline, exceeded_crash_limit, mark_released
from quaver.engine.run.finish import note_unquantizable, was_killed_before_a_gain
from quaver.engine.run.pending_trial import PendingTrial
from quaver.engine.run.proposals import ProposalQueue, first_proposal, record_unscored
from quaver.engine.run.run_setup import DELTA, RunSetup
from quaver.engine.run.scheduling import SAVE_INTERVAL, Clock, Order
from quaver.engine.scoring.confirmation import confirmations, is_required
from quaver.engine.scoring.early_stop import EarlyStopReference, rules_out
from quaver.engine.scoring.evaluate import as_score
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective_measurer import ObjectiveMeasurer
from quaver.errors import SettingsError, StrategyError
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.statistics import ordered
from quaver.strategies import Strategy
from quaver.trial import Trial

log = logging.getLogger(__name__)

# This many failed trials in a row end the run. Judgement: then eval_func or the model is broken, not the configuration.
MAX_FAILURES_IN_A_ROW = 3
# The share of the timeout that measurements may use before the first trial. Judgement: half is left for trials.
SHARE_BEFORE_FIRST_TRIAL = 0.5
# The largest share of the timeout that is reserved to measure the best trials again. Judgement: one trial in twenty.
SHARE_FOR_FINALISTS = 0.05
# This many proposals in a row without a new one end the run. Judgement: no strategy of quaver repeats itself so often.
MAX_REPEATS = 1000
# Samples count as ordered below this p-value. Judgement: one false alarm in a thousand runs.
ORDERED_P_VALUE = 1e-3


class Run:
    """A strategy at work on a model, until criterion, budget or the strategy itself end it.

    Attributes:
        judge: all trials so far, judged.
        reason: why the run is over; None while it is active.
        isolated: True if other processes evaluate trials. Their crashes are not counted here, and the objective is
            measured only while none of them runs.
    """

    def __init__(self, setup: RunSetup) -> None:
        self.adapter, self.space, self.history = setup.adapter, setup.space, setup.history
        self.reason: StopReason | None = None
        self.isolated = False
        # Trials of an earlier run that the rules now forbid are remembered, but cannot win.
        self.judge = Judge(setup.criterion, setup.objective, setup.space.allows)
        self.judge.begin(self.history.baseline)
        self.judge.extend(self.history.trials)
        self.judge.confirm(confirmations(self.history.notes, setup.criterion), required=is_required(self.history.notes))
        self._budget, self._observer = setup.budget, setup.observer
        self._clock = setup.clock or Clock()
        if setup.clock is None:
            self._clock.go_on(self.history)
        self._owes_trial = False
        self._proposals: ProposalQueue | None = None
        self._strategy: tuple[Strategy, Probe] | None = None
        self._pending: dict[QuantConfig, PendingTrial] = {}
        self._measurer = ObjectiveMeasurer(self.adapter, self.history, self.judge, setup.objective)
        # With a target budget nothing is ruled out early.
        self._delta = None if setup.criterion.target_budget is not None else setup.early_stop_delta
        self._proposed: set[QuantConfig] = set()
        self._repeats = 0
        self._width, self._order = setup.width, Order(setup.width)
        self._numbers = {trial.number for trial in self.history.trials}
        self._lowest_number = 1
        self._is_last_trial = self._noted_unquantizable = False

    def begin(self, strategy: Strategy, probe: Probe) -> None:
        """Set the strategy. It is started once the baseline is known."""
        self._strategy = strategy, probe

    def ask(self) -> PendingTrial | None:
        """Return the next trial to score; None when the run is over.

        If the strategy proposed several trials at once, `ask` can be called again before the first one is told.
        """
        pending = self.next(all_at_once=True)
        if pending is None and self.reason is None:
            if self.judge.baseline is None:
                raise StrategyError("the fp32 model has no score yet: call tell(trial, score) before the next ask()")
            numbers = ", ".join(str(pending.number) for pending in self._pending.values())
            raise StrategyError(f"the strategy waits for the score of trial {numbers}: call tell(trial, score) first")
        return pending

    def next(self, all_at_once: bool = False) -> PendingTrial | None:
        """Return the next trial to score; None if the run is over, or if a pending trial must be told first.

        With `all_at_once` a list of proposals may have more pending trials than the width.
        """
        if self.reason is None and self.judge.baseline is None:
            return None if self._pending else self._ask_baseline()
        try:
            while self.reason is None:
                if not self._pending:
                    self._measure_deferred()
                if self._is_last_trial:
                    if self._pending:
                        return None
                    self._check_budget()
                    raise _Stop(StopReason.TIMEOUT)
                proposals = self._proposals or self._start_strategy()
                pending = self._next_proposal(proposals, all_at_once)
                if pending is not None:
                    return pending
                if self._pending:
                    return None
        except _Stop as stop:
            if not self._pending:  # pending trials are finished first: their time is spent already
                self.stop(stop.reason)
        return None

    def usual(self) -> float | None:
        """Return the seconds that the evaluation of the fp32 model took; None if there was none."""
        baseline = self.history.baseline
        return None if baseline is None or baseline.unscored else baseline.seconds

    @property
    def reference(self) -> EarlyStopReference:
        """Return what early stop compares an evaluation with."""
        return EarlyStopReference.of(self.judge.criterion, self.history.baseline, self._delta)

    def tell(self, pending: PendingTrial, score: object, seconds: float | None = None) -> Trial:
        """Record the score of a trial, and return the trial judged.

        Args:
            pending: the trial, as `ask` returned it.
            score: anything that eval_func may return: a number, scores of samples, a dict of metrics, or a generator.
            seconds: how long the evaluation took; the time since the model was built if None.
        """
        value = as_score(score, self.reference)
        return self.record(pending, pending.scored(value, time.monotonic(), seconds))

    def fail(self, pending: PendingTrial, error: str) -> Trial:
        """Record that a trial could not be scored."""
        return self.record(pending, pending.failed(error))

    def record(self, pending: PendingTrial, evaluation: Evaluation) -> Trial:
        """Record the evaluation of a trial, and return the trial judged."""
        if self._pending.get(pending.config) is not pending:
            raise StrategyError(f"trial {pending.number} has its score already, or its run is over")
        trial = evaluation.to_trial(pending.number, pending.config)
        try:
            if pending.number == 0:
                return self._record_baseline(trial, evaluation.score is not None and evaluation.score.streamed)
            self.history.append(trial)
            self._numbers.add(trial.number)
            trial = self.judge.verdict(trial)
            if self._measurer.wants(trial) and self.isolated:
                self._measurer.defer(trial)
            elif self._measurer.wants(trial):
                trial = self._measurer.measured(trial, pending.model)
            self._save_time()
            trial = self.judge.add(trial)
        finally:
            del self._pending[pending.config]
            pending.close()
            mark_released(self.history, pending.number)
        self._order.tell(trial)
        self._note_unquantizable()
        if self._proposals is not None:
            self._proposals.answer(trial)
        self._emit_finished(trial)
        return trial

    def take_unscored(self) -> Trial:
        """End the run without a score, with the first configuration that the strategy proposes.

        An unscored trial of an earlier run is reused.
        """
        assert self._strategy is not None
        unscored = (trial for trial in self.judge.trials if trial.unscored and self.space.allows(trial.config))
        trial = next(unscored, None)
        if trial is None:
            config = first_proposal(self._strategy[0], self.space, self._strategy[1])
            self._observer(TrialStarted(1, None))
            trial = record_unscored(config, self.space, self.adapter, self.history, self._measurer.measured)
            self.judge.add(trial)
            self._note_unquantizable()
            self._observer(TrialFinished(trial, trial, self.judge.criterion.is_relative))
        self.reason = StopReason.UNSCORED
        self.close()
        return trial

    def stop(self, reason: StopReason) -> None:
        """End the run, unless it is over. The winner is decided first, unless the user interrupted."""
        if self.reason is None:
            if reason is not StopReason.INTERRUPTED:
                self._measure_deferred()
                self._measurer.decide(self._seconds_left, self._observer)
            self._save_time()
        self.reason = self.reason or reason
        self.close()

    def close(self) -> None:
        """Close the strategy and all models. Everything that was told is in the history."""
        if self._proposals is not None:
            self._proposals.close()
        for pending in reversed(self._pending.values()):
            pending.close()
            mark_released(self.history, pending.number)
        self._pending.clear()
        self._measurer.close()

    def _ask_baseline(self) -> PendingTrial:
        config = self.space.float_config()
        if not self.isolated:
            check_baseline(self.history, config)
        return self._dispatch(0, config, lambda: self.adapter.build(None))

    def _start_strategy(self) -> ProposalQueue:
        """Start the strategy."""
        baseline = self.history.baseline
        assert baseline is not None and self._strategy is not None
        self.judge.check()
        self._observer(BaselineScored(baseline))
        self._proposals = ProposalQueue(self._strategy[0], self.space, self._strategy[1])
        self._measurer.measure_missing(self.space)
        if self.judge.evaluated:
            self._note_unquantizable()
        # If the baseline left time for a trial, one is evaluated, however long measurements take.
        self._owes_trial = not self.judge.evaluated and self._clock.seconds < self._budget.timeout
        if self._width == 1 and not was_killed_before_a_gain(self.history, self.judge):
            self._check_budget(not self._proposals.continues)
        # With a larger width an interrupted trial may precede the one that ended the run: all are replayed first.
        return self._proposals

    def _next_proposal(self, proposals: ProposalQueue, all_at_once: bool) -> PendingTrial | None:
        """Dispatch the next configuration that has no answer yet; return None if there is nothing to dispatch now."""
        for config in proposals.waiting:
            if config in self._pending:
                continue
            trial = self._find_scored(config)
            if trial is None:
                if self._order.must_wait and not all_at_once:
                    return None
                self._check_budget(not proposals.continues)
                self._repeats = 0
                self._proposed.add(config)
                number = self._free_number()
                trial = exceeded_crash_limit(self.history, number, config, self.isolated)
                if trial is None:
                    return self._dispatch(number, config, lambda config=config: self.adapter.build(config))  # type: ignore[misc]
                self._add_crashed(trial)
            self._order.replay(self.judge.verdict(trial))
            self._count_repeat(config in self._proposed)
            self._proposed.add(config)
            proposals.answer(self.judge.verdict(trial))
        if proposals.waiting:
            return None
        self._order.mark_settled()
        try:
            proposed = proposals.ask()
        except OutOfTime:
            return self._force_default_trial()
        if proposals.over:
            self._check_budget()  # a strategy may end because of a success
            raise _Stop(StopReason.EXHAUSTED)
        if not proposed:
            self._count_repeat(True)
        return None

    def out_of_time(self) -> bool:
        """Return True if measurements without labels must end. Before the first trial they get half of the timeout."""
        share = 1.0 if self.judge.evaluated else SHARE_BEFORE_FIRST_TRIAL
        self._save_time(SAVE_INTERVAL)
        return 0 < share * self._budget.timeout <= self._clock.seconds

    def _seconds_left(self) -> float:
        """Return the seconds that are left of the timeout."""
        return self._budget.timeout - self._clock.seconds if self._budget.timeout > 0 else math.inf

    def _force_default_trial(self) -> PendingTrial:
        """Dispatch the default configuration: the time for measurements is over before the first trial."""
        config = self.space.default_config()
        if self.judge.evaluated or self.history.find(config) is not None:
            raise _Stop(StopReason.TIMEOUT)
        number = self._free_number()
        failed = exceeded_crash_limit(self.history, number, config, self.isolated)
        if failed is not None:
            self._add_crashed(failed)
            raise _Stop(StopReason.TIMEOUT)
        self._is_last_trial = True
        return self._dispatch(number, config, lambda: self.adapter.build(config))

    def _add_crashed(self, trial: Trial) -> None:
        """Add the failed trial of a configuration that ended the process too often."""
        self._numbers.add(trial.number)
        self._emit_finished(self.judge.add(trial))

    def _free_number(self) -> int:
        """Return the lowest free number, so that a resumed run gives interrupted trials their old numbers."""
        pending_numbers = {pending.number for pending in self._pending.values()}
        while self._lowest_number in self._numbers:
            self._lowest_number += 1
        used = pending_numbers | self._numbers
        return next(number for number in itertools.count(self._lowest_number) if number not in used)

    def _dispatch(self, number: int, config: QuantConfig, build: Callable[[], Model]) -> PendingTrial:
        self._observer(TrialStarted(number, self.judge.best))
        if number:
            self._order.ask(number)
        if not self.isolated:
            self.history.begin_trial(number, config)
        pending = self._pending[config] = PendingTrial(number, config, build)
        return pending

    def _emit_finished(self, trial: Trial) -> None:
        self._observer(TrialFinished(trial, self.judge.best, self.judge.criterion.is_relative))

    def _record_baseline(self, trial: Trial, streamed: bool) -> Trial:
        self.judge.begin(trial)
        try:
            self.judge.check()
        except SettingsError:
            self.judge.begin(None)
            raise
        self.history.append(trial)
        self._save_time()
        if streamed and self._delta is not None:
            for metric, samples in trial.samples.items():
                p_value = ordered(samples.array)
                if p_value < ORDERED_P_VALUE:
                    self._observer(SamplesOrdered(metric, p_value))
        return self.judge.verdict(trial)

    def _find_scored(self, config: QuantConfig) -> Trial | None:
        """Return the scored trial of a configuration; a stopped one only if the current criterion rules it out too."""
        trial, baseline = self.history.find(config), self.history.baseline
        if trial is None or trial.unscored:
            return None
        if not trial.stopped or baseline is None:
            return trial
        return trial if rules_out(self.judge.criterion, baseline, trial, self._delta or DELTA) else None

    def _measure_deferred(self) -> None:
        """Measure the objective of finished trials, in the order of their dispatch, while no trial is running."""
        for measured in self._measurer.measure_deferred():
            self._order.tell(measured)
            if self._proposals is not None:
                self._proposals.answer(measured)

    def _note_unquantizable(self) -> None:
        """Note the unquantizable nodes and their time, once in a run, after the first trial."""
        if not self._noted_unquantizable:
            self._noted_unquantizable = True
            timed = bool(self.adapter.probe_samples) and not self.out_of_time()
            note_unquantizable(self.adapter, self.history, timed)

    def _count_repeat(self, repeated: bool) -> None:
        self._repeats = self._repeats + 1 if repeated else 0
        if self._repeats >= MAX_REPEATS:
            log.warning("the strategy proposed nothing new %d times in a row, so the run ends", MAX_REPEATS)
            raise _Stop(StopReason.EXHAUSTED)

    def _save_time(self, every: float = 0.0) -> None:
        """Save the time that is used, which a resumed run continues to count."""
        if self._budget.timeout > 0:
            self._clock.keep(self.history, every)

    def _check_budget(self, ends: bool = True) -> None:
        reason = self._budget.spent(
            evaluated=self.judge.evaluated + len(self._pending),
            seconds=self._clock.seconds + self._measurer.reserved_seconds(SHARE_FOR_FINALISTS * self._budget.timeout),
            met=ends and (self.judge.can_end if self._width == 1 else self._order.any_counted(self.judge.suffices)),
        )
        if reason is StopReason.MET and self.judge.criterion.target_budget is not None:
            reason = StopReason.NOTHING_LOST
        if reason is StopReason.TIMEOUT and self._owes_trial and not (self.judge.evaluated or self._pending):
            return
        if reason is not None:
            raise _Stop(reason)
        if self._order.failures >= MAX_FAILURES_IN_A_ROW:
            raise _Stop(StopReason.FAILURES)


class _Stop(Exception):
    """The run must end, for a reason."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason
