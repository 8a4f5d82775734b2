"""`recover`, with Neural Compressor's count: its first configuration is number 0, quaver's first trial is number 1."""

from __future__ import annotations

import os
from typing import Any

from quaver.api import recover as quaver_recover
from quaver.errors import SettingsError
from quaver.history import read_snapshot
from quaver.neural_compressor.model import BridgedModel


def recover(fp32_model: Any, tuning_history_path: str | os.PathLike[str], num: int, **settings: Any) -> BridgedModel:
    """Rebuild configuration `num` of a run from its history.snapshot; 0 is the first, quaver's trial 1."""
    if not isinstance(num, int) or isinstance(num, bool) or num < 0:
        raise SettingsError(f"the number of a configuration must be 0 or more, not {num!r}")
    found = quaver_recover(fp32_model, tuning_history_path, num + 1, **settings)
    return BridgedModel(found, None, read_snapshot(tuning_history_path).trial(num + 1).config)
