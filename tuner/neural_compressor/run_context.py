"""The run that a strategy of Neural Compressor works for."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from quaver.types import CalibrationData, ModelLike, PlainMapping

# Neural Compressor calibrates with this many samples if the settings name no number.
DEFAULT_SAMPLES = 100


@dataclass(frozen=True)
class RunContext:
    """The model, the data and the settings of a run."""

    model: ModelLike
    data: CalibrationData
    settings: PlainMapping

    @property
    def calibration_sizes(self) -> Sequence[int]:
        """Return the numbers of calibration samples."""
        sizes: Any = self.settings.get("calibration_sampling_size") or DEFAULT_SAMPLES
        return [sizes] if isinstance(sizes, int) else list(sizes)


current_run: ContextVar[RunContext | None] = ContextVar("current_run", default=None)
"""The run of this thread; None outside of a run."""
