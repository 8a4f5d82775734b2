"""Judge trials: loss, met, best and the Pareto front, in one place for the loop, the command line and the page."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from quaver.criterion import Criterion
from quaver.engine.scoring.confirmation import Confirmation, confirmations, is_required
from quaver.engine.scoring.losses import LimitLoss, Losses
from quaver.engine.timing.objective import Objective, recorded_objective
from quaver.errors import SettingsError
from quaver.history import Snapshot
from quaver.ops import QuantConfig
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.trial import Trial
from quaver.types import PlainMapping


class _Entry(NamedTuple):
    """A trial in the order in which ties are broken: more quantized ops, then less loss, then the lower number."""

    negative_quantized_count: int
    loss: float
    number: int
    lower_bound: float
    trial: Trial


class TieBreak:
    """Finds the winner among trials that meet the criterion. Their order does not matter.

    Each figure has an error bar. Trials are tied if the lower end of theirs is below the lowest upper end of all. A tie
    goes to the trial with more quantized ops, then to the more accurate, then to the lower number: never to chance.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._lowest_upper = math.inf
        self._entries: list[_Entry] = []

    def add(self, trial: Trial) -> Trial:
        """Add a trial and return the winner so far. Trials that can no longer win are dropped."""
        lower, upper = bounds(self._objective, trial)
        self._lowest_upper = min(self._lowest_upper, upper)
        loss = trial.loss or 0.0
        heapq.heappush(self._entries, _Entry(-trial.config.quantized_count, loss, trial.number, lower, trial))
        while self._entries[0].lower_bound > self._lowest_upper:
            heapq.heappop(self._entries)
        return self._entries[0].trial


def bounds(objective: Objective, trial: Trial) -> tuple[float, float]:
    """Return the ends of the error bar of a trial's figure."""
    value, margin = objective.value(trial), objective.margin(trial)
    error = margin * abs(value) if margin else 0.0
    return value - error, value + error


class Confidence(NamedTuple):
    """The confidence that the loss on such data is within the criterion.

    Attributes:
        alone: the confidence of the trial by itself.
        trials: the number of trials that it was selected from.
    """

    alone: float
    trials: int

    @property
    def chosen(self) -> float:
        """The confidence, Bonferroni-corrected because the trial was selected from many."""
        return max(0.0, 1.0 - self.trials * (1.0 - self.alone))


