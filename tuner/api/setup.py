"""The steps that set up a run: load the model, check the rules, calibrate, build the search, build the probe.

`RunRequest` says what to run. Each step takes it and the results of earlier steps.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from quaver.adapters import Adapter, AdapterOptions, abilities, adapter_for, import_model, load_with
from quaver.adapters.calibration.stored import stored_skipped_rewrites
from quaver.adapters.options import recorded_quant_format, resolve_portable, resolve_quant_format
from quaver.adapters.samples import check_batch
from quaver.api.calibration import calibrate, check_timing_batch
from quaver.api.config.config import Config
from quaver.api.config.resolve import ResolvedSettings
from quaver.api.config.resume import changed_versions, settings_of_run
from quaver.api.cost_model import load_cost_model, with_conversions
from quaver.api.display.format import CONVERSIONS, conversions
from quaver.api.fastest import check_single
from quaver.engine.compatibility import check_same_ops, ops_version_of, restore, versions_of
from quaver.engine.event_base import Stage
from quaver.engine.events import (
    ModelConverted,
    Planned,
    RulesWithoutEffect,
    SettingChanged,
    StageStarted,
    StartedFrom,
    Uncalibrated,
)
from quaver.engine.executors.base import Pool
from quaver.engine.executors.select import ExecutorSpec
from quaver.engine.inspection.diagnose import replayable
from quaver.engine.measurement_runner import OpenWorker
from quaver.engine.observers import Observer
from quaver.engine.probe import AdapterProbe, ProbeOptions
from quaver.engine.run.crashes import is_fatal
from quaver.engine.run.run import Run
from quaver.engine.run.run_setup import RunSetup
from quaver.engine.run.scheduling import Clock
from quaver.engine.scoring.judge import judge_snapshot
from quaver.engine.timing.cache import timing_cache
from quaver.engine.timing.cost_model import CostModel
from quaver.engine.timing.objective import Objective, for_target
from quaver.errors import HistoryError, SettingsError
from quaver.files.atomic import remove_orphans
from quaver.files.paths import expanded
from quaver.files.temporary import remove_orphans as remove_orphaned_folders
from quaver.history import UNCALIBRATED, Header, History, read_snapshot
from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.choices import from_choice, to_choices
from quaver.history.records.header import OPS_VERSION_KEY
from quaver.ops import Op, QuantConfig
from quaver.rules import apply_rules, rules_without_effect
from quaver.space import TuningSpace, smallest_first, without_bf16, without_calibration
from quaver.strategies import StartingFrom, Strategy
from quaver.types import CalibrationData, ExecutorLike, ModelLike

# The note that holds the configuration of `start_from`, so that a resumed run does not need the other snapshot.
NOTE = "start_from"


@dataclass(frozen=True)
class OpenRun:
    """A run whose workspace is open.

    Attributes:
        workspace: the folder of the run.
        history: records everything; new, or of the run that is resumed.
        observer: is told of events.
        clock: the time that the run has used.
    """

    workspace: Path
    history: History
    observer: Observer
    clock: Clock


@dataclass(frozen=True)
class RunRequest(OpenRun):
    """The run that the user wants, settled before the model is loaded.

    Attributes:
        config: the settings of the run.
        changes: what differs from the settings of the run that is resumed.
        model: the user's model.
        kind: the class of the adapter that accepts the model.
        data: the user's calibration data.
    """

    config: Config
    changes: list[SettingChanged]
    model: ModelLike
    kind: type[Adapter]
    data: CalibrationData

    @property
    def is_calibrated(self) -> bool:
        """Return True if there are ranges: from the calibration data, or from the run that is resumed."""
        header = self.history.header
        return self.data is not None if header is None else header.calibrated

    @property
    def best_path(self) -> Path:
        """Return the file of the best model."""
        return self.workspace / f"best_model{self.kind.suffix}"


@dataclass(frozen=True)
class Search:
    """The configurations to search, and the objective that decides.

    Attributes:
        space: the configurations to choose from.
        objective: decides between trials that meet the criterion.
        cost_model: the op times of another machine that the model is meant for; None for this machine.
    """

    space: TuningSpace
    objective: Objective
    cost_model: CostModel | None


def settle_request(opened: OpenRun, settings: ResolvedSettings, model: ModelLike, data: CalibrationData) -> RunRequest:
    """Complete the settings from the run that is resumed and from the framework of the model."""
    history = opened.history
    config, changes = settings_of_run(settings, history)
    data = replayable(data) if config.diagnosis else data
    model, data = import_model(
        expanded(model), data, opened.workspace, lambda: opened.observer(StageStarted(Stage.EXPORTING))
    )
    check_single(config.runtime)
    kind = adapter_for(model, config.framework, config.runtime)
    if history.header is None:
        quant_format = resolve_quant_format(kind, config.quant_format, config.framework)
    else:
        quant_format = recorded_quant_format(kind, history.run.settings)
    config = replace(config, quant_format=quant_format, portable=resolve_portable(kind, config.portable))
    if data is None and config.diagnosis:
        raise SettingsError(
            "diagnosis=True runs samples through the model: pass calib_dataloader, also to a resumed run, or use "
            "diagnosis=False"
        )
    return RunRequest(opened.workspace, history, opened.observer, opened.clock, config, changes, model, kind, data)


def executor_spec(config: Config, executor: ExecutorLike) -> ExecutorSpec:
    """Return how trials are evaluated. An executor replaces the backend of an earlier run."""
    isolate = config.isolate or config.trial_timeout is not None
    if executor is not None and config.resume is not None:
        return ExecutorSpec(config.n_jobs, threads=config.threads, executor=executor)
    return ExecutorSpec(config.n_jobs, config.backend, config.scheduler, isolate, config.threads, executor)


def with_width(request: RunRequest, pool: Pool | None) -> RunRequest:
    """Record the width, so that a resumed run makes the same trials with any number of workers."""
    width = request.config.width or (1 if pool is None else pool.jobs)
    return replace(request, config=replace(request.config, width=width)) if width > 1 else request


def load_model(request: RunRequest, stack: contextlib.ExitStack, objective: Objective) -> Adapter:
    """Load the model; `stack` closes it."""
    config, history = request.config, request.history
    request.observer(StageStarted(Stage.READING))
    options = AdapterOptions(
        request.workspace,
        config.threads,
        config.quant_format,
        config.optimise_float,
        config.batch,
        left_out=() if history.header is None else stored_skipped_rewrites(history.header.calibration),
        portable=bool(config.portable),
        ops_version=ops_version_of(history.header, {} if history.header is None else history.run.settings),
        small_files=objective.traits.rewards_small_files,
    )
    remove_orphans(request.best_path)
    remove_orphaned_folders()
    adapter = stack.enter_context(contextlib.closing(load_with(request.kind, request.model, options)))
    check_batch(adapter.inputs, config.batch)
    return adapter


def check_rules(request: RunRequest, adapter: Adapter, objective: Objective) -> CostModel | None:
    """Refuse rules that leave nothing to quantize, and a cost model of another model, before calibration starts.

    Returns:
        The cost model; None for this machine.
    """
    ops = ops_by_rules(request.config, adapter, objective)
    if without_effect := rules_without_effect(ops, request.config.op_type_dict):
        request.observer(RulesWithoutEffect(without_effect))
    if not request.is_calibrated:
        _check_uncalibrated(TuningSpace(without_calibration(ops)))
    return load_cost_model(request.config.cost_model, adapter, request.history, request.config.batch)


def ops_by_rules(config: Config, adapter: Adapter, objective: Objective) -> tuple[Op, ...]:
    """Return the ops of a model with the choices that the user's rules leave.

    Where small files count, the default choice of each op is the smallest one, and ops that only get smaller take part.
    """
    offered = adapter.ops()
    if objective.traits.rewards_small_files:  # before the rules, which may remove the choice that identifies a weight
        offered = smallest_first(offered)
    float_types = {item.kind for item in abilities.unquantizable(adapter)} if config.op_type_dict else ()
    ops = apply_rules(offered, config.op_name_dict, config.op_type_dict, float_types)
    if not any(op.quantizable for op in ops):
        raise SettingsError("op_name_dict and op_type_dict leave nothing to quantize")
    return tuple(replace(op, smaller=()) for op in ops)


def _check_uncalibrated(space: TuningSpace) -> None:
    if not space.quantizable:
        raise SettingsError(
            "calib_dataloader is needed for this model: none of its ops can run in 8 bits without calibrated ranges. A "
            "few hundred typical inputs are enough, without labels"
        )
    if not space.default_config().quantized_ops:
        raise SettingsError(
            "without calibration data nothing in this model gets faster in 8 bits, only smaller: pass calib_dataloader "
            '(a few hundred typical inputs, without labels), or objective="size"'
        )


def calibrate_model(request: RunRequest, adapter: Adapter) -> None:
    """Calibrate the model and begin the history, or restore the calibration of the run that is resumed."""
    history, header = request.history, request.history.header
    for change in changed_versions(history.run.versions, versions_of(adapter)):
        request.observer(change)
    if header is None:
        _begin_history(request, adapter)
    else:
        request.clock.go_on(history)
        check_same_ops(adapter, header, history.path)
        history.start_run(request.config.to_dict(), versions_of(adapter))
        restore(adapter, header, history.path)
        history.forget_trailing_failures(lambda config: is_fatal(history, config))
        if request.data is not None:
            adapter.keep_probe_samples(request.data)
    check_timing_batch(adapter, request.config.batch)


def _begin_history(request: RunRequest, adapter: Adapter) -> None:
    config, history = request.config, request.history
    if request.data is None and config.resume is not None:
        raise SettingsError(f"{history.path} ended before calibration was done: pass calib_dataloader to resume it")
    if request.data is None:
        calibration = dict(UNCALIBRATED)
        calibration["comparison"] = abilities.compare_with_unmodified(adapter).to_dict()
        adapter.restore(calibration)
    else:
        on_this_machine = config.cost_model is None  # a cost model stands for another one
        calibration = calibrate(adapter, config, request.data, request.observer, request.clock, on_this_machine)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    calibration[OPS_VERSION_KEY] = adapter.options.ops_version
    history.begin(Header(adapter.fingerprint, adapter.name, adapter.ops(), calibration, now))
    history.start_run(config.to_dict(), versions_of(adapter))


def build_search(request: RunRequest, adapter: Adapter, objective: Objective, cost_model: CostModel | None) -> Search:
    """Build the tuning space and the objective of a calibrated model."""
    # Not the ops of `check_rules`: a restored calibration of an older version removes the repairs it has no data for.
    ops = ops_by_rules(request.config, adapter, objective)
    ops = ops if cost_model is None else without_bf16(ops)  # a cost model has no times in bf16
    space = TuningSpace(ops if request.is_calibrated else without_calibration(ops))
    space = space.without(abilities.ops_with_mask_values(adapter))
    if not space.quantizable:
        raise SettingsError(
            "every op that can be quantized holds mask values (stand-ins for infinity), so all must stay in fp32"
        )
    if objective.measures_every_trial and not adapter.probe_samples:
        raise SettingsError(
            "`max_latency` is measured on calibration samples, and there are none: pass calib_dataloader, also to a "
            "resumed run"
        )
    if cost_model is not None and request.config.cost_model is not None:
        cost_model = with_conversions(cost_model, request.config.cost_model, adapter, request.history)
        objective = for_target(objective, cost_model.predict)
    _note_conversions(request, adapter)
    if not request.is_calibrated:
        request.observer(Uncalibrated(len(space.quantizable), len(space) - len(space.quantizable)))
    return Search(space, objective, cost_model)


def _note_conversions(request: RunRequest, adapter: Adapter) -> None:
    """Tell the observer what was converted when the model was loaded, and note it once."""
    converted = abilities.conversions(adapter)
    for conversion in converted:
        request.observer(ModelConverted(conversion))
    if converted != conversions(request.history.notes):
        request.history.note(CONVERSIONS, list(converted))


def run_setup(request: RunRequest, adapter: Adapter, search: Search) -> RunSetup:
    """Return everything that a run needs."""
    config = request.config
    return RunSetup(
        adapter,
        search.space,
        config.criterion,
        config.budget,
        search.objective,
        request.history,
        request.observer,
        request.clock,
        config.width or 1,
        config.early_stop_delta if config.early_stop else None,
    )


def plan_strategy(request: RunRequest, search: Search, strategy: Strategy) -> Strategy:
    """Let a strategy begin with the configuration of `start_from`, and announce how many trials it needs."""
    config, space = request.config, search.space
    first = first_config(config.start_from, space, request.history, request.observer)
    if first is not None:
        strategy = StartingFrom(first, strategy)
    worst_case = strategy.worst_case(space)
    evaluations = config.max_trials if worst_case is None else min(worst_case, config.max_trials)
    quantizable_count, first_success = len(space.quantizable), strategy.first_success(space)
    request.observer(Planned(strategy.name, quantizable_count, evaluations, first_success, config.timeout))
    return strategy


def build_probe(request: RunRequest, search: Search, run: Run, open_worker: OpenWorker) -> AdapterProbe:
    """Build the probe, through which a strategy measures without labels."""
    config, adapter = request.config, run.adapter
    built_by = config.quant_format, config.optimise_float, *adapter.options.left_out
    cache = timing_cache(adapter, *built_by) if config.timing_cache else None
    return AdapterProbe(
        adapter,
        search.space,
        request.history,
        request.observer,
        ProbeOptions(run.out_of_time, search.cost_model, cache, open_worker, config.effort),
    )


def first_config(
    start_from: str | os.PathLike[str] | None, space: TuningSpace, history: History, observer: Observer
) -> QuantConfig | None:
    """Return the configuration to try first: the winner of another run, with new ops at their default choice.

    Args:
        start_from: the snapshot or the workspace of the other run.
        space: the configurations to choose from.
        history: keeps the configuration, so that a resumed run does not need the other snapshot.
        observer: is told how much of the winner is used.

    Returns:
        The configuration; None without `start_from`.
    """
    noted = _noted_config(history, space)
    if noted is not None or start_from is None:
        return noted
    snapshot = read_snapshot(Path(expanded(start_from)))
    best = judge_snapshot(snapshot).best
    if best is None:
        raise HistoryError(f"`start_from`: {snapshot.path} has no trial with a score to start from")
    kinds = {op.name: op.kind for op in snapshot.header.ops}
    same = [op for op in space.ops if kinds.get(op.name) == op.kind]
    if not same:
        raise SettingsError(
            f"`start_from`: no op of this model has the name and the kind of an op in {snapshot.path}; is it a run of "
            "an earlier version of this model?"
        )
    offered = [op.name for op in same if best.config[op.name] in op.choices]
    not_offered = tuple(op.name for op in same if op.name not in set(offered))
    config = space.default_config().replace({name: best.config[name] for name in offered})
    history.note(NOTE, {name: from_choice(choice) for name, choice in config.items()})
    observer(StartedFrom(snapshot.path, best.number, len(offered), len(space.ops), not_offered))
    return config


def _noted_config(history: History, space: TuningSpace) -> QuantConfig | None:
    noted = history.notes.get(NOTE)
    if not isinstance(noted, dict) or [*noted] != [op.name for op in space.ops]:
        return None
    try:
        config = QuantConfig((name, to_choices([choice])[0]) for name, choice in noted.items())
    except MalformedRecord:
        return None
    return config if space.allows(config) else None


@contextlib.contextmanager
def resume_hint(history: History) -> Iterator[None]:
    """Add to an error how to resume the run, if there is something to resume."""
    try:
        yield
    except BaseException as error:
        if history.baseline is not None and not isinstance(error, HistoryError):
            error.add_note(f"Everything is in {history.path}; continue with fit(..., resume={str(history.path)!r})")
        raise
