"""Which of the trials that meet the criterion is best."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from quaver.adapters import Model
from quaver.adapters.batches import Feed
from quaver.errors import SettingsError
from quaver.nearest import hint
from quaver.trial import Trial

# How long a latency measurement goes on, and how many pairs of runs it takes at least and at most.
SECONDS = 0.5
PAIRS = (5, 200)
# This thread does all the work if the whole process takes no more than so many times its time.
ALONE = 1.02


class Objective:
    """A figure to make small. Figures that have to be measured are taken once, for trials that meet the criterion."""

    name = "int8_ops"

    def measure(self, model: Any, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        """What to remember of a model that meets the criterion."""
        return {}

    def value(self, trial: Trial) -> float:
        """The figure; the smallest wins."""
        return -len(trial.config.reduced_ops)

    def known(self, trial: Trial) -> bool:
        """Whether the figure is known of this trial."""
        return True


class Size(Objective):
    """The size of the model file."""

    name = "size"

    def value(self, trial: Trial) -> float:
        return trial.model_size


class Latency(Objective):
    """Seconds of one inference, as a fraction of the fp32 model's, both measured in turns."""

    name = "latency"

    def measure(self, model: Any, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        return {} if feed is None else {"latency": relative_latency(model, baseline(), feed)}

    def value(self, trial: Trial) -> float:
        # Without a measurement (no samples at hand) more int8 ops count as faster.
        return trial.measured.get("latency", 1.0 - 1e-6 * len(trial.config.reduced_ops))

    def known(self, trial: Trial) -> bool:
        return "latency" in trial.measured


class UserObjective(Objective):
    """A function of the user's: `objective(model) -> float`, the smaller the better."""

    name = "user"

    def __init__(self, function: Callable[[Any], float]) -> None:
        self._function = function

    def measure(self, model: Any, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        figure = float(self._function(model))
        if math.isnan(figure):
            raise ValueError("the objective returned NaN, which cannot be compared")
        return {"user": figure}

    def value(self, trial: Trial) -> float:
        return trial.measured.get("user", float("inf"))

    def known(self, trial: Trial) -> bool:
        return "user" in trial.measured


OBJECTIVES: dict[str, type[Objective]] = {kind.name: kind for kind in (Latency, Size, Objective)}


def make_objective(wanted: Any) -> Objective:
    """An objective from its name or from a function."""
    if isinstance(wanted, type) and issubclass(wanted, Objective):
        return wanted()
    if isinstance(wanted, Objective):
        return wanted
    if isinstance(wanted, str) and wanted in OBJECTIVES:
        return OBJECTIVES[wanted]()
    if callable(wanted):
        return UserObjective(wanted)
    raise SettingsError(
        f"unknown objective {wanted!r}; {hint(str(wanted), OBJECTIVES)} A function of the model works too"
    )


def relative_latency(model: Model, baseline: Model, feed: Feed) -> float:
    """How long `model` takes compared with `baseline`: medians of runs taken in turns, so that noise hits both.

    Where this thread does all the work, it is the processor's time that counts: other programs do not disturb it.
    """
    for warm in (model, baseline):
        warm.run(feed)
    runs: tuple[list[Times], list[Times]] = ([], [])
    end = time.perf_counter() + SECONDS
    while len(runs[0]) < PAIRS[0] or (len(runs[0]) < PAIRS[1] and time.perf_counter() < end):
        for taken, which in zip(runs, (model, baseline), strict=True):
            start = _now()
            which.run(feed)
            taken.append(Times(*(after - before for before, after in zip(start, _now(), strict=True))))
    every = [*runs[0], *runs[1]]
    alone = sum(one.process for one in every) < ALONE * sum(one.thread for one in every)
    return _median(runs[0], alone) / _median(runs[1], alone)


class Times(NamedTuple):
    """Seconds by three clocks: on the wall, of this thread on a processor, of all threads of this process."""

    wall: float
    thread: float
    process: float


def _now() -> Times:
    return Times(time.perf_counter(), time.thread_time(), time.process_time())


def _median(runs: list[Times], alone: bool) -> float:
    return statistics.median(one.thread if alone else one.wall for one in runs)


def pick_best(trials: list[Trial], objective: Objective) -> Trial | None:
    """The best trial that meets the criterion; if none does, the one with the least loss."""
    met = [trial for trial in trials if trial.met]
    if met:
        return min(met, key=lambda trial: (objective.value(trial), trial.loss, trial.number))
    complete = [trial for trial in trials if trial.loss is not None]
    return min(complete, key=lambda trial: (trial.loss, trial.number), default=None)
