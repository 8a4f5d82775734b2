"""Finish a run: save the best model, examine it, note how the run ended, and build the result."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quaver.adapters import Model, abilities
from quaver.adapters.calibration.stored import stored_comparison
from quaver.api.cost_model import target_of
from quaver.api.display.format import conversions
from quaver.api.result import TuneResult
from quaver.api.result_warnings import run_warnings, skipped_measurements
from quaver.api.setup import RunRequest
from quaver.budget import StopReason
from quaver.engine.inspection.best_model import InspectedRun, note_inside
from quaver.engine.inspection.diagnose import diagnose_run
from quaver.engine.inspection.output_drift import drift_of, note_drift
from quaver.engine.observers import StageTimes
from quaver.engine.probe import AdapterProbe, OutOfTime
from quaver.engine.provenance import add_provenance
from quaver.engine.run.crashes import last_step
from quaver.engine.run.finish import note_ending
from quaver.engine.run.run import Run
from quaver.engine.timing.steps import note_steps, steps_of
from quaver.errors import HistoryError
from quaver.ops import QuantConfig
from quaver.processors import NOTE as PORTABILITY
from quaver.processors import Bf16Part, Portability, noted_portability
from quaver.trial import Trial
from quaver.unquantizable import from_notes

if TYPE_CHECKING:
    from quaver.diagnosis import Diagnosis

log = logging.getLogger(__name__)


def finish_run(run: Run, request: RunRequest, probe: AdapterProbe, times: StageTimes) -> TuneResult:
    """Return the result of a run that is over.

    Args:
        run: the run.
        request: the model, the settings and the data of the run.
        probe: knows which ops end the process.
        times: the seconds of each stage, which are noted.

    Raises:
        HistoryError: the fp32 model has no score, so there is no result.
    """
    judge, history, reason = run.judge, run.history, run.reason
    is_unscored = reason is StopReason.UNSCORED
    if (judge.baseline is None and not is_unscored) or reason is None:
        raise HistoryError("the fp32 model has no score yet, so there is no result: ask for trial 0 and tell its score")
    best = judge.best
    model_path, model = (None, None) if best is None else _save_best(run, request, best)
    diagnosis = _diagnose(run, request, best) if request.config.diagnosis else None
    if best is not None and request.config.report and reason is not StopReason.INTERRUPTED:
        _examine(run, request, probe, best, diagnosis)
    portability = None if best is None else _portability(run, best, probe)
    _note_ending(run, request, times)
    return TuneResult(
        best=best,
        baseline=judge.baseline,
        met=None if is_unscored and judge.baseline is None else judge.met,
        reason=reason,
        trials=judge.trials,
        criterion=judge.criterion,
        objective=judge.objective,
        workspace=request.workspace,
        history_path=history.path,
        model_path=model_path,
        model=model,
        diagnosis=diagnosis,
        unquantizable=from_notes(history.notes),
        conversions=conversions(history.notes),
        comparison=None if history.header is None else stored_comparison(history.header.calibration),
        target=target_of(history.notes) if request.config.cost_model is not None else "",
        fp32_measured={} if history.baseline is None else dict(history.baseline.measured),
        fp32=history.baseline,
        losses=() if best is None else tuple(judge.losses(best)),
        confidence=None if best is None else judge.confidence(best),
        confirmations=judge.confirmations,
        output_drift=drift_of(history.notes, best),
        step_latencies=steps_of(history.notes, best),
        warnings=run_warnings(judge, history.notes, history.baseline),
        skipped_measurements=skipped_measurements(history.notes),
        portability=portability,
    )


def _save_best(run: Run, request: RunRequest, best: Trial) -> tuple[Path, Model] | tuple[None, None]:
    """Save the best model into the workspace and load it, unless an earlier attempt crashed the process."""
    consequence = f"quaver.recover writes trial {best.number} to a file"
    with last_step(run.history, f"saving trial {best.number}", consequence) as may_run:
        if not may_run:
            return None, None
        built = run.adapter.assemble(best.config)
        add_provenance(built, run.history, best)
        path = built.save(request.best_path)
        model = run.adapter.load_saved(path)
        _compare_outputs(run, best, built)
        note_steps(run.adapter, best, built, run.history)
        return path, model


def _compare_outputs(run: Run, best: Trial, model: Model) -> None:
    """Note how far the outputs of the best model are from the float model's. Ctrl-C skips that."""
    if run.reason is StopReason.INTERRUPTED:
        return
    try:
        note_drift(run.adapter, best, model, run.history)
    except KeyboardInterrupt:
        log.warning("interrupted while comparing outputs; the result of the run is complete")


def _diagnose(run: Run, request: RunRequest, best: Trial | None) -> Diagnosis | None:
    subject = "no trial" if best is None else f"trial {best.number}"
    with last_step(run.history, f"diagnosing {subject}", "the result has no diagnosis") as may_run:
        if not may_run:
            return None
        return diagnose_run(run.adapter, run.space, best, request.data, request.workspace, request.observer)


def _examine(run: Run, request: RunRequest, probe: AdapterProbe, best: Trial, diagnosis: Diagnosis | None) -> None:
    """Note what the page and the report show of the best model. Ctrl-C skips that."""
    try:
        name = f"looking into trial {best.number}"
        with last_step(run.history, name, "the page and the report show less of it") as may_run:
            if may_run:
                threads = request.config.threads
                inspected = InspectedRun(
                    run.adapter, run.space, run.history, request.observer, threads, probe.fatal_ops
                )
                note_inside(inspected, best, diagnosis)
    except KeyboardInterrupt:
        log.warning("interrupted while examining the best model; the result of the run is complete")


def _portability(run: Run, best: Trial, probe: AdapterProbe) -> Portability:
    """Return on which processors the verdict holds, and note it once."""
    history = run.history
    portability = abilities.portability_of(run.adapter, best.config)
    if best.config.bf16_ops:
        part = Bf16Part(len(best.config.bf16_ops), run.adapter.bf16_setting)
        is_interrupted = run.reason is StopReason.INTERRUPTED
        portability = replace(portability, bf16=part if is_interrupted else _with_figures(part, best.config, probe))
    if history.notes.get(PORTABILITY) != portability.to_dict():
        try:
            history.note(PORTABILITY, portability.to_dict())
        except HistoryError as error:
            log.warning("the processor that the scores were measured on could not be noted: %s", error)
    return noted_portability(history.notes, best.model_hash) or portability


def _with_figures(part: Bf16Part, config: QuantConfig, probe: AdapterProbe) -> Bf16Part:
    """Add what the model gives with bf16 and without it; nothing if there are no samples or no time."""
    if not probe.has_samples:
        return part
    configs = [config, config.fallback(*config.bf16_ops)]
    try:
        (latency, fp32_latency), (error, fp32_error) = probe.speeds(configs), probe.output_errors(configs)
    except OutOfTime:
        return part
    return replace(part, latency=latency, fp32_latency=fp32_latency, error=error, fp32_error=fp32_error)


def _note_ending(run: Run, request: RunRequest, times: StageTimes) -> None:
    model = os.fspath(request.model) if isinstance(request.model, str | os.PathLike) else ""
    assert run.reason is not None
    try:
        note_ending(run.history, run.reason, times.stages, request.clock.seconds, model)
    except HistoryError as error:
        log.warning("how the run ended could not be noted: %s", error)
