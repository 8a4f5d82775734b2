"""`open_run`: a run by ask and tell, for callers with a loop of their own. `fit` is one of them."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from quaver.adapters import AdapterOptions, Model, abilities, adapter_for, load_with
from quaver.adapters.calibration.stored import stored_comparison, stored_skipped_rewrites
from quaver.adapters.options import recorded_quant_format, resolve_portable, resolve_quant_format
from quaver.adapters.samples import check_batch
from quaver.api.config.config import Config
from quaver.api.config.keywords import Settings
from quaver.api.config.resolve import ConfigLike, ResolvedSettings, resolve_settings
from quaver.api.config.resume import changed_versions, settings_of_run
from quaver.api.cost_model import load_cost_model, target_of, with_conversions
from quaver.api.display.format import conversions
from quaver.api.display.warnings import levels_to_the_caller, warn_of_notices
from quaver.api.plugins import shown, write_report
from quaver.api.result import TuneResult
from quaver.api.result_warnings import run_warnings, skipped_measurements, warn_of_failed_trials
from quaver.api.run_log import RunLog, run_log
from quaver.api.setup import check_timing_batch, first_config, pointing_to, prepare, say_conversions, space_of
from quaver.api.workspace import open_workspace, write_settings
from quaver.budget import StopReason
from quaver.engine.compatibility import ops_version_of, versions_of
from quaver.engine.event_base import Stage
from quaver.engine.events import PageOpened, Planned, RunFinished, RunStarted, StageStarted, TrialSlow, Uncalibrated
from quaver.engine.executors.base import Executor
from quaver.engine.executors.in_process import InProcess
from quaver.engine.executors.parallel_probe import measuring_worker
from quaver.engine.executors.payload import RunPayload
from quaver.engine.executors.process_pool import LocalPool
from quaver.engine.executors.remote import Workers
from quaver.engine.executors.select import ExecutorSpec, open_pool
from quaver.engine.inspection.best_model import note_inside
from quaver.engine.inspection.diagnose import diagnose_run, replayable
from quaver.engine.inspection.output_drift import drift_of, note_drift
from quaver.engine.observers import Observer, Observers, StageTimes, make_observers
from quaver.engine.probe import AdapterProbe
from quaver.engine.provenance import add_provenance
from quaver.engine.run.crashes import CONFIRMING, check_confirming, last_step, step
from quaver.engine.run.finish import confirm, note_ending, require_confirmation
from quaver.engine.run.loop import drive
from quaver.engine.run.pending_trial import PendingTrial
from quaver.engine.run.run import Run
from quaver.engine.run.run_setup import RunSetup
from quaver.engine.run.scheduling import Clock, used
from quaver.engine.scoring.evaluate import bind_reference
from quaver.engine.timing.cache import timing_cache
from quaver.engine.timing.objective import Objective, for_target, make_objective
from quaver.errors import HistoryError, SettingsError
from quaver.files.atomic import remove_orphans
from quaver.files.paths import expanded
from quaver.files.temporary import remove_orphans as remove_orphaned_folders
from quaver.history import History
from quaver.processors import NOTE as PORTABILITY
from quaver.processors import Portability, noted_portability
from quaver.space import TuningSpace
from quaver.strategies import StartingFrom, make_strategy, prepared
from quaver.trial import Trial
from quaver.types import EvalFunc, ModelLike
from quaver.unquantizable import from_notes

if TYPE_CHECKING:
    from quaver.diagnosis import Diagnosis

log = logging.getLogger(__name__)


def open_run(
    model: ModelLike,
    config: ConfigLike = None,
    *,
    calib_dataloader: Any = None,
    observer: Observer | Iterable[Observer] | None = None,
    executor: Any = None,
    **settings: Unpack[Settings],
) -> TuningRun:
    """Begin a run, or go on with one, that is told its scores instead of calling an eval_func.

    The arguments are those of `fit`, without eval_func. The first trial asked for is number 0, the fp32 model.

        with quaver.open_run("model.onnx", calib_dataloader=batches) as run:
            while (trial := run.ask()) is not None:
                run.tell(trial, accuracy(trial.model))
            result = run.result()
    """
    return TuningRun(model, resolve_settings(config, settings), calib_dataloader, observer, executor)


class TuningRun:
    """A run in progress: same history, same strategies, same events as `fit`. Close it, or use it in a `with`.

    Attributes:
        config: the settings it goes by.
        workspace: its folder.
    """

    def __init__(
        self,
        model: ModelLike,
        settings: ResolvedSettings,
        calib_dataloader: Any,
        observer: Observer | Iterable[Observer] | None,
        executor: Any = None,
    ) -> None:
        """Use `open_run`."""
        self._executor = executor
        self._clock = Clock()
        self._data = calib_dataloader
        self._observers = make_observers(observer)
        self._result: TuneResult | None = None
        with contextlib.ExitStack() as stack:
            self.workspace, history, self._log = self._begin(stack, settings.config)
            with self._log.here():
                self._open(stack, history, model, settings)
            self._stack = stack.pop_all()

    def _begin(self, stack: contextlib.ExitStack, config: Config) -> tuple[Path, History, RunLog]:
        """The folder, the history and the log."""
        workspace, history = stack.enter_context(open_workspace(config))
        return workspace, history, stack.enter_context(run_log(workspace))

    def _open(
        self, stack: contextlib.ExitStack, history: History, model: ModelLike, settings: ResolvedSettings
    ) -> None:
        self.config, changes = settings_of_run(settings, history)
        model = expanded(model)
        kind = adapter_for(model, self.config.framework)
        if history.header is None:
            wanted = resolve_quant_format(kind, self.config.quant_format, self.config.framework)
        else:
            wanted = recorded_quant_format(kind, history.run.settings)
        portable = resolve_portable(kind, self.config.portable)
        self.config = config = replace(self.config, quant_format=wanted, portable=portable)
        if self._data is None and config.diagnosis:
            raise SettingsError(
                "diagnosis=True runs samples through the model: pass calib_dataloader to a resumed run too, or "
                "diagnosis=False"
            )
        if config.diagnosis:
            self._data = replayable(self._data)
        objective = make_objective(config.objective, config.criterion.target_budget)
        strategy = make_strategy(config.strategy, config.strategy_options)
        self._pool = stack.enter_context(open_pool(self._wish(config)))
        width = config.width or (1 if self._pool is None else self._pool.jobs)
        if width > 1:  # kept, so that a resumed run asks for the same trials on any number of workers
            self.config = config = replace(config, width=width)
        strategy = prepared(
            strategy,
            seed=config.seed,
            objective=objective.name,
            allowed=config.criterion.allowed,
            width=width,
            target_budget=config.criterion.target_budget,
        )
        self._stages = StageTimes()
        self._tell = Observers(self._stages, self._log, *(self._observers or [warn_of_notices]))
        spent = 0.0 if history.header is None else used(history.notes, history.trials)
        self._tell(RunStarted(self.workspace, config.to_dict(), history.header is not None, spent))
        for change in changes:
            self._tell(change)
        if config.insights:
            page = shown("page")(self.workspace)
            stack.callback(page.close)
            self._tell(PageOpened(page.url))
        self._model = os.fspath(model) if isinstance(model, str | os.PathLike) else ""
        self._tell(StageStarted(Stage.READING))
        options = AdapterOptions(
            self.workspace,
            config.threads,
            config.quant_format,
            config.optimise_float,
            config.batch,
            left_out=() if history.header is None else stored_skipped_rewrites(history.header.calibration),
            portable=portable,
            ops_version=ops_version_of(history.header, {} if history.header is None else history.run.settings),
        )
        self._best_path = self.workspace / f"best_model{kind.suffix}"
        remove_orphans(self._best_path)
        remove_orphaned_folders()
        self._adapter = stack.enter_context(contextlib.closing(load_with(kind, model, options)))
        self._given = model
        check_batch(self._adapter.inputs, config.batch)
        self.space = self._space(config, objective, history)
        cost = load_cost_model(config.cost_model, self._adapter, history, config.batch)
        stack.enter_context(pointing_to(history))
        for change in changed_versions(history.run.versions, versions_of(self._adapter)):
            self._tell(change)
        prepare(self._adapter, history, config, self._data, self._tell, self._clock)
        check_timing_batch(self._adapter, config.batch)
        # An older calibration may not know enough for repairs.
        self.space = self._space(config, objective, history).without(abilities.ops_with_mask_values(self._adapter))
        if not self.space.quantizable:
            raise SettingsError("what can be quantized holds stand-ins for infinity, and must stay in fp32")
        if objective.measures_every_trial and not self._adapter.probe_samples:
            raise SettingsError(
                "`max_latency` is measured on calibration samples, and there are none: pass calib_dataloader, also to "
                "a resumed run"
            )
        if cost is not None and config.cost_model is not None:
            cost = with_conversions(cost, config.cost_model, self._adapter, history)
            objective = for_target(objective, cost.predict)
        say_conversions(self._adapter, history, self._tell)
        if not self._calibrated(history):
            able, total = len(self.space.quantizable), len(self.space)
            self._tell(Uncalibrated(able, total - able))
        write_settings(self.workspace, config)
        setup = RunSetup(
            self._adapter,
            self.space,
            config.criterion,
            config.budget,
            objective,
            history,
            self._tell,
            self._clock,
            width,
            config.early_stop_delta if config.early_stop else None,
        )
        self._run = Run(setup)
        stack.callback(self._run.close)
        first_choice = first_config(config.start_from, self.space, history, self._tell)
        if first_choice is not None:
            strategy = StartingFrom(first_choice, strategy)
        worst = strategy.worst_case(self.space)
        most = config.max_trials if worst is None else min(worst, config.max_trials)
        first = strategy.first_success(self.space)
        self._tell(Planned(strategy.name, len(self.space.quantizable), most, first, config.timeout))
        kept = timing_cache(self._adapter, config.quant_format, config.optimise_float) if config.timing_cache else None
        out_of_time = self._run.out_of_time
        self._probe = AdapterProbe(
            self._adapter, self.space, history, self._tell, out_of_time, cost, kept, self._measuring_worker
        )
        stack.callback(self._probe.close)
        self._run.begin(strategy, self._probe)

    def _space(self, config: Config, objective: Objective, history: History) -> TuningSpace:
        """What the user's rules, and what is known of ranges, leave of what the model offers."""
        return space_of(self._adapter, config, objective, self._calibrated(history))

    def _calibrated(self, history: History) -> bool:
        """Whether there are ranges: from the calibration data, or from the run that is resumed."""
        return self._data is not None if history.header is None else history.header.calibrated

    def _wish(self, config: Config) -> ExecutorSpec:
        """Who is to evaluate. An executor takes the place of the backend that an earlier run had."""
        isolate = config.isolate or config.trial_timeout is not None
        if self._executor is not None and config.resume is not None:
            return ExecutorSpec(config.n_jobs, threads=config.threads, executor=self._executor)
        return ExecutorSpec(config.n_jobs, config.backend, config.scheduler, isolate, config.threads, self._executor)

    @property
    def engine(self) -> Run:
        """What decides; for loops that are not content with `ask` and `tell`."""
        return self._run

    @property
    def observer(self) -> Observer:
        """Tells everybody who wants to know."""
        return self._tell

    @property
    def best(self) -> Trial | None:
        """The best trial so far: the winner by objective among those that meet the criterion, or the most accurate."""
        return self._run.judge.best

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials so far, those of earlier, resumed runs included."""
        return self._run.judge.trials

    @property
    def reason(self) -> StopReason | None:
        """Why the run is over; None while it goes on."""
        return self._run.reason

    def ask(self) -> PendingTrial | None:
        """The next trial to score, `trial.model` with it; None when the run is over. Number 0 is the fp32 model."""
        with self._log.here():
            return self._run.ask()

    def tell(self, trial: PendingTrial, score: Any, seconds: float | None = None) -> Trial:
        """Record the score of a trial and return it judged. It is on the disk when this returns."""
        with self._log.here():
            return self._run.tell(trial, score, seconds)

    def fail(self, trial: PendingTrial, error: str) -> Trial:
        """Record that a trial could not be scored, and why."""
        with self._log.here():
            return self._run.fail(trial, error)

    def result(self) -> TuneResult:
        """End the run, if it is not over, and give what there is: the best model is saved in the workspace."""
        if self._result is None:
            with self._log.here():
                self._run.stop(StopReason.INTERRUPTED)
                said = self._result = self._finish()
                if failed := warn_of_failed_trials(said.trials):
                    warnings.warn(failed, UserWarning, stacklevel=levels_to_the_caller())
                if self.config.report:  # before anybody is told that the run is over: trackers keep it
                    write_report(self.workspace)
                self._tell(
                    RunFinished(said.reason, said.best, said.baseline, said.evaluations, str(said), self._stages.all)
                )
        return self._result

    def drive(self, eval_func: EvalFunc) -> StopReason:
        """Score all that is asked for with an eval_func, as `fit` does."""
        local = self._pool is not None and isinstance(self._pool.executor, LocalPool)
        with self._log.here(), self._evaluating(eval_func) as executor, self._probe.beside(executor, local):
            return drive(self._run, executor, self._tell, self.config.trial_timeout)

    def quantize(self) -> Trial:
        """End the run without any score, with what the strategy would try first, as `fit` without eval_func does."""
        with self._log.here():
            return self._run.take_unscored()

    def require_confirmation(self) -> None:
        """Let no trial count as met before it is confirmed; `fit` with `confirm` does so before the first trial."""
        require_confirmation(self._run.judge, self._run.history)

    def confirm(self, eval_func: EvalFunc) -> None:
        """Score the winner on data that took no part in choosing it, once the run is over.

        If it misses the criterion there, the next best trials are scored, too, up to `confirm_tries` in all. Only a
        confirmed trial is met from then on.
        """
        self.require_confirmation()
        with self._log.here():
            if self._run.reason is StopReason.INTERRUPTED:
                log.warning("the run was interrupted, so its best trial is not confirmed: resume it")
                return
            run = self._run
            bound = bind_reference(eval_func, lambda: self._adapter.build(None))
            check_confirming(run.history)
            with step(run.history, CONFIRMING):
                confirm(self._adapter, run.judge, run.history, bound, self.config.confirm_tries, self._tell)

    @contextlib.contextmanager
    def _evaluating(self, eval_func: EvalFunc) -> Iterator[Executor]:
        """Who calls eval_func: this process, or workers, which are let go of when the last trial is told."""
        run, pool = self._run, self._pool
        if pool is None:
            yield InProcess(
                bind_reference(eval_func, lambda: self._adapter.build(None)),
                lambda number, seconds: self._tell(TrialSlow(number, seconds, run.usual() or 0.0)),
            )
            return
        header = run.history.header
        assert header is not None
        with RunPayload.opened(
            self.workspace, self._adapter, header.calibration, self._given, self._adapter.options, eval_func
        ) as site:
            try:
                yield Workers(pool.executor, site, pool.jobs, pool.threads, pool.deaths)
            finally:
                pool.stop()

    def _measuring_worker(self) -> contextlib.AbstractContextManager[Executor]:
        """Open a worker for measurements, which a run needs after one of them has ended its process."""
        header = self._run.history.header
        assert header is not None
        return measuring_worker(self.workspace, self._adapter, header.calibration, self._given, self._adapter.options)

    def close(self) -> None:
        """Let go of the model and of the history. More than once does no harm."""
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

    def _finish(self) -> TuneResult:
        judge, history = self._run.judge, self._run.history
        unscored = self._run.reason is StopReason.UNSCORED
        if (judge.baseline is None and not unscored) or self._run.reason is None:
            raise HistoryError("the fp32 model has no score yet, so there is no result: ask for trial 0 and tell it")
        best = judge.best
        model_path = model = found = None
        if best is not None:
            advice = f"quaver.recover writes trial {best.number} to a file"
            with last_step(history, f"saving trial {best.number}", advice) as may_run:
                if may_run:
                    built = self._adapter.assemble(best.config)
                    add_provenance(built, history, best)
                    model_path = built.save(self._best_path)
                    model = self._adapter.load_saved(model_path)
                    self._compare_outputs(best, built)
        if self.config.diagnosis:
            number = "no trial" if best is None else f"trial {best.number}"
            with last_step(history, f"diagnosing {number}", "the result has no diagnosis") as may_run:
                if may_run:
                    found = diagnose_run(self._adapter, self.space, best, self._data, self.workspace, self._tell)
        if best is not None and self.config.report and self._run.reason is not StopReason.INTERRUPTED:
            self._look_inside(best, found)
        portability = None if best is None else self._portability(best)
        self._note_ending(self._run.reason)
        return TuneResult(
            best=best,
            baseline=judge.baseline,
            met=None if unscored and judge.baseline is None else judge.met,
            reason=self._run.reason,
            trials=judge.trials,
            criterion=judge.criterion,
            objective=judge.objective,
            workspace=self.workspace,
            history_path=history.path,
            model_path=model_path,
            model=model,
            diagnosis=found,
            unquantizable=from_notes(history.notes),
            conversions=conversions(history.notes),
            comparison=None if history.header is None else stored_comparison(history.header.calibration),
            target=target_of(history.notes) if self.config.cost_model is not None else "",
            fp32_measured={} if history.baseline is None else dict(history.baseline.measured),
            fp32=history.baseline,
            losses=() if best is None else tuple(judge.losses(best)),
            confidence=None if best is None else judge.confidence(best),
            confirmations=judge.confirmations,
            output_drift=drift_of(history.notes, best),
            warnings=run_warnings(judge, history.notes, history.baseline),
            skipped_measurements=skipped_measurements(history.notes),
            portability=portability,
        )

    def _compare_outputs(self, best: Trial, model: Model) -> None:
        """Note how far the outputs of the best model are from the float model's. It can be interrupted."""
        if self._run.reason is StopReason.INTERRUPTED:
            return
        try:
            note_drift(self._adapter, best, model, self._run.history)
        except KeyboardInterrupt:
            log.warning("interrupted while comparing outputs; the result of the run is complete")

    def _portability(self, best: Trial) -> Portability:
        """Return on which processors the verdict holds, and note it, unless it was noted before."""
        history = self._run.history
        portability = abilities.portability_of(self._adapter, best.config)
        if history.notes.get(PORTABILITY) != portability.to_dict():
            try:
                history.note(PORTABILITY, portability.to_dict())
            except HistoryError as error:
                log.warning("on which processor the scores were taken could not be noted: %s", error)
        return noted_portability(history.notes, best.model_hash) or portability

    def _look_inside(self, best: Trial, found: Diagnosis | None) -> None:
        """Note what the page shows of the best model. It can be interrupted, and nothing is lost by it."""
        history, avoided = self._run.history, self._probe.fatal_ops
        name = f"looking into trial {best.number}"
        try:
            with last_step(history, name, "the page and the report show less of it") as may_run:
                if may_run:
                    note_inside(
                        self._adapter, self.space, best, history, found, self._tell, self.config.threads, avoided
                    )
        except KeyboardInterrupt:
            log.warning("interrupted while looking into the best model; the result of the run is complete")

    def _note_ending(self, reason: StopReason) -> None:
        try:
            note_ending(self._run.history, reason, self._stages.stages, self._clock.seconds, self._model)
        except HistoryError as error:
            log.warning("how the run ended could not be noted: %s", error)
