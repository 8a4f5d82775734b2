"""A run by ask and tell: `open_run`, for callers with their own loop. `fit` is one of them."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Unpack

from quaver.api.config.keywords import Settings
from quaver.api.config.resolve import ConfigLike, ResolvedSettings, resolve_settings
from quaver.api.display.warnings import levels_to_the_caller, warn_of_notices
from quaver.api.finish import finish_run
from quaver.api.plugins import load_view, write_report
from quaver.api.result import TuneResult
from quaver.api.result_warnings import warn_of_failed_trials
from quaver.api.run_log import run_log
from quaver.api.setup import (
    OpenRun,
    RunRequest,
    build_probe,
    build_search,
    calibrate_model,
    check_rules,
    executor_spec,
    load_model,
    plan_strategy,
    resume_hint,
    run_setup,
    settle_request,
    with_width,
)
from quaver.api.workspace import open_workspace, write_settings
from quaver.budget import StopReason
from quaver.engine.events import PageOpened, RunFinished, RunStarted, TrialSlow
from quaver.engine.executors.base import Executor
from quaver.engine.executors.in_process import InProcess
from quaver.engine.executors.parallel_probe import measuring_worker
from quaver.engine.executors.payload import RunPayload
from quaver.engine.executors.process_pool import LocalPool
from quaver.engine.executors.remote import Workers
from quaver.engine.executors.select import open_pool
from quaver.engine.observers import Observer, Observers, StageTimes, make_observers
from quaver.engine.run.crashes import CONFIRMING, check_confirming, step
from quaver.engine.run.finish import confirm, require_confirmation
from quaver.engine.run.loop import drive
from quaver.engine.run.pending_trial import PendingTrial
from quaver.engine.run.run import Run
from quaver.engine.run.scheduling import Clock, used
from quaver.engine.scoring.evaluate import bind_reference
from quaver.engine.timing.objective import make_objective
from quaver.strategies import make_strategy, prepared
from quaver.trial import Trial
from quaver.types import CalibrationData, EvalFunc, ExecutorLike, ModelLike, ScoreLike

log = logging.getLogger(__name__)


def open_run(
    model: ModelLike,
    config: ConfigLike = None,
    *,
    calib_dataloader: CalibrationData = None,
    observer: Observer | Iterable[Observer] | None = None,
    executor: ExecutorLike = None,
    **settings: Unpack[Settings],
) -> TuningRun:
    """Start or resume a run that is told its scores instead of calling an eval_func.

    The arguments are those of `fit`, without eval_func. The first trial is number 0, the fp32 model.

        with quaver.open_run("model.onnx", calib_dataloader=batches) as run:
            while (trial := run.ask()) is not None:
                run.tell(trial, accuracy(trial.model))
            result = run.result()
    """
    return TuningRun(model, resolve_settings(config, settings), calib_dataloader, observer, executor)


class TuningRun:
    """A run in progress, with the same history, strategies and events as `fit`. Close it, or use it in a `with`.

    Attributes:
        config: the settings of the run.
        workspace: its folder.
    """

    def __init__(
        self,
        model: ModelLike,
        settings: ResolvedSettings,
        calib_dataloader: CalibrationData,
        observer: Observer | Iterable[Observer] | None,
        executor: ExecutorLike = None,
    ) -> None:
        """Use `open_run`."""
        observers = make_observers(observer)
        clock = Clock()
        self._result: TuneResult | None = None
        with contextlib.ExitStack() as stack:
            self.workspace, history = stack.enter_context(open_workspace(settings.config))
            self._log = stack.enter_context(run_log(self.workspace))
            self._times = StageTimes()
            self._emit = Observers(self._times, self._log, *(observers or [warn_of_notices]))
            with self._log.here():
                opened = OpenRun(self.workspace, history, self._emit, clock)
                self._open(stack, settle_request(opened, settings, model, calib_dataloader), executor)
            self._stack = stack.pop_all()

    def _open(self, stack: contextlib.ExitStack, request: RunRequest, executor: ExecutorLike) -> None:
        """Set up the run, step by step (see `quaver.api.setup`)."""
        config = request.config
        objective = make_objective(config.objective, config.criterion.target_budget)
        strategy = make_strategy(config.strategy, config.strategy_options)
        self._pool = stack.enter_context(open_pool(executor_spec(config, executor)))
        self._request = request = with_width(request, self._pool)
        self.config = config = request.config
        self._announce(stack)
        adapter = load_model(request, stack, objective)
        cost_model = check_rules(request, adapter, objective)
        stack.enter_context(resume_hint(request.history))
        calibrate_model(request, adapter)
        search = build_search(request, adapter, objective, cost_model)
        write_settings(self.workspace, config)
        self._run = Run(run_setup(request, adapter, search))
        stack.callback(self._run.close)
        budget = config.criterion.target_budget
        strategy = prepared(
            strategy,
            seed=config.seed,
            objective=objective.name,
            allowed=config.criterion.allowed,
            width=config.width or 1,
            target_budget=None if budget is None else budget.relative_to(adapter.assemble(None).size),
        )
        strategy = plan_strategy(request, search, strategy)
        self._probe = build_probe(request, search, self._run, self._measuring_worker)
        stack.callback(self._probe.close)
        self._run.begin(strategy, self._probe)

    def _announce(self, stack: contextlib.ExitStack) -> None:
        """Tell the observers that the run begins, and open its page if one is wanted."""
        request, history = self._request, self._request.history
        spent = 0.0 if history.header is None else used(history.notes, history.trials)
        self._emit(RunStarted(self.workspace, self.config.to_dict(), history.header is not None, spent))
        for change in request.changes:
            self._emit(change)
        if self.config.insights:
            page = load_view("page")(self.workspace)
            stack.callback(page.close)
            self._emit(PageOpened(page.url))

    @property
    def engine(self) -> Run:
        """Return the run itself, for loops that need more than `ask` and `tell`."""
        return self._run

    @property
    def observer(self) -> Observer:
        """Return the observer that passes each event to all observers of the run."""
        return self._emit

    @property
    def best(self) -> Trial | None:
        """Return the best trial so far: the winner by objective if any meets the criterion, else the most accurate."""
        return self._run.judge.best

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Return all trials so far, those of earlier, resumed runs included."""
        return self._run.judge.trials

    @property
    def reason(self) -> StopReason | None:
        """Return why the run is over; None while it is active."""
        return self._run.reason

    def ask(self) -> PendingTrial | None:
        """Return the next trial to score, with its `model`; None when the run is over. Number 0 is the fp32 model."""
        with self._log.here():
            return self._run.ask()

    def tell(self, trial: PendingTrial, score: ScoreLike, seconds: float | None = None) -> Trial:
        """Record the score of a trial on the disk, and return the trial judged."""
        with self._log.here():
            return self._run.tell(trial, score, seconds)

    def fail(self, trial: PendingTrial, error: str) -> Trial:
        """Record that a trial could not be scored, and why."""
        with self._log.here():
            return self._run.fail(trial, error)

    def result(self) -> TuneResult:
        """Return the result, and save the best model in the workspace. A run that is not over is ended."""
        if self._result is None:
            with self._log.here():
                self._run.stop(StopReason.INTERRUPTED)
                result = self._result = finish_run(self._run, self._request, self._probe, self._times)
                if failed := warn_of_failed_trials(result.trials):
                    warnings.warn(failed, UserWarning, stacklevel=levels_to_the_caller())
                if self.config.report:  # before the run is over for trackers, which upload it
                    write_report(self.workspace)
                self._emit(_finished_event(result, self._times))
        return self._result

    def drive(self, eval_func: EvalFunc) -> StopReason:
        """Score all trials with an eval_func, as `fit` does."""
        local = self._pool is not None and isinstance(self._pool.executor, LocalPool)
        with self._log.here(), self._evaluating(eval_func) as executor, self._probe.measuring_with(executor, local):
            return drive(self._run, executor, self._emit, self.config.trial_timeout)

    def quantize(self) -> Trial:
        """Build the strategy's first configuration unscored, and end the run, as `fit` does without eval_func."""
        with self._log.here():
            return self._run.take_unscored()

    def require_confirmation(self) -> None:
        """Require that a trial is confirmed before it counts as met, as `fit` does with `confirm`."""
        require_confirmation(self._run.judge, self._run.history)

    def confirm(self, eval_func: EvalFunc) -> None:
        """Score the winner on data that took no part in choosing it, once the run is over.

        If it misses the criterion there, the next best trials are scored too, up to `confirm_tries` in all. From then
        on only a confirmed trial counts as met.
        """
        self.require_confirmation()
        with self._log.here():
            if self._run.reason is StopReason.INTERRUPTED:
                log.warning("the run was interrupted, so its best trial is not confirmed: resume it")
                return
            run = self._run
            bound = bind_reference(eval_func, lambda: self._run.adapter.build(None))
            check_confirming(run.history)
            with step(run.history, CONFIRMING):
                confirm(self._run.adapter, run.judge, run.history, bound, self.config.confirm_tries, self._emit)

    @contextlib.contextmanager
    def _evaluating(self, eval_func: EvalFunc) -> Iterator[Executor]:
        """Open the executor that calls eval_func: this process, or workers that are stopped after the last trial."""
        run, pool = self._run, self._pool
        if pool is None:
            yield InProcess(
                bind_reference(eval_func, lambda: self._run.adapter.build(None)),
                lambda number, seconds: self._emit(TrialSlow(number, seconds, run.usual() or 0.0)),
            )
            return
        header = run.history.header
        assert header is not None
        with RunPayload.opened(
            self.workspace,
            self._run.adapter,
            header.calibration,
            self._request.model,
            self._run.adapter.options,
            eval_func,
        ) as payload:
            try:
                yield Workers(pool.executor, payload, pool.jobs, pool.threads, pool.deaths)
            finally:
                pool.stop()

    def _measuring_worker(self) -> contextlib.AbstractContextManager[Executor]:
        """Open a worker process for measurements, which a run uses once a measurement has crashed its own process."""
        header = self._run.history.header
        assert header is not None
        return measuring_worker(
            self.workspace, self._run.adapter, header.calibration, self._request.model, self._run.adapter.options
        )

    def close(self) -> None:
        """Close the model and the history. Further calls do nothing."""
        self._stack.close()

    def __enter__(self) -> TuningRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def __repr__(self) -> str:
        state = "over" if self.reason else "in progress"
        return f"TuningRun({str(self.workspace)!r}, {len(self.trials)} trials, {state})"


def _finished_event(result: TuneResult, times: StageTimes) -> RunFinished:
    return RunFinished(result.reason, result.best, result.baseline, result.evaluations, str(result), times.all)
