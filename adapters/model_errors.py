"""Reading what others wrote: whatever goes wrong is said as the model's fault, never as an exception of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from quaver.errors import ModelError, QuaverError


@contextlib.contextmanager
def as_model_error(what: str) -> Iterator[None]:
    """Turn an exception that nobody foresaw into a `ModelError`; its cause stays attached."""
    try:
        yield
    except QuaverError:
        raise
    except Exception as error:  # MemoryError and RecursionError among them
        told = str(error).strip().partition("\n")[0][:200]
        raise ModelError(
            f"{what} cannot be taken in, it is damaged or of a kind that is not known "
            f"({type(error).__name__}{': ' if told else ''}{told})"
        ) from error
