"""Decide whether a trial is worth deploying instead of the float model: the one place that does.

A quantized model that meets the criterion but is no faster (or no smaller) than the float model is no success. The
result, the command line, the page and the report all ask here, so that they agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quaver.engine.timing.objective import Latency, Objective, PredictedLatency, Size
from quaver.trial import Trial

LATENCY, PREDICTED, SIZE = "latency", "predicted_latency", "size"


@dataclass(frozen=True, slots=True)
class Benefit:
    """What a run makes small, as a fraction of the same figure of the float model.

    Attributes:
        figure: "latency", "predicted_latency" (on the machine of a cost model) or "size".
        ratio: the trial's figure divided by the float model's.
        margin: the error bar of the ratio, as a fraction of it; 0 for a size.
        trial_figure: the trial's own figure: milliseconds, or bytes of a size; None where only the ratio is recorded.
        float_figure: that of the float model, in the same unit.
    """

    figure: str
    ratio: float
    margin: float = 0.0
    trial_figure: float | None = None
    float_figure: float | None = None

    @property
    def is_gain(self) -> bool:
        """Return whether the trial beats the float model by more than the error bar."""
        return self.ratio * (1.0 + self.margin) < 1.0

    @property
    def is_loss(self) -> bool:
        """Return whether the float model beats the trial by more than the error bar."""
        return self.ratio * (1.0 - self.margin) > 1.0


def benefit(trial: Trial | None, objective: Objective, fp32: Trial | None) -> Benefit | None:
    """Compare a trial with the float model by the objective of its run.

    Args:
        trial: the trial, usually the best one.
        objective: what the run makes small. Within a budget (`objective="accuracy"`) the figure that the budget limits.
        fp32: the float model's trial, for its size.

    Returns:
        None if the figure is not recorded, or the objective has none of the float model (a user's own function).
    """
    if trial is None:
        return None
    against = objective.against
    if isinstance(against, PredictedLatency):
        return _latency(trial, PREDICTED, "predicted_ms", against)
    if isinstance(against, Latency):
        return _latency(trial, LATENCY, "latency_ms", against)
    if isinstance(against, Size) and fp32 is not None and fp32.model_size > 0 and trial.model_size > 0:
        ratio = trial.model_size / fp32.model_size
        return Benefit(SIZE, ratio, 0.0, float(trial.model_size), float(fp32.model_size))
    return None


def _latency(trial: Trial, figure: str, milliseconds: str, objective: Objective) -> Benefit | None:
    ratio = trial.measured.get(figure, math.nan)
    if not math.isfinite(ratio) or ratio <= 0.0:
        return None
    margin, duration = objective.margin(trial), trial.measured.get(milliseconds)
    if duration is None or not math.isfinite(duration):
        return Benefit(figure, ratio, margin)
    return Benefit(figure, ratio, margin, duration, duration / ratio)
