"""Compare what two models or two runs returned."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quaver.types import Array, Feed, ModelLike

BUILTINS = (dict, list, tuple, str, bytes, int, float, bool, type(None))
Outputs = list[Array]


def as_list(result: Any) -> Outputs:
    """Return the outputs of a model as a list."""
    return [np.asarray(part) for part in (result if isinstance(result, list) else [result])]


def difference(expected: list[Outputs], outputs: list[Outputs]) -> float:
    """Return the largest difference as a share of the largest output; infinity where shapes differ."""
    largest = 0.0
    for before, after in zip(expected, outputs, strict=True):
        for one, other in zip(before, after, strict=True):
            if one.shape != other.shape:
                return math.inf
            scale = float(np.max(np.abs(one), initial=0.0)) or 1.0
            off = np.abs(np.subtract(one, other, dtype=np.float64))
            largest = max(largest, float(np.max(off, initial=0.0)) / scale)
    return largest


def equal_feeds(first: Sequence[Feed], second: Sequence[Feed]) -> bool:
    """Return True if two lists of feeds hold the same arrays."""
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(first, second, strict=True)
    )


def not_builtin(value: Any, where: str = "the result") -> str | None:
    """Describe the first value inside that is not a plain builtin; None if there is none."""
    if type(value) not in BUILTINS:
        return f"a {type(value).__module__}.{type(value).__name__} in {where}"
    if isinstance(value, dict):
        for key, inner in value.items():
            found = not_builtin(key, f"a key of {where}") or not_builtin(inner, f"{where}[{key!r}]")
            if found:
                return found
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            if found := not_builtin(inner, f"{where}[{index}]"):
                return found
    return None


def content(model: ModelLike) -> object:
    """Return the model's bytes, to see if they change; None if it has none."""
    if isinstance(model, str | os.PathLike) and Path(model).is_file():
        return Path(model).read_bytes()
    if callable(getattr(model, "SerializeToString", None)):
        return model.SerializeToString()
    return None
