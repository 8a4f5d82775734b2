"""`recover` with Neural Compressor's numbers, which start at 0 where quaver's trials start at 1."""

from __future__ import annotations

import os
from typing import Any

from quaver.api import recover as quaver_recover
from quaver.errors import HistoryError, SettingsError
from quaver.formatting import number_ranges
from quaver.history import read_snapshot
from quaver.neural_compressor.absent import absent_names
from quaver.neural_compressor.model import BridgedModel
from quaver.types import ModelLike


def recover(
    fp32_model: ModelLike, tuning_history_path: str | os.PathLike[str], num: int, **settings: Any
) -> BridgedModel:
    """Rebuild configuration `num` of a run from its history.snapshot; configuration 0 is quaver's trial 1."""
    if not isinstance(num, int) or isinstance(num, bool) or num < 0:
        raise SettingsError(f"`num` must be an integer of 0 or more, not {num!r}")
    snapshot = read_snapshot(tuning_history_path)
    numbers = [trial.number - 1 for trial in snapshot.trials]
    if num not in numbers:
        raise HistoryError(f"{snapshot.path} has no configuration {num}; it has {number_ranges(numbers)}")
    try:
        model = quaver_recover(fp32_model, tuning_history_path, num + 1, **settings)
    except HistoryError as error:
        raise HistoryError(f"configuration {num}, which quaver numbers {num + 1}: {error}") from error
    return BridgedModel(model, None, snapshot.trial(num + 1).config)


__getattr__ = absent_names(__name__)
