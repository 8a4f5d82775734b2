"""Before the winner is named, the trials that are nearly as fast are measured once more, all in turns.

Their figures come from different moments of a machine that may be busy; a difference of a few percent between them
tells little. Side by side it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaver.adapters import Adapter
from quaver.engine import latency
from quaver.engine.judge import Judge
from quaver.engine.objective import compare
from quaver.engine.reference import Reference
from quaver.history import Storage
from quaver.trial import Trial

# What takes so many times the smallest latency at most is measured again, and no more than so many trials of it.
FACTOR = 1.10
MOST = 5
# Figures that change may bring forward a trial that was not among them: they are looked for so often.
TIMES = 3
# The name of the note that says which trials were compared.
NOTE = "finalists"


def finalists(judge: Judge) -> list[Trial]:
    """The trials to measure again, the best so far first; none where nothing is to be decided."""
    known = sorted(
        (trial for trial in judge.contenders if judge.objective.known(trial)),
        key=lambda trial: (judge.objective.value(trial), trial.number),
    )
    near = [trial for trial in known if judge.objective.value(trial) <= FACTOR * judge.objective.value(known[0])]
    found = list(dict.fromkeys([trial for trial in known if trial is judge.best] + near))
    return found[:MOST] if len(found) > 1 else []


def least_seconds(judge: Judge) -> float:
    """About what it takes to measure the finalists again, with as few runs as can be."""
    found, runs = finalists(judge), latency.ROUNDS[0] + 1
    inferences = sum(runs * trial.measured.get("latency_ms", 0.0) / 1e3 for trial in (*found, *found[:1]))
    return inferences + sum(trial.build_seconds for trial in found)


def usual_seconds(judge: Judge) -> float:
    """About what it takes with as many runs as are usual."""
    found = finalists(judge)
    return max(latency.SECONDS * (len(found) + 1), least_seconds(judge)) if found else 0.0


def undecided(judge: Judge, history: Storage) -> bool:
    """Whether there are finalists, and not those of an earlier run that were compared then."""
    return bool(finalists(judge)) and history.notes.get(NOTE) != _compared(judge, history)


def measure_again(
    judge: Judge, history: Storage, adapter: Adapter, reference: Reference, left: Callable[[], float]
) -> None:
    """Measure the finalists in turns with the float model, record it, and judge them by it.

    `left` tells how many seconds there are.
    """
    done: set[int] = set()
    for _ in range(TIMES):
        found = finalists(judge)
        if not found or found[0].number in done or left() < least_seconds(judge):
            break
        models = [adapter.rebuild(trial.config) for trial in found]
        baseline = reference()
        taken = compare(models, baseline, adapter.timing_feed, latency.SECONDS * (len(found) + 1), left())
        for trial, figures in zip(found, taken, strict=True):
            judge.add(history.measure(trial.number, figures))
        done.update(trial.number for trial in found)
    if done:
        history.note(NOTE, _compared(judge, history))


def _compared(judge: Judge, history: Storage) -> dict[str, Any]:
    """What the comparison rests on: it need not be made again as long as this is the same."""
    numbers = sorted(trial.number for trial in judge.contenders)
    return {"trials": numbers, "threads": history.run.settings.get("threads", 0)}
