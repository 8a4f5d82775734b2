"""The one judge: loss, met, best and the Pareto front of trials, for the loop, the command line, the page and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from quaver.criterion import Criterion
from quaver.engine.contest import Contest
from quaver.engine.objective import Objective, recorded_objective
from quaver.errors import SettingsError
from quaver.history import Snapshot
from quaver.ops import QuantConfig
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.trial import Trial


class Judge:
    """Judges trials as they come. Pure: what it says follows from the trials alone; a trial costs next to nothing.

    Attributes:
        criterion: what counts as met: little loss, or a model within its budget.
        objective: what decides between trials that meet it.
        baseline: the score of the fp32 model; None until it is known, and nothing is judged without it.
        best: the winner of the `Contest` among trials that meet the criterion; if none does, the one with the least
            loss, or the one that exceeds the budget least.
        seconds: what all trials took.
    """

    def __init__(
        self, criterion: Criterion, objective: Objective, allows: Callable[[QuantConfig], bool] = lambda config: True
    ) -> None:
        self.criterion, self.objective = criterion, objective
        self.baseline: float | None = None
        self.best: Trial | None = None
        self.seconds = 0.0
        self._allows = allows
        self._fp32_size = 0
        self._trials: dict[int, Trial] = {}
        self._contest = Contest(objective)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], space: TuningSpace) -> Judge:
        """The judge of a run from its recorded settings. `space` is the model's, before any rules."""
        try:
            rules = settings.get("op_name_dict"), settings.get("op_type_dict")
            space = TuningSpace(apply_rules(space.ops, *rules))
        except (SettingsError, AttributeError):  # rules that this version does not understand forbid nothing
            pass
        criterion = Criterion.from_settings(settings)
        return cls(criterion, recorded_objective(settings.get("objective"), criterion.ceiling), space.allows)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, judged, in the order they were asked for: several workers may end in another."""
        return tuple(self._trials[number] for number in sorted(self._trials))

    @property
    def evaluated(self) -> int:
        """How many trials there are."""
        return len(self._trials)

    @property
    def met(self) -> bool:
        """Whether any trial meets the criterion that may win."""
        return self.best is not None and self.best.met

    @property
    def content(self) -> bool:
        """Whether a run that has no time to improve may end: within a budget that is when nothing is lost."""
        return self.best is not None and self.suffices(self.best)

    def suffices(self, trial: Trial) -> bool:
        """Whether a trial as it is judged leaves nothing to ask for."""
        return trial.met and (self.criterion.ceiling is None or (trial.loss is not None and trial.loss <= 0.0))

    def begin(self, baseline: Trial | None) -> None:
        """Take the fp32 model's trial. All trials so far are judged by it."""
        self.baseline = None if baseline is None else baseline.score
        self._fp32_size = 0 if baseline is None else baseline.model_size
        known, self._trials, self.seconds = self._trials, {}, 0.0
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

    def verdict(self, trial: Trial) -> Trial:
        """A trial with its loss and whether it meets the criterion, as far as that is defined."""
        if trial.score is None or self.baseline is None or not self.criterion.defined(self.baseline):
            return trial if trial.loss is None and not trial.met else replace(trial, loss=None, met=False)
        ceiling, loss = self.criterion.ceiling, self.criterion.loss(self.baseline, trial.score)
        if ceiling is None:
            met = self.criterion.met(self.baseline, trial.score)
        else:
            met = ceiling.kept(trial, self._fp32_size)
        return trial if (trial.loss, trial.met) == (loss, met) else replace(trial, loss=loss, met=met)

    def pareto(self) -> tuple[Trial, ...]:
        """The trials that no other beats in both accuracy and objective, the best by objective first.

        Measured figures are there only for trials that meet the criterion, so only those are compared by them; size
        and the number of reduced ops are known of every trial.
        """
        return pareto(self._trials.values(), self.objective.against)

    def _compete(self, trial: Trial) -> None:
        if trial.loss is None or not self._allows(trial.config):
            return
        if trial.met:
            self.best = self._contest.add(trial)
        elif self.best is None or (not self.best.met and self._misses_by(trial) < self._misses_by(self.best)):
            self.best = trial

    def _misses_by(self, trial: Trial) -> tuple[float, float, int]:
        """How far a trial is from what is asked for, and what decides between those that are equally far."""
        ceiling, loss = self.criterion.ceiling, trial.loss or 0.0
        return (loss if ceiling is None else ceiling.excess(trial, self._fp32_size)), loss, trial.number

    def _compete_again(self) -> None:
        self.best, self._contest = None, Contest(self.objective)
        for trial in self._trials.values():
            self._compete(trial)


def pareto(trials: Iterable[Trial], objective: Objective) -> tuple[Trial, ...]:
    """The trials that no other beats in both accuracy and objective, the best by objective first."""
    known = [trial for trial in trials if trial.loss is not None and objective.known(trial)]
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
    return judge
