"""Figures and names as people read them, for the progress of a run, the command line and whoever else shows them."""

from __future__ import annotations

import math

from quaver.criterion import Criterion
from quaver.limit import loss_phrase, loss_range, loss_text
from quaver.trial import Trial

# A latency of so many times fp32's counts as slower, one below the inverse as faster; between them nobody would notice.
SLOWER = 1.03
# No duration is longer than a thousand years: a larger number was not measured.
MAX_SECONDS = 1000 * 365.25 * 86400


def name(text: str) -> str:
    """An op's name on one line: what cannot be printed is escaped, so that no terminal obeys it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def paragraph(text: str) -> str:
    """The same words on one line."""
    return name(" ".join(text.split()))


def score(value: float | None) -> str:
    """A score."""
    return "-" if value is None else f"{value:.6g}"


def scores(trial: Trial) -> str:
    """The score of a trial, with all metrics if they have names."""
    named = ", ".join(f"{name(metric)} {score(value)}" for metric, value in trial.metrics.items())
    return f"{score(trial.score)} ({named})" if len(trial.metrics) > 1 else score(trial.score)


def loss(value: float | None, criterion: Criterion) -> str:
    """Return a loss in the criterion's unit, for a place that says that it is one; a gain is called "better"."""
    return "-" if value is None else loss_text(value, criterion.is_relative)


def loss_or_gain(value: float | None, criterion: Criterion) -> str:
    """Return "loss 0.87%" or "gain 0.87%", for a list of figures."""
    return "loss unknown" if value is None else loss_phrase(value, criterion.is_relative)


def loss_is(value: float | None, criterion: Criterion) -> str:
    """Return "the loss is 0.87%" or "the gain is 0.87%"."""
    return f"the {loss_or_gain(value, criterion).replace(' ', ' is ', 1)}"


def loss_between(interval: tuple[float, float], criterion: Criterion) -> str:
    """Return between what a loss lies, in the criterion's unit."""
    return loss_range(*interval, criterion.is_relative)


def allowed(criterion: Criterion) -> str:
    """The loss that is allowed."""
    if criterion.ceiling is not None:
        return "as little as can be"
    return loss(criterion.allowed, criterion)


def verdict(trial: Trial) -> str:
    """Whether a trial meets the criterion."""
    if trial.stopped:
        return f"stopped after {trial.seen:,} samples"
    if trial.failed or trial.unscored:
        return "failed" if trial.failed else "not evaluated"
    return "met" if trial.met else "not met"


def counts(trial: Trial) -> str:
    """How many ops run in what."""
    return " / ".join(f"{count} {precision}" for precision, count in trial.config.counts.items())


def seconds(value: float) -> str:
    """Return a duration, as exact as anyone needs it; "unknown" for what a clock cannot have measured."""
    if not 0 <= value < MAX_SECONDS:  # NaN, infinite, negative: a file may come from anywhere
        return "unknown time"
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """A file size."""
    if count < 1000:
        return f"{count} bytes"
    for unit, factor in (("KB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 999.5 * factor or unit == "GB":
            return f"{count / factor:.3g} {unit}"
    raise AssertionError


def latency(ratio: float, margin: float = SLOWER - 1.0) -> str:
    """Return a latency as a fraction of the fp32 model's; `margin` is its error bar, as a part of itself."""
    if ratio <= 0 or not math.isfinite(ratio):
        return f"{ratio:.3g} of fp32"
    change = f"{1 / ratio:.2f}x faster" if ratio < 1 else f"{ratio:.2f}x SLOWER"
    is_even = ratio * (1.0 - margin) <= 1.0 <= ratio * (1.0 + margin)
    return f"{ratio:.2f} of fp32 ({'about as fast' if is_even else change})"


def last_line(error: str | None) -> str:
    """What a traceback ends with."""
    lines = (error or "").strip().splitlines()
    return paragraph(lines[-1]) if lines else ""
