"""Errors of foreign code that reads a model, as errors about the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from quaver.errors import ModelError, QuaverError


@contextlib.contextmanager
def as_model_error(what: str) -> Iterator[None]:
    """Turn an unexpected exception into a `ModelError` with the exception as its cause."""
    try:
        yield
    except QuaverError:
        raise
    except Exception as error:  # MemoryError and RecursionError among them
        reason = str(error).strip().partition("\n")[0][:200]
        raise ModelError(
            f"{what} cannot be loaded: it is damaged or of an unsupported kind "
            f"({type(error).__name__}{': ' if reason else ''}{reason})"
        ) from error
