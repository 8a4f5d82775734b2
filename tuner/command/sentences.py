"""Sentences of the command line: paths and commands to copy, and facts about a model."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quaver.api.cost_model import target_of
from quaver.api.display.format import conversions, converted_phrase, fp32_phrase, latency_phrase, predicted_phrase
from quaver.api.fastest import comparison_lines, noted_outcomes
from quaver.formatting import printable
from quaver.history import Snapshot
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.unquantizable import from_notes, in_words


def in_shell_words(text: str) -> str:
    """Rewrite advice of the library for a shell."""
    return re.sub(
        r"fit\(\.\.\., resume=(['\"])(.*?)\1\)",
        lambda match: f"`{command('quaver', 'tune', '...', '--resume', Path(match.group(2)))}`",
        text,
    )


def path(place: Path) -> str:
    """Return a path, relative to the current folder if it lies below it."""
    try:
        here = Path.cwd()
    except OSError:  # the current folder was removed
        return str(place)
    return str(place.relative_to(here) if place.is_relative_to(here) else place)


def command(*words: object) -> str:
    """Return a command line that can be pasted into a shell."""
    return shlex.join(path(word) if isinstance(word, Path) else str(word) for word in words)


def finite(value: Any) -> Any:
    """Return builtins for JSON, with None for infinity and NaN."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def about_the_model(snapshot: Snapshot, best_hash: str = "") -> Iterator[str]:
    """Yield conversions of the model, nodes that cannot be quantized, and processors the verdict holds on."""
    portability = noted_portability(snapshot.notes, best_hash)
    processors = "" if portability is None else f"the best model was {portability}"
    outcomes = comparison_lines(noted_outcomes(snapshot.notes))
    for fact in (
        *outcomes,
        converted_phrase(conversions(snapshot.notes)),
        in_words(from_notes(snapshot.notes)),
        processors,
    ):
        if fact:
            yield printable(fact)


def about_latency(trial: Trial, snapshot: Snapshot) -> Iterator[str]:
    """Yield the latency of a trial relative to the float model; for the baseline, its own latency."""
    fp32 = {} if snapshot.baseline is None else snapshot.baseline.measured
    predicted = predicted_phrase(trial.measured, target_of(snapshot.notes))
    if predicted:
        yield printable(predicted)
    fact = fp32_phrase(fp32) if trial.number == 0 else latency_phrase(trial.measured, fp32)
    if fact:
        yield printable(fact)
