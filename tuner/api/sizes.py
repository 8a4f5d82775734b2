"""Several sizes of the calibration set, tried in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quaver.api.result import TuneResult
from quaver.api.settings import make_config

NAME = "calibration_sampling_size"


def sizes_of(config: Any, settings: Mapping[str, Any]) -> tuple[int, ...]:
    """The sizes to try, if there are several; a resumed run goes on with the one it has."""
    asked = make_config(config, **settings)
    size = asked.calibration_sampling_size
    return size if isinstance(size, tuple) and asked.resume is None else ()


def in_turn(
    sizes: tuple[int, ...], workspace: str | os.PathLike[str] | None, run: Callable[..., TuneResult]
) -> TuneResult:
    """A run for each size, until one meets the criterion; the best of them if none does.

    Each has a workspace of its own: that of a later one ends in its size.
    """
    best: TuneResult | None = None
    for number, size in enumerate(sizes):
        folder = None if workspace is None else Path(workspace)
        if folder is not None and number:
            folder = folder.with_name(f"{folder.name}_{size}")
        result = run(**{NAME: size}, workspace=folder)
        if result.met is not False:
            return result
        if best is None or _loss(result) < _loss(best):
            best = result
    assert best is not None
    return best


def _loss(result: TuneResult) -> float:
    loss = None if result.best is None else result.best.loss
    return float("inf") if loss is None else loss
