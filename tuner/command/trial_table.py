"""A table of the trials of a run."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from quaver import formatting
from quaver.api.display import tables
from quaver.engine.scoring.benefit import benefit
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import Latency
from quaver.formatting import milliseconds
from quaver.ops import Precision
from quaver.trial import Trial
from quaver.trial_lineage import Origin, origin_text, origins

# Changed ops that are named if there is room for their names.
MAX_NAMED_OPS = 2
# Columns that are left out, in this order, until the others fit. `--json` has them all.
DROPPABLE = ("latency", "eval s", "size", "interval")
# The width that the last column needs, for a change such as "12: 10 to fp32".
CHANGE_WIDTH = 14


def write(judged: Judge, base: Trial | None) -> None:
    """Print a row for the baseline and each trial, with the changes against the trial it came from."""
    trials = (*([] if base is None else [base]), *judged.trials)
    precisions = sorted({precision for trial in trials for precision in trial.config.counts})
    names = dict.fromkeys(name for trial in trials for name in trial.metrics)
    metrics = list(names) if len(names) > 1 else []
    interval = ["interval"] if any(trial.interval is not None for trial in judged.trials) else []
    came_from = origins(judged.trials)
    width = tables.columns() or tables.PIPE_WIDTH
    rows: list[list[str | Text]] = [
        [
            *_verdict(trial, judged),
            *(formatting.score(trial.metrics.get(name)) for name in metrics),
            *(_interval(trial, judged) for _ in interval),
            *(_count(trial, precision) for precision in precisions),
            *_latency(trial),
            formatting.file_size(trial.model_size) if trial.model_size else "-",
            f"{trial.seconds:.2f}",
        ]
        for trial in trials
    ]
    figures = (*metrics, *interval, *precisions, "latency", "of fp32", "size", "eval s")
    headings = ["trial", "score", "loss", "met", *figures]
    columns, room = _fitting_columns(headings, tables.natural_widths(headings, rows), width)
    cells = [
        [*(row[at] for at in columns), _change(trial, came_from.get(trial.number), room)]
        for trial, row in zip(trials, rows, strict=True)
    ]
    right = ("trial", "score", "loss", *figures)
    tables.write([*(headings[at] for at in columns), "change"], cells, right, max(width, width - room + CHANGE_WIDTH))
    _write_failures(trials)


def _fitting_columns(headings: Sequence[str], widths: Sequence[int], width: int) -> tuple[list[int], int]:
    """Return the columns that fit into a width, and the width that they leave for the last one."""
    columns = list(range(len(headings)))
    room = width - sum(widths[at] + tables.GAP for at in columns)
    for name in DROPPABLE:
        if room < CHANGE_WIDTH and name in headings:
            columns.remove(headings.index(name))
            room = width - sum(widths[at] + tables.GAP for at in columns)
    return columns, room


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
    """Return the confidence interval of the loss."""
    if trial.interval is None:
        return "-"
    return formatting.loss_between(trial.interval, judged.criterion)


def met(trial: Trial) -> Text:
    """Return in one coloured word whether a trial meets the criterion."""
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
    """Return the latency and its ratio to fp32, measured in the same minute; red where int8 is slower."""
    ratio, latency = trial.measured.get("latency"), trial.measured.get("latency_ms")
    compared = benefit(trial, Latency(), None)
    style = tables.SLOWER if compared is not None and compared.is_loss else ""
    part = tables.cell("-" if ratio is None else f"{ratio:.2f}", style)
    return "-" if latency is None else milliseconds(latency), part


def _change(trial: Trial, origin: Origin | None, room: int) -> Text:
    if origin is None:
        return tables.cell("-")
    details = origin_text(origin, MAX_NAMED_OPS)
    change = tables.cell(details if len(details) <= room else origin_text(origin))
    if trial.failed:
        change.append_text(tables.cell("; failed", tables.NOT_MET))
    return change


def _write_failures(trials: Sequence[Trial]) -> None:
    """Print each error once, with the numbers of the trials that failed with it."""
    failed: dict[str, list[int]] = {}
    for trial in trials:
        if trial.failed:
            failed.setdefault(formatting.last_line(trial.error), []).append(trial.number)
    for error, numbers in failed.items():
        which = f"trial{'s' if len(numbers) > 1 else ''} {formatting.number_ranges(numbers)}"
        tables.line(tables.cell(f"{which} failed: {error}", tables.NOT_MET))
