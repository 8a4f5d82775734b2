"""The most that a model may take: of time, of space, or of both."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quaver.errors import SettingsError
from quaver.trial import Trial
from quaver.types import PlainMapping


@dataclass(frozen=True, slots=True)
class TargetBudget:
    """A budget for the model, in place of a criterion for its accuracy. At least one of the two is given.

    Attributes:
        latency: of one inference, at most this fraction of the fp32 model's.
        size: of the file, at most this fraction of the fp32 model's.
        predicted: whether the latency is that predicted for another machine.
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
        """That of a run from its recorded settings; None if it has a criterion instead."""
        try:
            return cls(settings.get("max_latency"), settings.get("max_size"), settings.get("cost_model") is not None)
        except SettingsError:
            return None

    def excess(self, trial: Trial, fp32_size: int) -> float:
        """What a trial takes as a fraction of what it may, by the worse of the two; infinite if that is not known."""
        taken = 0.0
        if self.latency is not None:
            name = "predicted_latency" if self.predicted else "latency"
            taken = trial.measured.get(name, math.inf) / self.latency
        if self.size is not None:
            size = trial.model_size / fp32_size if trial.model_size and fp32_size else math.inf
            taken = max(taken, size / self.size)
        return taken

    def is_kept(self, trial: Trial, fp32_size: int) -> bool:
        """Whether a trial takes no more than it may."""
        return self.excess(trial, fp32_size) <= 1.0

    def __str__(self) -> str:
        said = (("predicted latency" if self.predicted else "latency", self.latency), ("size", self.size))
        return " and ".join(f"{name} of at most {value:.3g} of fp32" for name, value in said if value is not None)
