"""Decide whether a trial is worth deploying instead of the float model: the one place that does.

A quantized model that meets the criterion but is no faster (or no smaller) than the float model is no success. The
result, the command line, the page and the report all ask here, so that they agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from quaver.engine.timing.objective import Objective
from quaver.trial import Trial

LATENCY, PREDICTED, SIZE = "latency", "predicted_latency", "size"


@dataclass(frozen=True, slots=True)
class Benefit:
    """The figure that a run makes small, as a fraction of the float model's.

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
        """True if the trial beats the float model by more than the error bar."""
        return self.ratio * (1.0 + self.margin) < 1.0

    @property
    def is_loss(self) -> bool:
        """True if the float model beats the trial by more than the error bar."""
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
    objective = objective.trade_against
    ratio = objective.ratio(trial, fp32)
    if ratio is None:
        return None
    margin = objective.margin(trial)
    if ratio.own is None:
        return Benefit(ratio.figure, ratio.ratio, margin)
    return Benefit(ratio.figure, ratio.ratio, margin, ratio.own, ratio.own / ratio.ratio)
