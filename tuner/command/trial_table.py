"""The trials of a run as a table."""

from __future__ import annotations

from rich.text import Text

from quaver import formatting
from quaver.api.display import tables
from quaver.engine.scoring.benefit import benefit
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import Latency
from quaver.formatting import milliseconds
from quaver.ops import Precision
from quaver.trial import Trial
from quaver.trial_lineage import Origin, origins, told

# So many ops are named where there is room for it, beside the columns that take so much.
NAMES, COLUMNS = 2, 76
# Below this a column is left out: of both latencies the one that counts stays.
NARROW = 100


def write(judged: Judge, base: Trial | None) -> None:
    """Print a row for the baseline and for each trial, with what was changed against the one it came from."""
    shown = (*([] if base is None else [base]), *judged.trials)
    precisions = sorted({precision for trial in shown for precision in trial.config.counts})
    named = dict.fromkeys(name for trial in shown for name in trial.metrics)
    metrics = list(named) if len(named) > 1 else []
    between = ["between"] if any(trial.interval is not None for trial in judged.trials) else []
    came_from = origins(judged.trials)
    width = tables.columns()
    room = None if width is None else width - COLUMNS
    rows = [
        (
            *_verdict(trial, judged),
            *(formatting.score(trial.metrics.get(name)) for name in metrics),
            *(_interval(trial, judged) for _ in between),
            *(_count(trial, precision) for precision in precisions),
            *_latency(trial),
            formatting.file_size(trial.model_size) if trial.model_size else "-",
            f"{trial.seconds:.2f}",
            _change(trial, came_from.get(trial.number), room),
        )
        for trial in shown
    ]
    figures = (*metrics, *between, *precisions, "latency", "of fp32", "size", "eval s")
    headings = ("trial", "score", "loss", "met", *figures, "change")
    left_out = "latency" if width is not None and width < NARROW else ""
    kept = [at for at, heading in enumerate(headings) if heading != left_out]
    right = ("trial", "score", "loss", *figures)
    tables.write([headings[at] for at in kept], [[row[at] for at in kept] for row in rows], right)


def _verdict(trial: Trial, judged: Judge) -> tuple[str | Text, ...]:
    if trial.number == 0:
        return "fp32", formatting.score(trial.score), "-", "-"
    best = judged.best is not None and trial.number == judged.best.number
    return (
        tables.cell(f"{trial.number}{'*' if best else ' '}", tables.BEST if best else ""),
        formatting.score(trial.score),
        formatting.loss(trial.loss, judged.criterion),
        met(trial),
    )


def _interval(trial: Trial, judged: Judge) -> str:
    """Between what the loss on such data lies."""
    if trial.interval is None:
        return "-"
    return formatting.loss_between(trial.interval, judged.criterion)


def met(trial: Trial) -> Text:
    """Whether a trial meets the criterion, in a word and a colour."""
    if trial.failed:
        return tables.cell("-", tables.NOT_MET)
    if trial.stopped:
        return tables.cell(f"no, {trial.seen:,} samples", tables.NOT_MET)
    if trial.unscored:
        return tables.cell("-", "")
    return tables.cell("yes", tables.MET) if trial.met else tables.cell("no", tables.NOT_MET)


def _count(trial: Trial, precision: Precision) -> Text:
    count = trial.config.counts.get(precision, 0)
    return tables.cell(str(count), tables.FP32 if not precision.quantized and count and trial.number else "")


def _latency(trial: Trial) -> tuple[str, Text]:
    """As measured, and as a part of fp32's in the same minute, which is what counts; red where int8 is slower."""
    ratio, taken = trial.measured.get("latency"), trial.measured.get("latency_ms")
    compared = benefit(trial, Latency(), None)
    style = tables.SLOWER if compared is not None and compared.is_loss else ""
    part = tables.cell("-" if ratio is None else f"{ratio:.2f}", style)
    return "-" if taken is None else milliseconds(taken), part


def _change(trial: Trial, origin: Origin | None, room: int | None) -> Text:
    if origin is None:
        return tables.cell("-")
    named = told(origin, NAMES)
    said = tables.cell(named if room is None or len(named) <= room else told(origin))
    if trial.failed:
        said.append_text(tables.cell(f"; failed: {formatting.last_line(trial.error)}", tables.NOT_MET))
    return said
