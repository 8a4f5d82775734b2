"""The one place where the user's eval_func is called, and where a bad score becomes an error."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from quaver.errors import EvaluationError

# An evaluation that takes this many times the baseline's seconds (and at least this many) is called slow.
SLOW_FACTOR = 10
SLOW_SECONDS = 30.0


def score(eval_func: Callable[[Any], Any], model: Any) -> float:
    """Call eval_func and insist on one finite number."""
    return as_score(eval_func(model))


def as_score(value: Any) -> float:
    """A number, or an array or tensor of one, as a float; anything else is an error that says what to return."""
    name = type(value).__name__
    if value is None:
        raise EvaluationError("eval_func returned None: is a `return` missing?")
    if callable(getattr(value, "item", None)):  # numpy, torch and others: one element, whatever its shape
        try:
            value = value.item()
        except Exception:
            shape = getattr(value, "shape", "unknown")
            raise EvaluationError(
                f"eval_func returned a {name} of shape {shape}; it must return one number (its mean?)"
            ) from None
    if isinstance(value, tuple | list | dict | set | str | bytes | bool | complex):
        raise EvaluationError(
            f"eval_func returned a {name}, {value!r:.60}; it must return one number, the score to tune by"
        )
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise EvaluationError(f"eval_func returned a {name} that is not a number ({error})") from None
    if not math.isfinite(number):
        raise EvaluationError(f"eval_func returned {number}: the score is not finite")
    return number


def slow_after(usual: float | None) -> float:
    """Seconds after which an evaluation is called slow."""
    return math.inf if usual is None else max(SLOW_FACTOR * usual, SLOW_SECONDS)


@contextmanager
def watched(usual: float | None, tell: Callable[[float], None]) -> Iterator[None]:
    """Call `tell` with the seconds gone when what is inside takes far longer than usual. It is never interrupted."""
    if usual is None:
        yield
        return
    start, wait = time.monotonic(), slow_after(usual)
    over = threading.Event()

    def look() -> None:
        pause = wait
        while not over.wait(pause):
            tell(time.monotonic() - start)
            pause *= 2

    threading.Thread(target=look, daemon=True, name="quaver-watch").start()
    try:
        yield
    finally:
        over.set()
