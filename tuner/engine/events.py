"""What happens in a run, as typed events, and who is told: the log, the terminal, the page, the user's own."""

from __future__ import annotations

import enum
import logging
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from quaver.budget import StopReason
from quaver.errors import SettingsError
from quaver.trial import Trial
from quaver.types import PlainMapping

if TYPE_CHECKING:
    from quaver.diagnosis import Diagnosis

log = logging.getLogger(__name__)


class Stage(enum.StrEnum):
    """What a run is busy with."""

    READING = "reading the model"
    CALIBRATING = "calibrating"
    SENSITIVITY = "measuring the sensitivity of ops"
    LOCAL_ERRORS = "measuring the error of each op by itself"
    REPAIRS = "measuring what repairs bring"
    TIMING = "timing each op"
    FINALISTS = "measuring the best trials again, in turns"
    CONFIRMING = "scoring the winner on other data"
    DIAGNOSING = "looking into the quantized model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        time: when, in seconds since the epoch.
    """

    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run begins, or goes on; the first event of all.

    Attributes:
        workspace: its folder.
        settings: those it goes by, as builtins.
        resumed: whether it was begun before.
        spent: seconds that earlier runs have used of the timeout.
    """

    workspace: Path
    settings: PlainMapping
    resumed: bool
    spent: float


@dataclass(frozen=True, slots=True)
class StageStarted(Event):
    """A stage begins."""

    stage: Stage


@dataclass(frozen=True, slots=True)
class Progressed(Event):
    """A long stage has come this far; `total` is None when nobody knows the end."""

    stage: Stage
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class SettingChanged(Event):
    """A resumed run goes on with another value of a setting than it had, or another version of a package."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} is {self.now!r} from here on; it was {self.before!r}"


@dataclass(frozen=True, slots=True)
class ModelConverted(Event):
    """The model was read as another version of its format than it was given in; `what` is such as "opset 11 to 17"."""

    what: str

    def __str__(self) -> str:
        return f"the model was converted from {self.what}"


@dataclass(frozen=True, slots=True)
class CalibrationCut(Event):
    """Calibration ended before the data did, after so many samples."""

    samples: int
    why: str

    def __str__(self) -> str:
        return f"calibrated on the first {self.samples:,} samples: {self.why}"


@dataclass(frozen=True, slots=True)
class Uncalibrated(Event):
    """There is no calibration data: what needs ranges found beforehand is left out.

    Attributes:
        ops: how many can run with ranges taken as the model runs, or with their weights alone in 8 bits.
        left_out: how many stay in fp32 because they cannot.
    """

    ops: int
    left_out: int

    def __str__(self) -> str:
        rest = f"; {self.left_out} stay in fp32" if self.left_out else ""
        return (
            f"no calibration data: {self.ops} ops can run with dynamic ranges or with weights alone in 8 bits{rest}. "
            "Ops are ranked by the error of their weights, and no latency is measured"
        )


@dataclass(frozen=True, slots=True)
class Planned(Event):
    """Tuning begins.

    Attributes:
        strategy: its name.
        ops: how many can be tuned.
        evaluations: the most there can be, by the strategy's own end and `max_trials`; the baseline is not counted.
        first_success: the most that the strategy needs to a first success, if it knows.
        timeout: seconds; 0 ends the run at the first success.
    """

    strategy: str
    ops: int
    evaluations: int
    first_success: int | None
    timeout: float

    def __str__(self) -> str:
        most = f"at most {self.evaluations:,} evaluations, and the baseline"
        if self.first_success is not None and self.first_success < self.evaluations:
            most += f" (a first success needs at most {self.first_success:,})"
        return f"tuning {self.ops} ops with strategy {self.strategy}: {most}"


@dataclass(frozen=True, slots=True)
class TimingsReused(Event):
    """What ops take is known from an earlier run on this machine, and not measured again."""

    def __str__(self) -> str:
        return "times of ops are those that an earlier run measured on this machine (timing_cache=False measures anew)"


@dataclass(frozen=True, slots=True)
class MeasurementDied(Event):
    """A measurement without labels ended its process too often and is given up.

    Attributes:
        what: the measurement, such as "the output error of a configuration (conv: int8 minmax)".
        deaths: how often its process ended.
    """

    what: str
    deaths: int

    def __str__(self) -> str:
        return (
            f"the runtime ended the process {self.deaths} times while measuring {self.what}, so this candidate is "
            "skipped: its error counts as infinite and it counts as slow"
        )


@dataclass(frozen=True, slots=True)
class BaselineScored(Event):
    """The fp32 model has its score."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class SamplesOrdered(Event):
    """The scores of the fp32 model do not come in random order, which early stop rests on.

    Attributes:
        metric: whose scores.
        chance: how likely random order looks like that.
    """

    metric: str
    chance: float

    def __str__(self) -> str:
        return (
            f"the samples do not come in random order (by their {self.metric} in fp32; by chance that happens with "
            f"p = {self.chance:.1g}), so trials may be stopped too soon or too late: shuffle them once, with a fixed "
            "seed, or use early_stop=False"
        )


