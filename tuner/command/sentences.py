"""What a history knows of a model besides its trials, in sentences for the terminal."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quaver.api.cost_model import target_of
from quaver.api.display.format import conversions, converted_phrase, fp32_phrase, latency_phrase, predicted_phrase
from quaver.formatting import printable
from quaver.history import Snapshot
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.unquantizable import from_notes, in_words


def in_shell_words(text: str) -> str:
    """Advice of the library, written for a shell."""
    return re.sub(
        r"fit\(\.\.\., resume=(['\"])(.*?)\1\)",
        lambda found: f"`{command('quaver', 'tune', '...', '--resume', Path(found.group(2)))}`",
        text,
    )


def path(place: Path) -> str:
    """A path, from here if it lies below."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed meanwhile
        return str(place)
    return str(place.relative_to(here) if place.is_relative_to(here) else place)


def command(*words: Any) -> str:
    """A line to be copied into a shell."""
    return shlex.join(path(word) if isinstance(word, Path) else str(word) for word in words)


def finite(value: Any) -> Any:
    """Plain data for JSON, which knows no infinity and no NaN."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def about_the_model(snapshot: Snapshot, best_hash: str = "") -> Iterator[str]:
    """Yield what was converted when the model was read, what cannot be quantized, and where the verdict holds."""
    portability = noted_portability(snapshot.notes, best_hash)
    holds = "" if portability is None else f"the best model was {portability}"
    for fact in (converted_phrase(conversions(snapshot.notes)), in_words(from_notes(snapshot.notes)), holds):
        if fact:
            yield printable(fact)


def about_latency(trial: Trial, snapshot: Snapshot) -> Iterator[str]:
    """What a trial takes beside the float model; of the baseline, what that takes."""
    fp32 = {} if snapshot.baseline is None else snapshot.baseline.measured
    predicted = predicted_phrase(trial.measured, target_of(snapshot.notes))
    if predicted:
        yield printable(predicted)
    fact = fp32_phrase(fp32) if trial.number == 0 else latency_phrase(trial.measured, fp32)
    if fact:
        yield printable(fact)
