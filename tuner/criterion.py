"""The accuracy criterion: a pure function of the baseline and the scores of a model."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from quaver.errors import SettingsError
from quaver.limit import Limit
from quaver.objective_traits import traits_of
from quaver.scores import UNNAMED
from quaver.slices import Slices
from quaver.suggestions import hint
from quaver.target_budget import TargetBudget
from quaver.types import PlainMapping


@dataclass(frozen=True, slots=True)
class Criterion:
    """The largest loss against the fp32 baseline that a model may have. Every limit must be kept.

    A number is the limit of every metric that eval_func returns; a dict has a limit for each metric to be judged, and
    the others are only shown. The loss of a trial is that of the limit that it exceeds most, or is nearest to. Losses
    are scaled so that each limit is at `allowed`, the largest of them: a strategy sees one loss and one limit.

    Attributes:
        relative: the allowed loss as a fraction of the baseline.
        absolute: the allowed loss in units of the score, instead of `relative`; both may be dicts by metric.
        higher_is_better: False for scores like perplexity or word error rate; may be a dict by metric.
        target_budget: the budget for the model. It alone decides what is met, and the allowed loss is only what a
            search aims at.
        slices: parts of the samples that are also judged by themselves.
        slice_limit: the allowed loss of a slice, in the unit of its metric; a dict by slice if only some are judged.
            None is the allowed loss on all samples.
        confidence: the demanded confidence, between 0.5 and 1, that the loss on such data is within the limits. With
            None the measured score decides.
    """

    relative: float | Mapping[str, float] | None = 0.01
    absolute: float | Mapping[str, float] | None = None
    higher_is_better: bool | Mapping[str, bool] = True
    target_budget: TargetBudget | None = None
    slices: Slices | None = None
    slice_limit: float | Mapping[str, float] | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        by_metric = isinstance(self.relative, Mapping) and isinstance(self.absolute, Mapping)
        if (self.relative is None) == (self.absolute is None) and not by_metric:
            raise SettingsError("pass the accuracy criterion as `relative` or as `absolute`, one of the two")
        for name in ("relative", "absolute", "slice_limit"):
            _check_limits(name, getattr(self, name))
        if by_metric:
            for metric in {*self._by_metric("relative")} & {*self._by_metric("absolute")}:
                raise SettingsError(f"the metric {metric!r} has a limit in `relative` and in `absolute`: set only one")
        higher = self.higher_is_better
        for value in higher.values() if isinstance(higher, Mapping) else (higher,):
            if not isinstance(value, bool):
                raise SettingsError(f"`higher_is_better` must be True or False, not {value!r}")
        self._check_slices()
        if self.confidence is not None and not (
            isinstance(self.confidence, float | int) and 0.5 <= self.confidence < 1
        ):
            raise SettingsError(f"`confidence` must be between 0.5 and 1, such as 0.95, not {self.confidence!r}")

    def _check_slices(self) -> None:
        if self.slice_limit is not None and self.slices is None:
            raise SettingsError("`slice_limit` goes with `slices`: the name of each sample's slice")
        if isinstance(self.slice_limit, Mapping) and self.slices is not None:
            for name in self.slice_limit:
                if name not in self.slices.names:
                    raise SettingsError(f"`slice_limit` has no slice {name!r}; {hint(str(name), self.slices.names)}")

    @classmethod
    def from_settings(cls, settings: PlainMapping) -> Criterion:
        """Return the criterion of a run from its recorded settings; the default if they are not valid."""
        recorded = settings.get("higher_is_better", True)
        higher = recorded if isinstance(recorded, Mapping) else recorded is not False
        if (
            traits_of(settings.get("objective")).needs_target_budget
            and (target_budget := TargetBudget.from_settings(settings)) is not None
        ):
            return cls.within(target_budget, higher)
        try:
            slices = settings.get("slices")
            return cls(
                settings.get("relative"),
                settings.get("absolute"),
                higher,
                slices=None if slices is None else Slices.of(slices),
                slice_limit=settings.get("slice_limit"),
                confidence=settings.get("confidence"),
            )
        except (SettingsError, TypeError):
            return cls()

    @classmethod
    def within(cls, target_budget: TargetBudget, higher_is_better: bool | Mapping[str, bool] = True) -> Criterion:
        """Return the criterion of a target budget: as little loss as possible within it."""
        return cls(0.0, None, higher_is_better, target_budget)

    @property
    def called(self) -> str:
        """The noun that messages use for it: "criterion" or "budget"."""
        return "criterion" if self.target_budget is None else "budget"

    @property
    def allowed(self) -> float:
        """The allowed loss in the criterion's unit: the largest of several limits."""
        return max(self._limits_in_its_unit)

    @property
    def is_relative(self) -> bool:
        """True if losses are fractions of the baseline. If both units are used, by metric, the relative ones count."""
        return self.relative is not None

    @property
    def is_conjunction(self) -> bool:
        """True if there are limits by metric or by slice."""
        return self.slices is not None or self.first.metric != UNNAMED

    @property
    def first(self) -> Limit:
        """The limit of the score without a name, or of the first metric."""
        metrics = [*self._by_metric("relative"), *self._by_metric("absolute")]
        return self._limit(metrics[0] if metrics else UNNAMED)

    def limits(self, metrics: Collection[str], sampled: Collection[str] = ()) -> tuple[Limit, ...]:
        """Return the limits for metrics of these names; `sampled` are those that have scores of samples."""
        named = [*self._by_metric("relative"), *self._by_metric("absolute")]
        for name in named:
            if name not in metrics:
                raise SettingsError(
                    f"the criterion has a limit for {name!r}, which eval_func does not return; {hint(name, metrics)}"
                )
        if isinstance(self.higher_is_better, Mapping):
            for name in self.higher_is_better:
                if name not in metrics:
                    raise SettingsError(
                        f"`higher_is_better` names {name!r}, which eval_func does not return; {hint(name, metrics)}"
                    )
        limits = [self._limit(name) for name in named or metrics]
        by_slice = [part for limit in limits if limit.metric in sampled for part in self._of_slices(limit)]
        return tuple(limits + by_slice)

    def normalised(self, limit: Limit, loss: float) -> float:
        """Return a loss by one limit in the criterion's unit, in which every limit is at `allowed`."""
        allowed = self.allowed
        if limit.allowed == allowed or (limit.allowed == 0 and loss <= 0):
            return loss
        if 0 in (allowed, limit.allowed):  # there is no factor, so the excess over the limit is added
            return loss - limit.allowed + allowed
        return loss * (allowed / limit.allowed)

    def defined(self, baseline: float) -> bool:
        """Return True if a loss from this baseline is defined: a relative loss from zero is not."""
        return self.first.defined(baseline)

    def check_baseline(self, baseline: float) -> None:
        """Refuse a relative loss from zero, which is not defined, before any trial is run."""
        self.first.check_baseline(baseline)

    def loss(self, baseline: float, score: float) -> float:
        """Return the loss of one `score`, in the criterion's unit; negative if it is better."""
        return self.first.loss(baseline, score)

    def met(self, baseline: float, score: float) -> bool:
        """Return True if the loss of one score is allowed. Float noise of the subtraction is tolerated."""
        return self.first.met(baseline, score)

    def better(self, score: float, than: float) -> bool:
        """Return True if one score is better than another."""
        return self.first.better(score, than)

    def _by_metric(self, unit: str) -> Mapping[str, float]:
        value = getattr(self, unit)
        return value if isinstance(value, Mapping) else {}

    @property
    def _limits_in_its_unit(self) -> list[float]:
        """The limits on all samples; those of slices are scaled to them."""
        limits = self.relative if self.is_relative else self.absolute
        assert limits is not None
        return list(limits.values()) if isinstance(limits, Mapping) else [limits]

    def _limit(self, metric: str) -> Limit:
        relative = metric in self._by_metric("relative") or isinstance(self.relative, int | float)
        limits = self.relative if relative else self.absolute
        allowed = limits[metric] if isinstance(limits, Mapping) else limits
        assert allowed is not None
        higher = self.higher_is_better
        better = higher.get(metric, True) if isinstance(higher, Mapping) else higher
        return Limit(allowed, relative, better, metric, binding=self.target_budget is None)

    def _of_slices(self, limit: Limit) -> list[Limit]:
        if self.slices is None:
            return []
        own = self.slice_limit
        if isinstance(own, Mapping):
            judged = {name: own[name] for name in self.slices.names if name in own}
        else:
            judged = dict.fromkeys(self.slices.names, limit.allowed if own is None else own)
        return [
            Limit(allowed, limit.relative, limit.higher_is_better, limit.metric, name)
            for name, allowed in judged.items()
        ]

    def __str__(self) -> str:
        if self.target_budget is not None:
            return str(self.target_budget)
        metrics = [*self._by_metric("relative"), *self._by_metric("absolute")]
        text = ", ".join(str(self._limit(name)) for name in metrics) if metrics else str(self.first)
        if self.slices is not None:
            text += f", on each of {len(self.slices)} slices too"
        return text if self.confidence is None else f"{text}, with a confidence of {self.confidence:.4g}"


def _check_limits(name: str, limits: object) -> None:
    if isinstance(limits, Mapping) and not limits:
        raise SettingsError(f"`{name}` is an empty dict: pass a limit for each metric")
    for key, value in limits.items() if isinstance(limits, Mapping) else [("", limits)]:
        if value is None and not key:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            of = f" of {key!r}" if key else ""
            raise SettingsError(f"accuracy criterion `{name}`{of} must be a number of at least 0, not {value!r}")
