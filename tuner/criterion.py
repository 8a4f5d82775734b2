"""When is a score good enough? A pure function of baseline and score."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quaver.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Criterion:
    """How much worse than the fp32 baseline a model may be.

    Attributes:
        relative: the loss allowed as a fraction of the baseline; None when `absolute` is given.
        absolute: the loss allowed in units of the score.
        higher_is_better: False for scores like perplexity or word error rate.
    """

    relative: float | None = 0.01
    absolute: float | None = None
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        if (self.relative is None) == (self.absolute is None):
            raise SettingsError("give the accuracy criterion as `relative` or as `absolute`, one of the two")
        name, value = ("relative", self.relative) if self.absolute is None else ("absolute", self.absolute)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            raise SettingsError(f"accuracy criterion `{name}` must be a number of at least 0, not {value!r}")

    def check_baseline(self, baseline: float) -> None:
        """A relative loss from zero is not defined; say so before any trial is run."""
        if self.absolute is None and baseline == 0:
            raise SettingsError(
                "the fp32 model scores 0, so a relative criterion has no meaning. If 0 is right, use "
                "`absolute=` instead of `relative=`; if not, eval_func is probably at fault (labels, preprocessing)"
            )

    def loss(self, baseline: float, score: float) -> float:
        """How much worse `score` is, in the criterion's unit; negative when it is better."""
        drop = baseline - score if self.higher_is_better else score - baseline
        if self.absolute is not None:
            return drop
        return drop / abs(baseline)

    def met(self, baseline: float, score: float) -> bool:
        """Whether the loss is within what is allowed. Float noise of the subtraction is forgiven."""
        allowed = self.relative if self.absolute is None else self.absolute
        assert allowed is not None
        return self.loss(baseline, score) <= allowed + 1e-12

    def better(self, score: float, than: float) -> bool:
        """Whether one score beats another."""
        return score > than if self.higher_is_better else score < than

    def __str__(self) -> str:
        sign = "loss" if self.higher_is_better else "loss (lower is better)"
        return (
            f"{sign} of at most {self.relative:.2%}"
            if self.relative is not None
            else f"{sign} of at most {self.absolute}"
        )
