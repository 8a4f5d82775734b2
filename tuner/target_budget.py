"""The target budget of a model: the latency and the file size that it may have."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quaver.errors import SettingsError
from quaver.trial import Trial
from quaver.types import PlainMapping


@dataclass(frozen=True, slots=True)
class TargetBudget:
    """A budget for the model, in place of an accuracy criterion. At least one of latency and size is limited.

    Attributes:
        latency: the maximum latency of one inference, as a fraction of the fp32 model's.
        size: the maximum file size, as a fraction of the fp32 model's.
        predicted: True if the latency is the one predicted for another machine.
    """

    latency: float | None = None
    size: float | None = None
    predicted: bool = False

    def __post_init__(self) -> None:
        for name, value in (("max_latency", self.latency), ("max_size", self.size)):
            if value is None:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
                raise SettingsError(
                    f"`{name}` must be a fraction of the fp32 model's, above 0 and up to 1, not {value!r}; 60 % is 0.6"
                )
        if self.latency is None and self.size is None:
            raise SettingsError(
                'objective="accuracy" looks for the most accurate model within a budget: give '
                "`max_latency` or `max_size`, as fractions of fp32"
            )

    @classmethod
    def from_settings(cls, settings: PlainMapping) -> TargetBudget | None:
        """Return the budget of a run from its recorded settings; None if it has a criterion instead."""
        try:
            return cls(settings.get("max_latency"), settings.get("max_size"), settings.get("cost_model") is not None)
        except SettingsError:
            return None

    def excess(self, trial: Trial, fp32_size: int) -> float:
        """Return the used part of the budget, the larger of latency and size; infinite if it is not known."""
        used = 0.0
        if self.latency is not None:
            name = "predicted_latency" if self.predicted else "latency"
            used = trial.measured.get(name, math.inf) / self.latency
        if self.size is not None:
            size = trial.model_size / fp32_size if trial.model_size and fp32_size else math.inf
            used = max(used, size / self.size)
        return used

    def is_kept(self, trial: Trial, fp32_size: int) -> bool:
        """Return True if a trial is within the budget."""
        return self.excess(trial, fp32_size) <= 1.0

    def __str__(self) -> str:
        limits = (("predicted latency" if self.predicted else "latency", self.latency), ("size", self.size))
        return " and ".join(f"{name} of at most {value:.3g} of fp32" for name, value in limits if value is not None)
