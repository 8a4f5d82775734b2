"""Figures and names as the command line writes them: those of the library, and what belongs into a shell."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Any

from quaver.api.wording import (
    SLOWER,
    allowed,
    counts,
    last_line,
    latency,
    loss,
    loss_between,
    loss_is,
    loss_or_gain,
    name,
    paragraph,
    score,
    scores,
    seconds,
    size,
    verdict,
)

__all__ = [
    "SLOWER", "allowed", "command", "counts", "finite", "in_shell_words", "last_line", "latency", "loss",
    "loss_between", "loss_is", "loss_or_gain", "name", "paragraph", "path", "score", "scores", "seconds", "size",
    "verdict",
]  # fmt: skip


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
