"""The summary that `quaver tune` prints at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from quaver import formatting
from quaver.api.config.config import Config
from quaver.api.display import diagnosis as diagnosis_display
from quaver.api.display import tables
from quaver.api.display.format import latency_figures, predicted_phrase
from quaver.api.display.html import WARNED
from quaver.api.result import TuneResult
from quaver.api.result_warnings import drift_phrase, no_gain_summary
from quaver.api.run_log import LOG
from quaver.budget import StopReason
from quaver.command import sentences
from quaver.engine.scoring.benefit import LATENCY
from quaver.engine.timing.objective import Latency
from quaver.history import Snapshot, read_snapshot
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.trial import Trial

# Ops that the summary names; `quaver show` lists all (judgement: a summary fits on one screen).
MAX_LISTED_OPS = 10
# Rows of the diagnosis tables that the summary prints; the files hold all.
MAX_TABLE_ROWS = 10


class FilePaths(NamedTuple):
    """The files of a command line.

    Attributes:
        model: the float model.
        wanted: the path of -o.
        saved: the path of the saved model; None if it was not saved.
        calib: the calibration data, if there are any.
    """

    model: str
    wanted: Path | None
    saved: Path | None
    calib: str | None = None


def write(result: TuneResult, config: Config, seconds: float, paths: FilePaths, again: Callable[..., str]) -> None:
    """Print the summary of a run to stdout. `again` returns the command line that resumes it with changes."""
    snapshot = read_snapshot(result.history_path)
    good = result.met is not False and result.best is not None and not result.warnings
    tables.line(tables.cell(verdict(result), tables.MET if good else tables.NOT_MET))
    for text in result.warnings:
        tables.line(tables.cell(f"{WARNED}{text}", tables.NOT_MET))
    print()
    for label, text in (*figures(result, snapshot, config, seconds), *files(result, paths)):
        tables.line(f"  {label:<14}", tables.cell(text, _style(label, text)))
    if result.diagnosis is not None:
        print()
        diagnosis_display.write(result.diagnosis, MAX_TABLE_ROWS)
        print(f"The tables are in {sentences.path(result.workspace)}.")
    advice = list(next_steps(result, paths, again))
    if advice:
        print("\nNext:")
        for what, command in advice:
            print(diagnosis_display.folded(what, "  ") + (f"\n    {command}" if command else ""))


def _style(label: str, text: str) -> str:
    """Return the colour of a line: fp32 ops and slower latencies are marked."""
    if label == "moved to fp32":
        return tables.FP32
    return tables.SLOWER if label == "latency" and "SLOWER" in text else ""


def verdict(result: TuneResult) -> str:
    """Return the verdict in one sentence."""
    best, allowed = result.best, formatting.allowed(result.criterion)
    if best is None:
        failed = sum(trial.failed for trial in result.trials)
        outcome = f"all {failed} trials failed" if failed else "no trial was run"
        return f"NO RESULT: {outcome} ({result.reason})."
    loss = formatting.loss_is(best.loss, result.criterion)
    no_gain = no_gain_summary(result.benefit)
    but = f", BUT THE MODEL IS {no_gain.upper()}" if no_gain else ""
    if result.met is None:
        return "Not evaluated: the model was chosen without labels. Pass --eval to see whether it is good enough."
    if best.config.is_fp32:
        target = result.criterion.called
        met = f"meets the {target}" if result.met else f"does not meet the {target} either"
        return (
            f"NOTHING WAS QUANTIZED: the best trial runs every op in fp32 ({result.reason}). It {met}, and it saves "
            "neither time nor space."
        )
    if best.met and not result.met:
        other = "but it fails on the data of --confirm" if result.confirmed is False else "but it is not confirmed"
        return f"CRITERION NOT MET ON OTHER DATA: {loss} here, {other} ({result.reason})."
    if result.criterion.target_budget is not None:
        outcome = "Budget kept" if result.met else "BUDGET NOT KEPT, even by the nearest trial"
        return f"{outcome}{but}: {result.criterion}; {loss} ({result.reason})."
    if result.met:
        reason = "" if result.reason is StopReason.MET else f" ({result.reason})"
        return f"Criterion met{but}: {loss}, and {allowed} is allowed{reason}."
    return f"CRITERION NOT MET: {loss} at best, and {allowed} is allowed ({result.reason})."


def figures(result: TuneResult, snapshot: Snapshot, config: Config, seconds: float) -> Iterator[tuple[str, str]]:
    """Yield the figures with their labels."""
    best, criterion = result.best, result.criterion
    if result.met is not None:
        yield "fp32 score", formatting.score(result.baseline)
    if best is not None and not best.unscored:
        yield "best score", f"{formatting.score(best.score)} (trial {best.number} of {len(result.trials)})"
        yield "loss", f"{formatting.loss(best.loss, criterion)} (allowed: {formatting.allowed(criterion)})"
        if criterion.target_budget is not None:
            yield "budget", str(criterion)
        for index, line in enumerate(result.trust):
            yield "" if index else "confidence", line
    drift = drift_phrase(result.output_drift)
    if drift:
        yield "outputs", drift.removeprefix("outputs ")
    if best is not None:
        yield "ops", ", ".join(f"{count} {precision}" for precision, count in best.config.counts.items())
        yield from fallbacks(best, snapshot, config)
        if "predicted_latency" in best.measured:
            yield "predicted", predicted_phrase(best.measured, result.target).removeprefix("predicted ")
        if "latency" in best.measured:
            yield "latency", formatting.latency_ratio(best.measured["latency"], Latency().margin(best))
            if "latency_ms" in best.measured:
                yield "", latency_figures(best.measured, result.fp32_measured)
        if result.objective.name in best.measured and result.objective.name != Latency.name:
            yield "objective", f"{best.measured[result.objective.name]:.6g}"
        if result.step_latencies is not None:
            yield "steps", str(result.step_latencies)
        base = snapshot.baseline
        if base is not None and base.model_size:
            sizes = f"{formatting.file_size(best.model_size)} vs {formatting.file_size(base.model_size)}"
            yield "size", f"{best.model_size / base.model_size:.2f}x fp32 ({sizes})"
    for index, fact in enumerate(sentences.about_the_model(snapshot, "" if best is None else best.model_hash)):
        yield "" if index else "the model", fact
    included = " including the fp32 baseline" if result.evaluations else ""
    yield "evaluations", f"{result.evaluations}{included}; this run took {formatting.duration(seconds)}"
    failed = [trial for trial in result.trials if trial.failed]
    if failed:
        yield "failed", f"{len(failed)} trial(s), the last one with {formatting.last_line(failed[-1].error)}"


def fallbacks(best: Trial, snapshot: Snapshot, config: Config) -> Iterator[tuple[str, str]]:
    """Yield the ops that tuning moved to fp32, and the number of ops that were in fp32 from the start."""
    space = TuningSpace(apply_rules(snapshot.header.ops, config.op_name_dict, config.op_type_dict, float_types=None))
    start = frozenset(space.default_config().fp32_ops)
    moved = [name for name in best.config.fp32_ops if name not in start]
    kinds = {op.name: op.kind for op in space.ops}
    for index, name in enumerate(moved[:MAX_LISTED_OPS]):
        yield "" if index else "moved to fp32", f"{formatting.printable(name)} ({formatting.printable(kinds[name])})"
    if len(moved) > MAX_LISTED_OPS:
        yield "", f"... and {len(moved) - MAX_LISTED_OPS} more"
    unchanged = len(start.intersection(best.config.fp32_ops))
    if unchanged:
        yield "kept in fp32", f"{unchanged} by your rules or because int8 brings no gain"


def files(result: TuneResult, paths: FilePaths) -> Iterator[tuple[str, str]]:
    """Yield the paths of the files."""
    if paths.saved is not None:
        yield "model", sentences.path(paths.saved)
    elif result.model_path is not None:
        yield "model", sentences.path(result.model_path)
    if paths.wanted is not None and paths.saved is None:
        yield "not written", f"{sentences.path(paths.wanted)}, because no model meets the {result.criterion.called}"
    yield "history", sentences.path(result.history_path)
    yield "log", sentences.path(result.workspace / LOG)


def next_steps(result: TuneResult, paths: FilePaths, again: Callable[..., str]) -> Iterator[tuple[str, str]]:
    """Yield what to try next, each with a command line if there is one."""
    best, history = result.best, result.workspace
    if result.reason is StopReason.INTERRUPTED:
        yield "resume the interrupted run", again()
    failed = [trial for trial in result.trials if trial.failed]
    if failed and (best is None or result.reason is StopReason.FAILURES):
        yield "see what went wrong", sentences.command("quaver", "show", history, failed[-1].number)
        yield "resume after fixing it", again()
    if best is None:
        return
    yield "see all trials", sentences.command("quaver", "history", history)
    yield "see how the best one runs each op", sentences.command("quaver", "show", history, best.number)
    if result.met is None:
        yield "check whether it is accurate enough: tune with an eval_func", again("--eval", "my_eval.py:accuracy")
        yield "see which ops lose accuracy in int8, and why", diagnose(result, paths)
    elif not result.met:
        yield "see which ops lose accuracy in int8, and why", diagnose(result, paths)
        yield from _when_not_met(result, again)
        if paths.saved is None:
            out = paths.wanted or f"trial{best.number}{'' if result.model_path is None else result.model_path.suffix}"
            save = sentences.command("quaver", "recover", paths.model, history, best.number, "-o", out)
            yield "save the best model anyway (or tune with --save-anyway)", save
    elif result.reason is StopReason.MET and best.config.fp32_ops:
        yield "use ten more minutes to find a faster one", again("--timeout", 600)
    compared = result.benefit
    if compared is not None and compared.figure == LATENCY and not compared.is_gain:
        slower = "int8 is slower" if compared.is_loss else "int8 is not faster"
        yield (
            f"{slower} than fp32 here: tune for the target machine (--cost-model), or for size",
            again("--objective", "size"),
        )


def diagnose(result: TuneResult, paths: FilePaths) -> str:
    """Return the command that diagnoses the best trial, or the first trial if the best has no int8 op."""
    assert result.best is not None
    trial = result.best if result.best.config.quantized_ops else result.trials[0]
    data = paths.calib or "DATA"
    words = ("diagnose", paths.model, "--calib", data, "--history", result.workspace, "--trial", trial.number)
    return sentences.command("quaver", *words)


def _when_not_met(result: TuneResult, again: Callable[..., str]) -> Iterator[tuple[str, str]]:
    if result.reason is StopReason.MAX_TRIALS:
        yield "allow more trials", again("--max-trials", 2 * len(result.trials))
    elif result.reason is StopReason.TIMEOUT:
        yield "stop at the first success, however long it takes", again("--timeout", 0)
    elif result.reason is StopReason.EXHAUSTED:
        yield "try another strategy", sentences.command("quaver", "strategies")
    if result.criterion.target_budget is not None:
        yield "allow more with --max-latency or --max-size", ""
        return
    yield "allow a larger loss with --relative or --absolute, or pass more representative calibration samples", ""
