"""Write scores, losses, durations, sizes and counts for people: one version of each, for all packages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from quaver.criterion import Criterion
from quaver.limit import loss_phrase, loss_range, loss_text
from quaver.trial import Trial

# A latency within 3 % of fp32's counts as equal. Judgement: repeated runs differ by about this much.
EVEN_LATENCY = 1.03
# A duration above a thousand years was not measured: the file it comes from is damaged.
MAX_SECONDS = 1000 * 365.25 * 86400
# What a table shows where there is no value.
MISSING = "-"
# Parts of outputs that a sentence names. Judgement: a line of a terminal.
MAX_PARTS = 3


def printable(text: str) -> str:
    """Return a text on one line, with what cannot be printed escaped, so that no terminal obeys it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def paragraph(text: str) -> str:
    """Return a text of several lines as one printable line."""
    return printable(" ".join(text.split()))


def last_line(error: str | None) -> str:
    """Return the last line of a traceback, which names the error."""
    lines = (error or "").strip().splitlines()
    return paragraph(lines[-1]) if lines else ""


def number_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as a person writes them: 0 to 7, 9."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join(" to ".join(map(str, run)) for run in runs[:20]) + (", ..." if len(runs) > 20 else "") or "none"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 thread", "2,000 samples"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def score(value: float | None) -> str:
    """Return a score with six digits, or a dash if there is none."""
    return MISSING if value is None else f"{value:.6g}"


def scores(trial: Trial) -> str:
    """Return the score of a trial; of several metrics all, by name."""
    named = ", ".join(f"{printable(metric)} {score(value)}" for metric, value in trial.metrics.items())
    return f"{score(trial.score)} ({named})" if len(trial.metrics) > 1 else score(trial.score)


def loss(value: float | None, criterion: Criterion) -> str:
    """Return a loss for a column of losses: "0.87%", or "0.87% better" for a gain."""
    return MISSING if value is None else loss_text(value, criterion.is_relative)


def loss_or_gain(value: float | None, criterion: Criterion) -> str:
    """Return a loss with its name: "loss 0.87%" or "gain 0.87%"."""
    return "loss unknown" if value is None else loss_phrase(value, criterion.is_relative)


def loss_is(value: float | None, criterion: Criterion) -> str:
    """Return a loss for a sentence: "the loss is 0.87%" or "the gain is 0.87%"."""
    return f"the {loss_or_gain(value, criterion).replace(' ', ' is ', 1)}"


def loss_between(interval: tuple[float, float], criterion: Criterion) -> str:
    """Return an interval of losses: "0.10% to 1.63%"."""
    return loss_range(*interval, criterion.is_relative)


def allowed(criterion: Criterion) -> str:
    """Return the loss that a criterion allows."""
    if criterion.target_budget is not None:
        return "as little as can be"
    return loss(criterion.allowed, criterion)


def verdict(trial: Trial) -> str:
    """Return "met", "not met", or why a trial has no verdict."""
    if trial.stopped:
        return f"stopped after {trial.seen:,} samples"
    if trial.failed or trial.unscored:
        return "failed" if trial.failed else "not evaluated"
    return "met" if trial.met else "not met"


def op_counts(trial: Trial, separator: str = " / ") -> str:
    """Return how many ops run in each precision: "12 int8 / 3 fp32"."""
    return separator.join(f"{count} {precision}" for precision, count in trial.config.counts.items())


def duration(seconds: float) -> str:
    """Return a duration for people: "3.2 s", "47 s", "5 min", "2 h 10 min"."""
    if not 0 <= seconds < MAX_SECONDS:  # NaN, infinite or negative: the file may be damaged
        return "unknown time"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def milliseconds(value: float) -> str:
    """Return a latency, given in milliseconds, with three digits; below 0.1 ms in microseconds."""
    if 0 < value < 0.0995:
        return f"{value * 1e3:.3g} µs"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def file_size(count: int) -> str:
    """Return a number of bytes as "812 bytes", "1.2 MB" or "3.4 GB"."""
    if count < 1000:
        return f"{count} bytes"
    for unit, factor in (("KB", 1e3), ("MB", 1e6)):
        if count < 999.5 * factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"


def latency_ratio(ratio: float, margin: float = EVEN_LATENCY - 1.0) -> str:
    """Return a latency as a multiple of fp32's: "0.43x fp32 (2.33x faster)".

    Args:
        ratio: the latency divided by fp32's.
        margin: its error bar, as a fraction of itself; a ratio that may be 1 is "about as fast".
    """
    if ratio <= 0 or not math.isfinite(ratio):
        return f"{ratio:.3g}x fp32"
    change = f"{1 / ratio:.2f}x faster" if ratio < 1 else f"{ratio:.2f}x SLOWER"
    is_even = ratio * (1.0 - margin) <= 1.0 <= ratio * (1.0 + margin)
    return f"{ratio:.2f}x fp32 ({'about as fast' if is_even else change})"


def probability(value: float) -> str:
    """Return a probability in percent, never rounded to 0 % or 100 %."""
    percentage = 100 * value
    if percentage > 99:
        return "above 99 %"
    return f"{percentage:.0f} %" if percentage >= 1 else "below 1 %"


def percent(part: float) -> str:
    """Return a part of a whole as a percentage; a squared error over the squared signal may exceed 100 %."""
    if math.isnan(part):
        return "an unknown part"
    if math.isinf(part):
        return "infinitely many %"
    if part < 0.001:
        return f"{part * 100:.2g} %"
    return f"{part * 100:.0f} %" if part >= 0.1 else f"{part * 100:.1f} %"


def number(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}"


def times(ratio: float) -> str:
    """Return a ratio in words: "12 times", "1.5 times"."""
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def disturbed_parts(errors: Mapping[str, float]) -> str:
    """Return which parts of the outputs an op disturbs and which not, from the error of each: "scores, not boxes".

    Parts with a tenth of the largest error are disturbed, those with less than a hundredth are not.
    """
    largest = max(errors.values(), default=0.0)
    disturbed = [part for part, error in errors.items() if error >= 0.1 * largest]
    spared = [part for part, error in errors.items() if error < 0.01 * largest]
    if not spared:
        return ""
    return f"{first_names(disturbed, MAX_PARTS)}, not {first_names(spared, MAX_PARTS)}"


def first_names(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names, and how many more there are: "a, b, c and 2 more"."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
