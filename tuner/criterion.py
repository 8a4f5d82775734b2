"""When is a score good enough? A pure function of baseline and score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quaver.ceiling import Ceiling
from quaver.errors import SettingsError

# What the subtraction of two scores may be off by, as a part of the larger one.
NOISE = 1e-12


@dataclass(frozen=True, slots=True)
class Criterion:
    """How much worse than the fp32 baseline a model may be.

    Attributes:
        relative: the loss allowed as a fraction of the baseline; None when `absolute` is given.
        absolute: the loss allowed in units of the score.
        higher_is_better: False for scores like perplexity or word error rate.
        ceiling: what the model may take. If it is given it decides alone what is met, and the allowed loss is only what
            a search aims at.
    """

    relative: float | None = 0.01
    absolute: float | None = None
    higher_is_better: bool = True
    ceiling: Ceiling | None = None

    def __post_init__(self) -> None:
        if (self.relative is None) == (self.absolute is None):
            raise SettingsError("give the accuracy criterion as `relative` or as `absolute`, one of the two")
        name, value = ("relative", self.relative) if self.absolute is None else ("absolute", self.absolute)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            raise SettingsError(f"accuracy criterion `{name}` must be a number of at least 0, not {value!r}")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Criterion:
        """The criterion of a run from its recorded settings; the default where they make none."""
        higher = settings.get("higher_is_better", True) is not False
        if settings.get("objective") == "accuracy" and (ceiling := Ceiling.from_settings(settings)) is not None:
            return cls.within(ceiling, higher)
        try:
            return cls(settings.get("relative"), settings.get("absolute"), higher)
        except SettingsError:
            return cls()

    @classmethod
    def within(cls, ceiling: Ceiling, higher_is_better: bool = True) -> Criterion:
        """A budget for the model: as little loss as can be within it."""
        return cls(0.0, None, higher_is_better, ceiling)

    @property
    def called(self) -> str:
        """What it is called when one speaks of it."""
        return "criterion" if self.ceiling is None else "budget"

    @property
    def allowed(self) -> float:
        """The loss that is allowed, in the criterion's unit."""
        allowed = self.relative if self.absolute is None else self.absolute
        assert allowed is not None
        return allowed

    def defined(self, baseline: float) -> bool:
        """Whether a loss from this baseline means anything: a relative one from zero does not."""
        return self.absolute is not None or self.ceiling is not None or baseline != 0

    def check_baseline(self, baseline: float) -> None:
        """A relative loss from zero is not defined; say so before any trial is run."""
        if not self.defined(baseline):
            raise SettingsError(
                "the fp32 model scores 0, so a relative criterion has no meaning. If 0 is right, use "
                "`absolute=` instead of `relative=`; if not, eval_func is probably at fault (labels, preprocessing)"
            )

    def loss(self, baseline: float, score: float) -> float:
        """How much worse `score` is, in the criterion's unit; negative when it is better."""
        self.check_baseline(baseline)
        drop = self._drop(baseline, score)
        return drop if self.absolute is not None else drop / (abs(baseline) or 1.0)

    def met(self, baseline: float, score: float) -> bool:
        """Whether the loss is within what is allowed. Float noise of the subtraction is forgiven."""
        self.check_baseline(baseline)
        allowed = self.allowed if self.absolute is not None else self.allowed * abs(baseline)
        return self._drop(baseline, score) <= allowed + NOISE * max(abs(baseline), abs(score))

    def _drop(self, baseline: float, score: float) -> float:
        return baseline - score if self.higher_is_better else score - baseline

    def better(self, score: float, than: float) -> bool:
        """Whether one score beats another."""
        return score > than if self.higher_is_better else score < than

    def __str__(self) -> str:
        if self.ceiling is not None:
            return str(self.ceiling)
        sign = "loss" if self.higher_is_better else "loss (lower is better)"
        return (
            f"{sign} of at most {self.relative:.2%}"
            if self.relative is not None
            else f"{sign} of at most {self.absolute}"
        )
