"""Compute the loss of a model against the fp32 baseline, by each limit of a criterion: the basis of every verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from quaver.criterion import Criterion
from quaver.errors import SettingsError
from quaver.limit import Limit
from quaver.scores import Floats, Samples
from quaver.statistics import confidence, corrected, paired_interval

# The level of intervals where the criterion demands no confidence. Convention.
DEFAULT_LEVEL = 0.95


class Scored(Protocol):
    """Anything with the scores of a model: a `Score` or a `Trial`."""

    @property
    def by_name(self) -> Mapping[str, float]: ...

    @property
    def samples(self) -> Mapping[str, Samples]: ...

    @property
    def stopped(self) -> bool: ...


class LimitLoss(NamedTuple):
    """The loss by one limit.

    Attributes:
        limit: the limit.
        baseline: the score of the fp32 model.
        score: the score of the model.
        loss: in the unit of the limit; positive is worse.
        met: True if it is within the limit.
    """

    limit: Limit
    baseline: float
    score: float
    loss: float
    met: bool


class Losses:
    """Compares scores with a baseline. It depends only on the criterion and the baseline.

    Attributes:
        criterion: the criterion.
        limits: the limits of the criterion for the metrics of the baseline, slices included.
    """

    def __init__(self, criterion: Criterion, baseline: Scored) -> None:
        self.criterion = criterion
        self.limits = criterion.limits(baseline.by_name, baseline.samples)
        self._values = baseline.by_name
        self._samples = {name: samples.array for name, samples in baseline.samples.items()}
        self._slices = {name: self._slice_means(scores, scores) for name, scores in self._sliced_metrics().items()}

    def check(self) -> None:
        """Refuse before any trial what cannot be judged: a relative loss from 0, slices of other samples, ..."""
        criterion = self.criterion
        if criterion.confidence is not None:
            for limit in self.limits:
                if limit.metric not in self._samples:
                    raise SettingsError(
                        f"`confidence` needs the score of each sample, and eval_func gives one number for "
                        f"{limit.metric!r}: return an array, or yield arrays"
                    )
        if criterion.slices is not None:
            if not self._samples:
                raise SettingsError("`slices` needs the score of each sample: let eval_func return an array")
            for name, scores in self._samples.items():
                criterion.slices.check(len(scores), name)
        for limit in self.limits:
            limit.check_baseline(self._baseline(limit))

    @property
    def defined(self) -> bool:
        """True if every loss is defined: a loss relative to a score of zero is not."""
        return all(limit.defined(self._baseline(limit)) for limit in self.limits)

    def per_limit(self, scored: Scored) -> list[LimitLoss]:
        """Return the loss by each limit, the worst first; none if the scores have other metrics than the baseline."""
        values = scored.by_name
        slices = {name: self._slice_scores(name, scored) for name in self._slices if name in scored.samples}
        losses = []
        for limit in self.limits:
            if limit.metric not in values or (limit.slice and limit.metric not in slices):
                return []
            base = self._baseline(limit)
            score = slices[limit.metric][limit.slice] if limit.slice else values[limit.metric]
            if not np.isnan(score):  # NaN: a slice of which no sample was scored
                losses.append(LimitLoss(limit, base, score, limit.loss(base, score), limit.met(base, score)))
        return sorted(losses, key=self._badness, reverse=True)

    def loss(self, limit_loss: LimitLoss) -> float:
        """Return a loss in the criterion's unit."""
        return self.criterion.normalised(limit_loss.limit, limit_loss.loss)

    def interval(self, limit_loss: LimitLoss, scored: Scored) -> tuple[float, float] | None:
        """Return the confidence interval of a loss, in the criterion's unit; None without scores of samples."""
        pair = self._paired_scores(limit_loss.limit, scored)
        if pair is None:
            return None
        level = self.criterion.confidence or DEFAULT_LEVEL
        interval = paired_interval(*pair, level, limit_loss.limit.relative, limit_loss.limit.higher_is_better)
        normalised = self.criterion.normalised
        return normalised(limit_loss.limit, interval.low), normalised(limit_loss.limit, interval.high)

    def confidence(self, limit_loss: LimitLoss, scored: Scored) -> float | None:
        """Return the confidence that the loss on such data is within a limit; None without scores of samples."""
        pair = self._paired_scores(limit_loss.limit, scored)
        limit = limit_loss.limit
        return None if pair is None else confidence(*pair, limit.allowed, limit.relative, limit.higher_is_better)

    def is_confident(self, losses: list[LimitLoss], scored: Scored, number: int) -> bool:
        """Return True if the trial of this number keeps every limit with the confidence that the criterion demands.

        The n-th trial needs a higher confidence than the first: its share of the probability of error is 1 / (n (n +
        1)), and all shares together are 1. So the demand holds for the winner among any number of trials.
        """
        confidence = self.criterion.confidence
        if confidence is None:
            return True
        level = corrected(confidence, number * (number + 1))
        return all((self.confidence(limit_loss, scored) or 0.0) >= level for limit_loss in losses)

    def _baseline(self, limit: Limit) -> float:
        return self._slices[limit.metric][limit.slice] if limit.slice else self._values[limit.metric]

    def _badness(self, limit_loss: LimitLoss) -> tuple[bool, float]:
        return not limit_loss.met, self.loss(limit_loss)

    def _sliced_metrics(self) -> dict[str, Floats]:
        names = {limit.metric for limit in self.limits if limit.slice}
        return {name: scores for name, scores in self._samples.items() if name in names}

    def _slice_scores(self, metric: str, scored: Scored) -> dict[str, float]:
        """Return the score of each slice; samples not scored are assumed to differ from fp32 as the scored ones do."""
        return self._slice_means(self._samples[metric], scored.samples[metric].array)

    def _slice_means(self, base: Floats, scores: Floats) -> dict[str, float]:
        slices = self.criterion.slices
        assert slices is not None
        if len(scores) > len(base) or slices.count not in (0, len(base)) or int(slices.indices.max()) >= len(base):
            return dict.fromkeys(slices.names, float("nan"))  # scores of other samples; `check` refuses them
        if len(scores) == len(base):
            means = slices.sums(scores) / np.array(slices.sizes)
        else:
            worse, scored = np.zeros(len(base)), np.zeros(len(base))
            worse[: len(scores)], scored[: len(scores)] = base[: len(scores)] - scores, 1.0
            with np.errstate(invalid="ignore"):  # a slice of which no sample was scored is NaN
                means = slices.sums(base) / np.array(slices.sizes) - slices.sums(worse) / slices.sums(scored)
        return dict(zip(slices.names, map(float, means), strict=True))

    def _paired_scores(self, limit: Limit, scored: Scored) -> tuple[Floats, Floats] | None:
        """Return the scores of the same samples in fp32 and in the model."""
        if limit.metric not in self._samples or limit.metric not in scored.samples:
            return None
        base, scores = self._samples[limit.metric], scored.samples[limit.metric].array
        base = base[: len(scores)]
        if len(base) != len(scores):
            return None
        if limit.slice:
            assert self.criterion.slices is not None
            members = self.criterion.slices.each()[limit.slice]
            members = members[members < len(scores)]
            base, scores = base[members], scores[members]
        if len(base) < 2 or (limit.relative and base.mean() == 0):
            return None
        return base, scores
