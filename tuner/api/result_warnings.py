"""The warnings of a result: `TuneResult.warnings`, also on the page, in the report and in JSON.

They follow from the judged trials and the notes of a history, so a later reader of the snapshot gets the same warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quaver import formatting
from quaver.api.display.format import unconfirmed_phrase
from quaver.engine.inspection.output_drift import OutputDrift, drift_of
from quaver.engine.run.crashes import DIED
from quaver.engine.run.finish import noted_warnings
from quaver.engine.scoring.benefit import LATENCY, PREDICTED, SIZE, Benefit, benefit
from quaver.engine.scoring.judge import Judge
from quaver.formatting import milliseconds
from quaver.strategies.steps.tuning import TUNING
from quaver.trial import Trial
from quaver.types import PlainMapping

# Characters of an error, and measurements, that a warning shows. Judgement: a warning is a sentence or two.
MAX_ERROR = 500
MAX_LISTED = 3


def warn_of_failed_trials(trials: Sequence[Trial]) -> str | None:
    """Return a sentence with the first error if every trial with quantized ops failed."""
    quantized = [trial for trial in trials if trial.config.quantized_ops]
    if not quantized or not all(trial.failed for trial in quantized):
        return None
    first = quantized[0]
    error = formatting.last_line(first.error) or "no reason is recorded"
    if len(error) > MAX_ERROR:
        error = f"{error[:MAX_ERROR]}..."
    which = "the only quantized trial" if len(quantized) == 1 else f"all {len(quantized)} quantized trials"
    return f"{which} failed, so no quantized model has a score. The first error, in trial {first.number}: {error}"


def warn_of_batch_dependence(best: Trial | None) -> str | None:
    """Return a sentence if ops of the best trial take their ranges from each batch as the model runs."""
    count = 0 if best is None else sum(pick.mode == "dynamic" for pick in best.config.values())
    if not count:
        return None
    ops = "1 op takes its range" if count == 1 else f"{count} ops take their ranges"
    return (
        f"{ops} from each batch as the model runs (dynamic mode), so outputs and score depend on how samples are "
        "batched: evaluate with the batch size that is deployed"
    )


def warn_of_skipped_measurements(skipped: Sequence[str]) -> str | None:
    """Return a sentence if measurements were skipped because they ended their process."""
    if not skipped:
        return None
    listed = "; ".join(formatting.printable(what) for what in skipped[:MAX_LISTED])
    more = f"; and {len(skipped) - MAX_LISTED} more" if len(skipped) > MAX_LISTED else ""
    count = "1 measurement" if len(skipped) == 1 else f"{len(skipped)} measurements"
    return f"{count} ended the process every time, so these candidates were skipped: {listed}{more}"


# The advice for a model that is no better than the float model, by the figure that it was tuned for.
ADVICE = {
    LATENCY: "Deploy the float model on this machine; to tune for another machine pass its `cost_model`, to tune for "
    'the file size pass objective="size"',
    PREDICTED: "Deploy the float model on that machine",
    SIZE: "Deploy the float model",
}
# The note of measured times relative to fp32, by the fingerprint of the configuration.
SPEEDS = "probe.speed"
# Characters of a recorded warning that are shown, because a damaged snapshot may hold long ones.
MAX_LENGTH = 1000


def run_warnings(judge: Judge, notes: PlainMapping, fp32: Trial | None) -> tuple[str, ...]:
    """Return the warnings of a run, a sentence or two each, the most serious first.

    Args:
        judge: the judged trials.
        notes: the notes of the history; `quaver.engine.run.finish.note_warning` adds warnings there.
        fp32: the float model's trial.
    """
    return tuple(formatting.paragraph(text)[:MAX_LENGTH] for text in _warnings(judge, notes, fp32))


def _warnings(judge: Judge, notes: PlainMapping, fp32: Trial | None) -> Iterator[str]:
    best = judge.best
    if failed := warn_of_failed_trials(judge.trials):
        yield failed
    unconfirmed = unconfirmed_phrase(best, judge.met, judge.confirmations)
    if best is not None and unconfirmed:
        yield f"trial {best.number} is not confirmed, so the criterion is not met: {unconfirmed}"
    if best is not None and best.config.is_fp32:
        yield f"trial {best.number} runs every op in fp32: nothing was quantized. Deploy the float model"
    elif best is not None:
        compared = benefit(best, judge.objective, fp32)
        if compared is not None and not compared.is_gain:
            searched = timed_phrase(notes, best) if compared.figure == LATENCY else ""
            yield f"trial {best.number} {no_gain_phrase(compared)}. {searched}{ADVICE[compared.figure]}"
    drift = drift_of(notes, best)
    if drift is not None and drift.far_off and (judge.met or judge.baseline is None):
        yield f"trial {drift.trial}: {far_off_phrase(drift)}"
    if skipped := warn_of_skipped_measurements(skipped_measurements(notes)):
        yield skipped
    yield from noted_warnings(notes).values()


def skipped_measurements(notes: PlainMapping) -> tuple[str, ...]:
    """Return the measurements that were skipped because they ended their process."""
    noted = notes.get(DIED)
    return tuple(map(str, noted.values())) if isinstance(noted, dict) else ()


def timed_phrase(notes: PlainMapping, best: Trial) -> str:
    """Return how many configurations were timed and how many of them are faster than fp32; empty if none was timed."""
    noted = notes.get(SPEEDS)
    speeds = noted if isinstance(noted, dict) else {}
    times = [value for key, value in speeds.items() if isinstance(value, float) and key != best.config.fingerprint]
    if not times:
        return ""
    faster = sum(value < 1.0 - TUNING.error_bar for value in times)
    others = "1 other configuration was" if len(times) == 1 else f"{len(times)} other configurations were"
    if not faster:
        return f"{others} timed, and none is faster than fp32. "
    return (
        f"{others} timed; {faster} {'is' if faster == 1 else 'are'} faster, but no trial of these meets the criterion. "
    )


def size_phrase(compared: Benefit | None) -> str:
    """Return the file size of a trial that was tuned for it: "size 0.31x fp32 (1.2 MB vs 3.9 MB)"; else nothing."""
    if compared is None or compared.figure != SIZE:
        return ""
    sizes = [formatting.file_size(int(value or 0)) for value in (compared.trial_figure, compared.float_figure)]
    return f"size {compared.ratio:.2f}x fp32 ({sizes[0]} vs {sizes[1]})"


def drift_phrase(drift: OutputDrift | None) -> str:
    """Return the difference of the outputs from the float model's in one line; empty if nothing was compared."""
    if drift is None or not drift.outputs:
        return ""
    parts = []
    if drift.relative_error is not None:
        parts.append(f"relative error {drift.relative_error:.3g}")
    if drift.top1_agreement is not None:
        parts.append(f"top-1 agreement {drift.top1_agreement:.1%}")
    many = f", the worst of {len(drift.outputs)} outputs" if len(drift.outputs) > 1 else ""
    return f"outputs vs fp32: {', '.join(parts)} ({drift.samples} calibration samples{many})"