@dataclass(frozen=True, slots=True)
class TrialStarted(Event):
    """A trial is about to be scored; number 0 is the fp32 model."""

    number: int
    best: Trial | None


@dataclass(frozen=True, slots=True)
class TrialSlow(Event):
    """An evaluation takes far longer than the baseline's did. It may hang."""

    number: int
    seconds: float
    usual: float


@dataclass(frozen=True, slots=True)
class TrialFinished(Event):
    """A trial is over, judged and recorded."""

    trial: Trial
    best: Trial | None


@dataclass(frozen=True, slots=True)
class Confirmed(Event):
    """The winner so far was scored on data that took no part in choosing it.

    Attributes:
        number: of the trial.
        score: what it scores there.
        baseline: what the fp32 model scores there.
        loss: how much worse that is, in the criterion's unit.
        met: whether that is within the criterion. If not, the next best trial is scored there, too.
    """

    number: int
    score: float
    baseline: float
    loss: float
    met: bool

    def __str__(self) -> str:
        verdict = "is confirmed" if self.met else "is NOT confirmed"
        return (
            f"trial {self.number} {verdict}: score {self.score:.6g} against {self.baseline:.6g} in fp32 on other data"
        )


@dataclass(frozen=True, slots=True)
class StartedFrom(Event):
    """The first trial is the winner of a run on an earlier version of the model.

    Attributes:
        path: the snapshot of that run.
        number: of its winner.
        taken: how many ops run as they did there.
        ops: how many there are.
        not_offered: ops that ran in a way that is not offered now.
    """

    path: Path
    number: int
    taken: int
    ops: int
    not_offered: tuple[str, ...]

    def __str__(self) -> str:
        said = f"starting from trial {self.number} of {self.path}: {self.taken} of {self.ops} ops run as they did there"
        if not self.not_offered:
            return said
        more = f" and {len(self.not_offered) - 5} more" if len(self.not_offered) > 5 else ""
        return f"{said}; no longer offered is what it chose for {', '.join(self.not_offered[:5])}{more}"


@dataclass(frozen=True, slots=True)
class Diagnosed(Event):
    """The quantized model was looked into; the tables are in the workspace."""

    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class PageOpened(Event):
    """The run can be looked at in a browser."""

    url: str

    def __str__(self) -> str:
        return f"this run is shown on {self.url}"


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The run is over.

    Attributes:
        reason: why.
        best: the winner, or the most accurate trial if none meets the criterion; None if no trial has a score.
        baseline: the score of the fp32 model; None if nothing was evaluated.
        evaluations: calls of eval_func in all, those of earlier, resumed runs included.
        summary: how it ended, in a few sentences, a line each.
    """

    reason: StopReason
    best: Trial | None
    baseline: float | None
    evaluations: int
    summary: str


class Observer(Protocol):
    """Whoever wants to know: anything that can be called with an `Event`. Nothing it does may change the run."""

    def __call__(self, event: Event, /) -> None:
        """Take an event; `match event:` tells which one it is."""


class Observers:
    """Several of them as one. One that fails is reported to the user once; the run goes on."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._failed: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Tell all of them."""
        for index, observer in enumerate(self._observers):
            try:
                observer(event)
            except Exception as error:
                name, what = _name(observer), type(event).__name__
                log.exception("observer %s failed on %s; the run goes on", name, what)
                if index not in self._failed:
                    self._failed.add(index)
                    said = f"observer {name} failed on {what} ({type(error).__name__}: {error}); the run goes on"
                    warnings.warn(said, RuntimeWarning, stacklevel=2)


def make_observers(given: Observer | Iterable[Observer] | None) -> list[Observer]:
    """One observer, several, or none, as a list."""
    listed = [] if given is None else [given] if callable(given) else given
    if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
        raise SettingsError(f"observer must be a function of an event, or a list of them, not {given!r}")
    listed = list(listed)
    for one in listed:
        if not callable(one):
            raise SettingsError(f"observer must be a function of an event, or a list of them, not {one!r}")
    return listed


def silent(event: Event) -> None:
    """Tell nobody."""


def _name(observer: Observer) -> str:
    return getattr(observer, "__qualname__", type(observer).__qualname__)
