"""Observers of a run: functions that are called with each event."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable
from typing import Protocol

from quaver.engine.event_base import EVALUATING, Event
from quaver.engine.events import BaselineScored, Planned, RunFinished, StageStarted, TrialFinished, TrialStarted
from quaver.errors import SettingsError

log = logging.getLogger(__name__)


class StageTimes:
    """An observer that adds up the seconds of each stage, and of eval_func.

    A stage ends when the next one, the search or a trial begins. Trials overlap when several workers evaluate, so the
    time of eval_func is the sum of what the trials of this run report.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage, self._since = "", 0.0
        self._evaluating = 0.0
        self._baseline_started = False

    def __call__(self, event: Event) -> None:
        """Add the time that an event marks."""
        match event:
            case StageStarted(stage=stage):
                self._end(event.time)
                self._stage, self._since = str(stage), event.time
            case TrialStarted(number=number):
                self._end(event.time)
                self._baseline_started = self._baseline_started or number == 0
            case BaselineScored(trial=trial) if self._baseline_started:  # a resumed run reports its earlier baseline
                self._evaluating += trial.seconds
            case TrialFinished(trial=trial):
                self._end(event.time)
                self._evaluating += trial.seconds
            case Planned() | RunFinished():
                self._end(event.time)

    @property
    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage so far, the current one included."""
        self._end(time.time())
        return dict(self._seconds)

    @property
    def all(self) -> dict[str, float]:
        """Return the seconds of each stage and of eval_func."""
        return self.stages | ({EVALUATING: self._evaluating} if self._evaluating else {})

    def _end(self, now: float) -> None:
        if self._stage:
            self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + max(now - self._since, 0.0)
        self._stage = ""


class Observer(Protocol):
    """Anything that can be called with an `Event`. Nothing that it does may change the run."""

    def __call__(self, event: Event, /) -> None:
        """Handle an event; `match event:` tells its kind."""


class Observers:
    """Several observers as one. A failing observer is reported to the user once, and the run continues."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._failed: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Pass an event to all of them."""
        for index, observer in enumerate(self._observers):
            try:
                observer(event)
            except Exception as error:
                name, kind = _name(observer), type(event).__name__
                log.exception("observer %s failed on %s; the run continues", name, kind)
                if index not in self._failed:
                    self._failed.add(index)
                    message = f"observer {name} failed on {kind} ({type(error).__name__}: {error}); the run continues"
                    warnings.warn(message, RuntimeWarning, stacklevel=2)


def make_observers(observer: Observer | Iterable[Observer] | None) -> list[Observer]:
    """Return one observer, several or none as a list."""
    observers = [] if observer is None else [observer] if callable(observer) else observer
    if isinstance(observers, str | bytes) or not isinstance(observers, Iterable):
        raise SettingsError(f"observer must be a function of an event, or a list of them, not {observer!r}")
    observers = list(observers)
    for item in observers:
        if not callable(item):
            raise SettingsError(f"observer must be a function of an event, or a list of them, not {item!r}")
    return observers


def silent(event: Event) -> None:
    """Ignore an event."""


def _name(observer: Observer) -> str:
    return getattr(observer, "__qualname__", type(observer).__qualname__)