def far_off_phrase(drift: OutputDrift) -> str:
    """Return which outputs are far from the float model's, and what to do, for a drift that is far off."""
    worst = max(drift.far_off, key=lambda item: item.relative_error or 0.0)
    figures = []
    if worst.relative_error is not None:
        figures.append(f"relative error {worst.relative_error:.3g}")
    if worst.agreement is not None:
        figures.append(f"top-1 agreement {worst.agreement:.1%}")
    if worst.float_mean is not None and worst.quantized_mean is not None:
        figures.append(f"mean {worst.float_mean:.3g} in fp32, {worst.quantized_mean:.3g} now")
    which = "the output is" if len(drift.outputs) == 1 else f"output {worst.index} is"
    return (
        f"{which} far from the float model's on {drift.samples} calibration samples ({', '.join(figures)}). The score "
        "does not show it: check thresholds that were chosen for the float model, or score with a metric of the values"
    )


def no_gain_phrase(compared: Benefit) -> str:
    """Return how a trial is no better than the float model: "is slower than fp32: 1.12x fp32 latency (...)".

    Args:
        compared: a comparison with the float model that is no gain.
    """
    if compared.figure == SIZE:
        sizes = [formatting.file_size(int(value or 0)) for value in (compared.trial_figure, compared.float_figure)]
        larger = "larger" if compared.is_loss else "not smaller"
        return f"is {larger} than fp32: {compared.ratio:.2f}x fp32 size ({sizes[0]} vs {sizes[1]})"
    figures = [f"±{compared.margin:.0%}"]
    if compared.trial_figure is not None and compared.float_figure is not None:
        figures.insert(0, f"{milliseconds(compared.trial_figure)} vs {milliseconds(compared.float_figure)}")
    slower = "slower" if compared.is_loss else "not faster"
    where = ", as predicted for the target" if compared.figure == PREDICTED else ""
    return f"is {slower} than fp32{where}: {compared.ratio:.2f}x fp32 latency ({', '.join(figures)})"


def no_gain_summary(compared: Benefit | None) -> str:
    """Return a short form, "slower than fp32 (1.12x latency)"; empty if the trial is a gain."""
    if compared is None or compared.is_gain:
        return ""
    if compared.figure == SIZE:
        return f"{'larger' if compared.is_loss else 'not smaller'} than fp32 ({compared.ratio:.2f}x size)"
    return f"{'slower' if compared.is_loss else 'not faster'} than fp32 ({compared.ratio:.2f}x latency)"
