"""The one judge: loss, met, best and the Pareto front of trials, for the loop, the command line, the page and tests."""

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
    """A trial in the order in which ties are broken: more reduced ops, then less loss, then the lower number."""

    not_reduced: int
    loss: float
    number: int
    at_best: float
    trial: Trial


class TieBreak:
    """Trials that meet the criterion, as they come. The winner follows from all of them, whatever their order.

    A figure lies within its margin. Some trial is certain to have one no larger than its upper end; all that may be as
    good, by the lower ends of theirs, are tied. A tie goes to the trial with more reduced ops, then to the more
    accurate, then to the lower number: never to chance.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._certain = math.inf
        self._entries: list[_Entry] = []

    def add(self, trial: Trial) -> Trial:
        """Take part; the winner so far. Who is beaten for certain stays so, and is dropped."""
        at_best, at_worst = bounds(self._objective, trial)
        self._certain = min(self._certain, at_worst)
        loss = trial.loss or 0.0
        heapq.heappush(self._entries, _Entry(-trial.config.quantized_count, loss, trial.number, at_best, trial))
        while self._entries[0].at_best > self._certain:
            heapq.heappop(self._entries)
        return self._entries[0].trial


def bounds(objective: Objective, trial: Trial) -> tuple[float, float]:
    """Between what the figure of a trial lies."""
    value, margin = objective.value(trial), objective.margin(trial)
    off = margin * abs(value) if margin else 0.0
    return value - off, value + off


class Confidence(NamedTuple):
    """How sure it is that the loss on such data is within the criterion.

    Attributes:
        alone: of a trial that was looked at alone.
        trials: among how many it was chosen.
    """

    alone: float
    trials: int

    @property
    def chosen(self) -> float:
        """The same when the choice among so many is counted: each of them may have been lucky."""
        return max(0.0, 1.0 - self.trials * (1.0 - self.alone))


class Judge:
    """Judges trials as they come. Pure: what it says follows from the trials alone; a trial costs next to nothing.

    Attributes:
        criterion: what counts as met: little loss, or a model within its budget.
        objective: what decides between trials that meet it.
        baseline: the score of the fp32 model; None until it is known, and nothing is judged without it.
        best: the winner of the `Contest` among trials that meet the criterion; if none does, the one with the least
            loss, or the one that exceeds the budget least; if none has a score, one that was not evaluated. Where some
            trial is confirmed, the winner among those.
        confirmations: what trials score on data that took no part in choosing them.
        needs_confirmation: whether the run has a `confirm`: then only a confirmed trial is met.
        seconds: what all trials took.
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
        self._contest = TieBreak(objective)

    @classmethod
    def from_settings(cls, settings: PlainMapping, space: TuningSpace) -> Judge:
        """The judge of a run from its recorded settings. `space` is the model's, before any rules."""
        try:
            rules = settings.get("op_name_dict"), settings.get("op_type_dict")
            space = TuningSpace(apply_rules(space.ops, *rules))
        except (SettingsError, AttributeError):  # rules that this version does not understand forbid nothing
            pass
        criterion = Criterion.from_settings(settings)
        return cls(criterion, _recorded(settings, criterion), space.allows)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, judged, in the order they were asked for: several workers may end in another."""
        return tuple(self._trials[number] for number in sorted(self._trials))

    @property
    def evaluated(self) -> int:
        """How many trials there are that were evaluated, or were to be."""
        return len(self._trials) - self._unscored

    @property
    def met(self) -> bool:
        """Return whether the best trial meets the criterion and, where the run has a `confirm`, is confirmed."""
        if self.best is None or not self.best.met:
            return False
        return not self.needs_confirmation or self.best.number in self._confirmed(True)

    @property
    def candidate(self) -> Trial | None:
        """Return the winner among the trials that meet the criterion and did not miss on other data: next to confirm.

        None if there is none. A search may end with a candidate; a result is met only by a confirmed one.
        """
        if self.confirmations:
            return self._candidate
        return self.best if self.best is not None and self.best.met else None

    def confirm(self, confirmations: Iterable[Confirmation], required: bool = False) -> None:
        """Take what trials score on other data.

        Args:
            confirmations: all of them, in the order they were tried.
            required: whether the run has a `confirm`, even if no trial was scored by it yet.
        """
        before, self.confirmations = self.confirmations, tuple(confirmations)
        self.needs_confirmation = required or bool(self.confirmations)
        if before != self.confirmations:
            self._compete_again()

    def _confirmed(self, met: bool) -> frozenset[int]:
        """Return the trials that are confirmed, or those that missed on the other data."""
        return frozenset(one.trial for one in self.confirmations if one.met is met)

    @property
    def content(self) -> bool:
        """Whether a run that has no time to improve may end: within a budget that is when nothing is lost."""
        return self.candidate is not None and self.suffices(self.candidate)

    def suffices(self, trial: Trial) -> bool:
        """Whether a trial as it is judged leaves nothing to ask for."""
        return trial.met and (self.criterion.target_budget is None or (trial.loss is not None and trial.loss <= 0.0))

    def begin(self, baseline: Trial | None) -> None:
        """Take the fp32 model's trial. All trials so far are judged by it."""
        self.baseline = None if baseline is None else baseline.score
        self._baseline = None if baseline is None or baseline.score is None else baseline
        self._losses = None if self._baseline is None else self._compared_with(self._baseline)
        self._fp32_size = 0 if baseline is None else baseline.model_size
        known, self._trials, self._unscored, self.seconds = self._trials, {}, 0, 0.0
        self._compete_again()
        self.extend(known.values())

    def extend(self, trials: Iterable[Trial]) -> None:
        """Add several trials."""
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> Trial:
        """Add a trial and return it judged. One of a known number takes its place, as when a figure was measured."""
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
        """The trial of a number, as it is judged now."""
        return self._trials[number]

    @property
    def contenders(self) -> list[Trial]:
        """The trials that meet the criterion and may win."""
        return [trial for trial in self._trials.values() if trial.met and self._allows(trial.config)]

    def check(self) -> None:
        """Say what the criterion asks for and the baseline does not allow, before any trial is run."""
        if self._baseline is not None:
            Losses(self.criterion, self._baseline).check()

    def verdict(self, trial: Trial) -> Trial:
        """A trial with its loss, its interval and whether it meets the criterion, as far as that is defined."""
        found = self.losses(trial)
        if not found or self._losses is None:
            unjudged = trial.loss is None and not trial.met and trial.interval is None
            return trial if unjudged else replace(trial, loss=None, met=False, interval=None)
        loss, interval = self._losses.loss(found[0]), self._losses.interval(found[0], trial)
        target_budget = self.criterion.target_budget
        if trial.stopped:
            met = False
        elif target_budget is not None:
            met = target_budget.kept(trial, self._fp32_size)
        else:
            met = all(lost.met for lost in found) and self._losses.is_sure(found, trial, trial.number)
        if (trial.loss, trial.met, trial.interval) == (loss, met, interval):
            return trial
        return replace(trial, loss=loss, met=met, interval=interval)

    def losses(self, trial: Trial) -> list[LimitLoss]:
        """What a trial loses by each limit of the criterion, slices included, the worst first; empty if unknown."""
        if trial.score is None or self._losses is None or not self._losses.defined:
            return []
        return self._losses.of(trial)

    def confidence(self, trial: Trial) -> Confidence | None:
        """How sure it is that the loss of a trial is within the limits on such data, too; None if nobody can say."""
        found = self.losses(trial)
        if not found or self._losses is None or self.criterion.target_budget is not None:
            return None
        each = [self._losses.confidence(lost, trial) for lost in found]
        if any(one is None for one in each):
            return None
        return Confidence(min(one or 0.0 for one in each), sum(not one.failed for one in self._trials.values()))

    def _compared_with(self, baseline: Trial) -> Losses | None:
        """None if the criterion has limits for metrics that the baseline has not: `check` says so."""
        try:
            return Losses(self.criterion, baseline)
        except SettingsError:
            return None

    def pareto(self) -> tuple[Trial, ...]:
        """The trials that no other beats in both accuracy and objective, the best by objective first.

        Measured figures are there only for trials that meet the criterion, so only those are compared by them; size
        and the number of reduced ops are known of every trial.
        """
        return pareto(self._trials.values(), self.objective.trade_against)

    def _compete(self, trial: Trial) -> None:
        if not self._allows(trial.config):
            return
        if trial.met:
            self.best = self._contest.add(trial)
        elif trial.unscored:
            self.best = self.best or trial
        elif trial.loss is not None and (
            self.best is None
            or self.best.unscored
            or (not self.best.met and self._misses_by(trial) < self._misses_by(self.best))
        ):
            self.best = trial

    def _misses_by(self, trial: Trial) -> tuple[bool, float, float, int]:
        """How far a trial is from what is asked for, and what decides between those that are equally far.

        What was seen in full comes before estimates.
        """
        target_budget, loss = self.criterion.target_budget, trial.loss or 0.0
        misses = loss if target_budget is None else target_budget.excess(trial, self._fp32_size)
        return trial.estimated, misses, loss, trial.number

    def _compete_again(self) -> None:
        """Choose anew: among the confirmed trials, or among all of them where none is confirmed."""
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
        self.best, self._contest = None, TieBreak(self.objective)
        for trial in trials:
            self._compete(trial)


def _recorded(settings: PlainMapping, criterion: Criterion) -> Objective:
    predicted = settings.get("cost_model") is not None
    return recorded_objective(settings.get("objective"), criterion.target_budget, predicted)


def pareto(trials: Iterable[Trial], objective: Objective) -> tuple[Trial, ...]:
    """The trials that no other beats in both accuracy and objective, the best by objective first."""
    known = [trial for trial in trials if trial.loss is not None and not trial.estimated and objective.known(trial)]
    front: list[Trial] = []
    for trial in sorted(known, key=lambda trial: (objective.value(trial), trial.loss, trial.number)):
        if not front or (trial.loss or 0.0) < (front[-1].loss or 0.0):
            front.append(trial)
    return tuple(front)


def judge_snapshot(snapshot: Snapshot) -> Judge:
    """The trials of a snapshot as its latest run judges them."""
    judge = Judge.from_settings(snapshot.run.settings, TuningSpace(snapshot.header.ops))
    judge.begin(snapshot.baseline)
    judge.extend(snapshot.trials)
    judge.confirm(confirmations(snapshot.notes, judge.criterion), is_required(snapshot.notes))
    return judge
