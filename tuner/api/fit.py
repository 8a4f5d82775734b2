"""`fit`: the road of one run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter, AdapterOptions, adapter_for
from quaver.api.result import TuneResult
from quaver.api.run_log import run_log
from quaver.api.settings import Config, make_config
from quaver.api.workspace import open_workspace, write_settings
from quaver.engine.diagnosing import diagnose_run
from quaver.engine.events import (
    Observer,
    Observers,
    Planned,
    Progressed,
    RunFinished,
    Stage,
    StageStarted,
    make_observers,
)
from quaver.engine.loop import Loop
from quaver.engine.objective import make_objective
from quaver.engine.probing import AdapterProbe
from quaver.engine.same_model import check_same_model
from quaver.errors import HistoryError, SettingsError
from quaver.history import Header, History
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.strategies import make_strategy


def fit(
    model: Any,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    calib_dataloader: Any = None,
    eval_func: Callable[[Any], Any],
    observer: Observer | Iterable[Observer] | None = None,
    **settings: Any,
) -> TuneResult:
    """Find the configuration that is best by the objective and loses no more accuracy than the criterion allows.

    Args:
        model: the float model: a path, an `onnx.ModelProto`, bytes, or what an installed adapter takes.
        config: a YAML file, a dict or a `Config`; keywords override it.
        calib_dataloader: an iterable of batches (arrays, tuples, dicts by input name, or (input, label) pairs), an
            array, or a dict of arrays. Not needed for a resumed run, unless its strategy measures ops.
        eval_func: called with a model object, returns the score as one number.
        observer: called with an event for all that happens (see `quaver.Observer`); a list for several.
        settings: any field of `Config`: strategy, relative, timeout, max_trials, op_name_dict, ...

    Returns:
        A `TuneResult`, also when nothing meets the criterion (`result.met` is False) and after Ctrl-C.
    """
    chosen = make_config(config, **settings)
    if not callable(eval_func):
        raise SettingsError(f"eval_func must be a function of the model that returns a number, not {eval_func!r}")
    if calib_dataloader is None and chosen.resume is None:
        raise SettingsError("calib_dataloader is needed: a few hundred typical inputs, without labels")
    if calib_dataloader is None and chosen.diagnosis:
        raise SettingsError("diagnosis=True runs samples through the model: pass calib_dataloader to a resumed run too")
    kind = adapter_for(model, chosen.framework)
    chosen = replace(chosen, quant_format=kind.quant_format(chosen.quant_format, chosen.framework))
    observers = make_observers(observer)
    strategy = make_strategy(chosen.strategy, chosen.strategy_options)
    strategy.seed = chosen.seed
    objective = make_objective(chosen.objective)
    strategy.objective = objective.name
    with open_workspace(chosen) as (folder, history), run_log(folder) as log:
        watch = Observers(log, *observers)
        watch(StageStarted(Stage.READING))
        options = AdapterOptions(folder, chosen.threads, chosen.quant_format)
        with contextlib.closing(kind.open(model, options)) as adapter:
            space = TuningSpace(apply_rules(adapter.inspect(), chosen.op_name_dict, chosen.op_type_dict))
            if not space.quantizable:
                raise SettingsError("op_name_dict and op_type_dict leave nothing to quantize")
            with _pointing_to(history):
                prepare(adapter, history, chosen, calib_dataloader, watch)
                write_settings(folder, chosen)
                loop = Loop(adapter, space, eval_func, chosen.criterion, chosen.budget, objective, history, watch)
                name = strategy.name or type(strategy).__name__
                worst = strategy.worst_case(space)
                most = chosen.max_trials if worst is None else min(worst, chosen.max_trials)
                watch(Planned(name, len(space.quantizable), most, strategy.first_success(space), chosen.timeout))
                reason = loop.run(strategy, AdapterProbe(adapter, space, history, watch))
                result = _finish(loop, adapter, folder, reason)
                if chosen.diagnosis:
                    found = diagnose_run(adapter, space, result.best, calib_dataloader, folder, watch)
                    result = replace(result, diagnosis=found)
        watch(RunFinished(result.reason, result.best, result.baseline, result.evaluations, str(result)))
    return result


def prepare(adapter: Adapter, history: History, config: Config, data: Any, watch: Observer) -> None:
    """Calibrate and begin the history, or take the calibration from a history that was begun before."""
    header = history.header
    if header is None:
        if data is None:
            raise SettingsError(f"{history.path} ended before calibration was done: pass calib_dataloader to resume it")
        watch(StageStarted(Stage.CALIBRATING))
        calibration = adapter.calibrate(
            data,
            config.calibration_sampling_size,
            lambda done, total: watch(Progressed(Stage.CALIBRATING, done, total)),
        )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        history.begin(
            Header(
                adapter.fingerprint, adapter.name, adapter.versions, config.plain(), adapter.inspect(), calibration, now
            )
        )
        return
    check_same_model(adapter, header, history.path)
    before = adapter.recorded_format(header.settings)
    if before != config.quant_format:
        raise HistoryError(f"{history.path} was made with quant_format={before!r}, not {config.quant_format!r}")
    adapter.restore(header.calibration)
    history.forget_trailing_failures()
    if data is not None:
        adapter.keep(data)


@contextlib.contextmanager
def _pointing_to(history: History) -> Any:
    """Let an error on the way say how to go on."""
    try:
        yield
    except BaseException as error:
        if history.baseline is not None and not isinstance(error, HistoryError):
            error.add_note(f"Everything so far is in {history.path}; go on with fit(..., resume={str(history.path)!r})")
        raise


def _finish(loop: Loop, adapter: Adapter, folder: Path, reason: Any) -> TuneResult:
    best = loop.best()
    model_path = model = None
    if best is not None:
        built = adapter.rebuild(best.config)
        model_path = built.save(folder / f"best_model{adapter.suffix}")
        model = adapter.load(model_path)
    baseline = loop.baseline()
    assert baseline.score is not None
    return TuneResult(
        best=best,
        baseline=baseline.score,
        met=best is not None and best.met,
        reason=reason,
        trials=tuple(loop.trials()),
        criterion=loop.criterion,
        objective=loop.objective,
        workspace=folder,
        history_path=loop.history.path,
        model_path=model_path,
        model=model,
    )