class Judge:
    """Judges trials one by one. Its verdicts depend only on the trials, and each is cheap.

    Attributes:
        criterion: what counts as met: a small loss, or a model within its target budget.
        objective: decides between trials that meet the criterion.
        baseline: the score of the fp32 model; None until it is known, and nothing is judged without it.
        best: the winner of the `TieBreak` among trials that meet the criterion; if none does, the one with the least
            loss, or the one that exceeds the budget least; if none has a score, one that was not evaluated. Where some
            trial is confirmed, the winner among those.
        confirmations: the scores of trials on held-out data.
        needs_confirmation: True if the run has a `confirm`: then only a confirmed trial is met.
        seconds: the time of all trials.
    """

    def __init__(
        self, criterion: Criterion, objective: Objective, allows: Callable[[QuantConfig], bool] = lambda config: True
    ) -> None:
        self.criterion, self.objective = criterion, objective
        self.baseline: float | None = None
        self._baseline: Trial | None = None
        self._losses: Losses | None = None
        self.best: Trial | None = None
        self.seconds = 0.0
        self._allows = allows
        self.confirmations: tuple[Confirmation, ...] = ()
        self.needs_confirmation = False
        self._candidate: Trial | None = None
        self._fp32_size = 0
        self._trials: dict[int, Trial] = {}
        self._unscored = 0
        self._tie_break = TieBreak(objective)

    @classmethod
    def from_settings(cls, settings: PlainMapping, space: TuningSpace) -> Judge:
        """Return the judge of a run from its recorded settings. `space` is the model's, before any rules."""
        try:
            rules = settings.get("op_name_dict"), settings.get("op_type_dict")
            space = TuningSpace(apply_rules(space.ops, *rules, float_types=None))
        except (SettingsError, AttributeError):  # rules that this version cannot read forbid nothing
            pass
        criterion = Criterion.from_settings(settings)
        return cls(criterion, _objective_of_settings(settings, criterion), space.allows)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, judged, in the order they were proposed; several workers may end in another order."""
        return tuple(self._trials[number] for number in sorted(self._trials))

    @property
    def evaluated(self) -> int:
        """The number of trials that were evaluated, or should have been."""
        return len(self._trials) - self._unscored

    @property
    def met(self) -> bool:
        """True if the best trial meets the criterion and, where the run has a `confirm`, is confirmed."""
        if self.best is None or not self.best.met:
            return False
        return not self.needs_confirmation or self.best.number in self._confirmed(True)

    @property
    def candidate(self) -> Trial | None:
        """The winner among the trials that meet the criterion and did not fail on held-out data: the next to confirm.

        None if there is none. A search may end with a candidate; a result is met only by a confirmed one.
        """
        if self.confirmations:
            return self._candidate
        return self.best if self.best is not None and self.best.met else None

    def confirm(self, confirmations: Iterable[Confirmation], required: bool = False) -> None:
        """Take the scores of trials on held-out data.

        Args:
            confirmations: all of them, in the order they were tried.
            required: True if the run has a `confirm`, even if no trial was scored by it yet.
        """
        before, self.confirmations = self.confirmations, tuple(confirmations)
        self.needs_confirmation = required or bool(self.confirmations)
        if before != self.confirmations:
            self._compete_again()

    def _confirmed(self, met: bool) -> frozenset[int]:
        """Return the trials that are confirmed, or with False those that failed on held-out data."""
        return frozenset(item.trial for item in self.confirmations if item.met is met)

    @property
    def can_end(self) -> bool:
        """True if a run without time to improve may end. Within a target budget that is when nothing is lost."""
        return self.candidate is not None and self.suffices(self.candidate)

    def suffices(self, trial: Trial) -> bool:
        """Return True if a judged trial ends a run that has no time to improve."""
        return trial.met and (self.criterion.target_budget is None or (trial.loss is not None and trial.loss <= 0.0))

    def begin(self, baseline: Trial | None) -> None:
        """Take the fp32 model's trial, and judge all trials so far by it."""
        self.baseline = None if baseline is None else baseline.score
        self._baseline = None if baseline is None or baseline.score is None else baseline
        self._losses = None if self._baseline is None else self._compared_with(self._baseline)
        self._fp32_size = 0 if baseline is None else baseline.model_size
        trials, self._trials, self._unscored, self.seconds = self._trials, {}, 0, 0.0
        self._compete_again()
        self.extend(trials.values())

    def extend(self, trials: Iterable[Trial]) -> None:
        """Add several trials."""
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> Trial:
        """Add a trial and return it judged. It replaces a trial of the same number, as when a figure was measured."""
        judged = self.verdict(trial)
        before = self._trials.get(trial.number)
        self._trials[trial.number] = judged
        if before is None:
            self.seconds += trial.seconds + trial.build_seconds
            self._unscored += trial.unscored
        if before is None and not self.confirmations:
            self._compete(judged)
        else:
            self._compete_again()
        return judged

    def judged(self, number: int) -> Trial:
        """Return the trial of a number, as it is judged now."""
        return self._trials[number]

    @property
    def contenders(self) -> list[Trial]:
        """The trials that meet the criterion and may win."""
        return [trial for trial in self._trials.values() if trial.met and self._allows(trial.config)]

    def check(self) -> None:
        """Refuse a criterion that cannot be applied to this baseline, before any trial is run."""
        if self._baseline is not None:
            Losses(self.criterion, self._baseline).check()

    def verdict(self, trial: Trial) -> Trial:
        """Return a trial with its loss, its interval and whether it meets the criterion, as far as they are defined."""
        losses = self.losses(trial)
        if not losses or self._losses is None:
            unjudged = trial.loss is None and not trial.met and trial.interval is None
            return trial if unjudged else replace(trial, loss=None, met=False, interval=None)
        loss, interval = self._losses.loss(losses[0]), self._losses.interval(losses[0], trial)
        target_budget = self.criterion.target_budget
        if trial.stopped:
            met = False
        elif target_budget is not None:
            met = target_budget.is_kept(trial, self._fp32_size)
        else:
            is_confident = self._losses.is_confident(losses, trial, trial.number)
            met = all(loss.met for loss in losses) and is_confident
        if (trial.loss, trial.met, trial.interval) == (loss, met, interval):
            return trial
        return replace(trial, loss=loss, met=met, interval=interval)

    def losses(self, trial: Trial) -> list[LimitLoss]:
        """Return the loss of a trial by each limit of the criterion, slices included, the worst first."""
        if trial.score is None or self._losses is None or not self._losses.defined:
            return []
        return self._losses.per_limit(trial)

    def confidence(self, trial: Trial) -> Confidence | None:
        """Return the confidence that the loss of a trial is within the limits on such data; None if it is unknown."""
        losses = self.losses(trial)
        if not losses or self._losses is None or self.criterion.target_budget is not None:
            return None
        values = [self._losses.confidence(loss, trial) for loss in losses]
        if any(value is None for value in values):
            return None
        trials = sum(not trial.failed for trial in self._trials.values())
        return Confidence(min(value or 0.0 for value in values), trials)

    def _compared_with(self, baseline: Trial) -> Losses | None:
        """Return None if the criterion has limits for metrics that the baseline lacks; `check` refuses them."""
        try:
            return Losses(self.criterion, baseline)
        except SettingsError:
            return None

    def pareto(self) -> tuple[Trial, ...]:
        """Return the trials that no other beats in both accuracy and objective, the best by objective first.

        Measured figures only exist for trials that meet the criterion, so only those are compared by them; size and the
        number of quantized ops are known of every trial.
        """
        return pareto(self._trials.values(), self.objective.trade_against)

    def _compete(self, trial: Trial) -> None:
        if not self._allows(trial.config):
            return
        if trial.met:
            self.best = self._tie_break.add(trial)
        elif trial.unscored:
            self.best = self.best or trial
        elif trial.loss is not None and (
            self.best is None
            or self.best.unscored
            or (not self.best.met and self._misses_by(trial) < self._misses_by(self.best))
        ):
            self.best = trial

    def _misses_by(self, trial: Trial) -> tuple[bool, float, float, int]:
        """Return the distance of a trial from the criterion, and what decides between equal distances.

        Complete evaluations come before estimates.
        """
        target_budget, loss = self.criterion.target_budget, trial.loss or 0.0
        misses = loss if target_budget is None else target_budget.excess(trial, self._fp32_size)
        return trial.estimated, misses, loss, trial.number

    def _compete_again(self) -> None:
        """Choose the best again: among the confirmed trials, or among all of them where none is confirmed."""
        self._candidate = None
        if self.confirmations:
            missed, confirmed = self._confirmed(False), self._confirmed(True)
            self._compete_among(trial for trial in self._trials.values() if trial.number not in missed)
            self._candidate = self.best if self.best is not None and self.best.met else None
            self._compete_among(trial for trial in self._trials.values() if trial.number in confirmed)
            if self.best is not None and self.best.met:
                return
        self._compete_among(self._trials.values())

    def _compete_among(self, trials: Iterable[Trial]) -> None:
        self.best, self._tie_break = None, TieBreak(self.objective)
        for trial in trials:
            self._compete(trial)


def _objective_of_settings(settings: PlainMapping, criterion: Criterion) -> Objective:
    predicted = settings.get("cost_model") is not None
    return recorded_objective(settings.get("objective"), criterion.target_budget, predicted)


def pareto(trials: Iterable[Trial], objective: Objective) -> tuple[Trial, ...]:
    """Return the trials that no other beats in both accuracy and objective, the best by objective first."""
    compared = [trial for trial in trials if trial.loss is not None and not trial.estimated and objective.known(trial)]
    front: list[Trial] = []
    for trial in sorted(compared, key=lambda trial: (objective.value(trial), trial.loss, trial.number)):
        if not front or (trial.loss or 0.0) < (front[-1].loss or 0.0):
            front.append(trial)
    return tuple(front)


def judge_snapshot(snapshot: Snapshot) -> Judge:
    """Return the judge of a snapshot's latest run, with all its trials."""
    judge = Judge.from_settings(snapshot.run.settings, TuningSpace(snapshot.header.ops))
    judge.begin(snapshot.baseline)
    judge.extend(snapshot.trials)
    judge.confirm(confirmations(snapshot.notes, judge.criterion), is_required(snapshot.notes))
    return judge
