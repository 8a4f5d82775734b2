"""Measure the best trials again, interleaved with the float model, so that the winner by objective can be named."""

from __future__ import annotations

from collections.abc import Callable

from quaver.adapters import Adapter, Model
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing import latency
from quaver.history import History
from quaver.trial import Trial
from quaver.types import PlainDict

# Trials up to this many times the smallest latency are measured again, and at most this many. Judgement: 10 % is twice
# the largest error bar of a latency (`objective.MAX_MARGIN`), and five models and the float model take three seconds.
NEAR_FACTOR = 1.10
MAX_FINALISTS = 5
# New figures may bring forward a trial that was not among the finalists. It is looked for at most this many times.
MAX_PASSES = 3
# The note in the history that says which trials were compared.
NOTE = "finalists"


def finalists(judge: Judge) -> list[Trial]:
    """Return the trials to measure again, the best so far first; none where there is nothing to decide."""
    objective = judge.objective
    measured = sorted(
        (trial for trial in judge.contenders if objective.known(trial)),
        key=lambda trial: (objective.value(trial), trial.number),
    )
    near = [trial for trial in measured if objective.value(trial) <= NEAR_FACTOR * objective.value(measured[0])]
    trials = list(dict.fromkeys([trial for trial in measured if trial is judge.best] + near))
    return trials[:MAX_FINALISTS] if len(trials) > 1 else []


def least_seconds(judge: Judge) -> float:
    """Estimate the seconds that it takes to measure the finalists again with as few runs as possible."""
    trials, runs = finalists(judge), latency.MIN_ROUNDS + 1
    inferences = sum(runs * trial.measured.get("latency_ms", 0.0) / 1e3 for trial in (*trials, *trials[:1]))
    return inferences + sum(trial.build_seconds for trial in trials)


def usual_seconds(judge: Judge) -> float:
    """Estimate the seconds that it takes with the usual number of runs."""
    trials = finalists(judge)
    return max(latency.SECONDS * (len(trials) + 1), least_seconds(judge)) if trials else 0.0


def is_undecided(judge: Judge, history: History) -> bool:
    """Return True if there are finalists that were not already compared by an earlier run."""
    return bool(finalists(judge)) and history.notes.get(NOTE) != _compared(judge, history)


def measure_again(
    judge: Judge,
    history: History,
    adapter: Adapter,
    float_model: Callable[[], Model],
    seconds_left: Callable[[], float],
) -> None:
    """Measure the finalists interleaved with the float model, record the figures, and judge the trials by them.

    Args:
        judge: knows the finalists and gets their new figures.
        history: where the figures are recorded.
        adapter: builds the models.
        float_model: returns the model to compare with.
        seconds_left: returns the seconds that are left for it.
    """
    done: set[int] = set()
    for _ in range(MAX_PASSES):
        trials = finalists(judge)
        if not trials or trials[0].number in done or seconds_left() < least_seconds(judge):
            break
        models = [adapter.assemble(trial.config) for trial in trials]
        baseline = float_model()
        seconds = latency.SECONDS * (len(trials) + 1)
        figures_of_all = latency.compare(models, baseline, adapter.timing_feed, seconds, seconds_left())
        for trial, figures in zip(trials, figures_of_all, strict=True):
            judge.add(history.measure(trial.number, figures))
        done.update(trial.number for trial in trials)
    if done:
        history.note(NOTE, _compared(judge, history))


def _compared(judge: Judge, history: History) -> PlainDict:
    """Return what the comparison depends on: it need not be repeated as long as this is the same."""
    numbers = sorted(trial.number for trial in judge.contenders)
    return {"trials": numbers, "threads": history.run.settings.get("threads", 0)}
