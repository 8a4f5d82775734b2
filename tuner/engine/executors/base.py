"""Tasks, their outcomes and the executors that carry them out."""

from __future__ import annotations

import concurrent.futures
import contextlib
import enum
import math
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from quaver.adapters import Model
from quaver.engine.measurements import Measurement
from quaver.engine.scoring.early_stop import EarlyStopReference
from quaver.errors import SettingsError
from quaver.history.records.choices import from_choice, from_indexes, to_choices, to_indexes
from quaver.ops import Op, OpConfig, QuantConfig
from quaver.scores import Score
from quaver.trial import Trial, TrialState


class Kind(enum.StrEnum):
    """The question that a task asks about a configuration."""

    SCORE = "score"  # by eval_func
    ERROR = "error"  # of the outputs, on calibration samples, compared with the float model
    MEASUREMENT = "measurement"  # any other measurement without labels


class State(enum.StrEnum):
    """How a task ended."""

    DONE = "done"
    FAILED = "failed"  # eval_func raised an exception, or the model could not be built
    FULL = "full"  # a disk was full
    DIED = "died"  # the process ended
    ENDED = "ended"  # it took too long, so its process was ended
    ABSENT = "absent"  # the worker does not see the files of the run
    REFUSED = "refused"  # the worker has another model, calibration or version


@dataclass(frozen=True, slots=True)
class Task:
    """A configuration to score or to measure. Everything but `build` is plain data, for workers.

    Attributes:
        number: the number of the trial; 0 is the fp32 model.
        kind: what is asked.
        choices: the distinct ways to run an op, as plain strings.
        picks: the index of each op's choice, in the order of the ops; None is the float model.
        samples: for the error of the outputs, how many probe samples to run.
        site: the folder that the run prepared for workers.
        model: the fingerprint of the model.
        calibration: the sha256 of the calibration.
        threads: threads of one inference.
        seconds: how long the task may take; None is no limit.
        archive: the content of the folder, for a worker that does not see it.
        reference: what early stop compares the scores with.
        measurement: what to measure, if it is not the error of the outputs.
        build: builds the model, for executors of this process; workers build it from the files of the run.
        usual: seconds that the evaluation of the fp32 model took, if that is known.
    """

    number: int
    kind: Kind = Kind.SCORE
    choices: tuple[tuple[Any, ...], ...] = ()
    picks: bytes | None = None
    samples: int = 0
    site: str = ""
    model: str = ""
    calibration: str = ""
    threads: int = 0
    seconds: float | None = None
    archive: bytes | None = None
    reference: EarlyStopReference | None = None
    measurement: Measurement | None = None
    build: Callable[[], Model] | None = field(default=None, repr=False, compare=False)
    usual: float | None = None

    @classmethod
    def of(cls, number: int, config: QuantConfig | None, kind: Kind = Kind.SCORE, samples: int = 0) -> Task:
        """Return the task for a configuration; None is the float model."""
        if config is None:
            return cls(number, kind, samples=samples)
        table: dict[OpConfig, int] = {}
        indexes = [table.setdefault(choice, len(table)) for choice in config.values()]
        return cls(number, kind, tuple(map(from_choice, table)), from_indexes(indexes, len(table)), samples)

    def config(self, ops: Sequence[Op]) -> QuantConfig | None:
        """Return the configuration, for these ops."""
        if self.picks is None:
            return None
        choices = to_choices(list(self.choices))
        picks = to_indexes(self.picks, len(choices), "picks")
        return QuantConfig((op.name, choices[pick]) for op, pick in zip(ops, picks, strict=True))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of a model, wherever it ran. It becomes the trial.

    Attributes:
        score: what eval_func returned; None if it failed.
        seconds: time spent in eval_func.
        build_seconds: time spent on everything else.
        model_hash: the sha256 of the model that was scored.
        model_size: its size in bytes.
        error: the traceback, or how the process ended; empty with a score.
        worker: the evaluating process, as machine:process; empty for the process of the run.
        started: when a worker began, in seconds since the epoch.
    """

    score: Score | None = None
    seconds: float = 0.0
    build_seconds: float = 0.0
    model_hash: str = ""
    model_size: int = 0
    error: str = ""
    worker: str = ""
    started: float = 0.0

    def to_trial(self, number: int, config: QuantConfig) -> Trial:
        """Return the trial of a configuration that was evaluated like this."""
        score = self.score
        state = TrialState.FAILED
        if score is not None:
            state = TrialState.STOPPED if score.stopped else TrialState.COMPLETE
        return Trial(
            number,
            config,
            state,
            None if score is None else score.value,
            seconds=self.seconds,
            build_seconds=self.build_seconds,
            model_hash=self.model_hash,
            model_size=self.model_size,
            error=self.error if score is None else None,
            worker=self.worker,
            started=self.started,
            metrics={} if score is None else score.metrics,
            samples={} if score is None else score.samples,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended, and what came of it.

    Attributes:
        state: how it ended.
        evaluation: the evaluation of the model; without a score if it failed, or if the task was a measurement.
        message: the error in one line.
        result: what was measured.
        exception: what was raised, if that was in this process.
    """

    state: State
    evaluation: Evaluation = Evaluation()
    message: str = ""
    result: Any = None
    exception: BaseException | None = None


class Executor(Protocol):
    """Anything that carries out tasks.

    Attributes:
        jobs: how many tasks it works on at once.
        isolated: whether the run survives a task that ends its process.
    """

    @property
    def jobs(self) -> int: ...

    @property
    def isolated(self) -> bool: ...

    def submit(self, task: Task) -> Future[Outcome]:
        """Start a task, or queue it."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers that are open.

    Attributes:
        executor: takes tasks.
        jobs: how many tasks it works on at once.
        threads: threads of one inference on a worker; 0 leaves it to the runtime.
        deaths: what a future raises when its worker died.
        stop: ends running tasks, as far as that is possible, once the last trial is recorded.
    """

    executor: concurrent.futures.Executor
    jobs: int
    threads: int
    deaths: tuple[type[BaseException], ...] = ()
    stop: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """The workers that a backend is asked to open.

    Attributes:
        scheduler: the address of a cluster; None is the connected one.
        jobs: evaluations at once; -1 is one for each core or worker; None lets the backend decide.
        threads: threads of one inference; 0 leaves that open.
        active: joblib's active backend, if that is where this one was chosen.
    """

    scheduler: str | None
    jobs: int | None
    threads: int
    active: object = None


@dataclass(frozen=True, slots=True)
class Backend:
    """Where workers run. A module of this package offers one by the name `BACKEND`, and needs nothing else.

    Attributes:
        name: the name in settings, and of the extra that installs what it needs.
        open: opens its workers. An ImportError in it means that the extra is missing.
        joblib_classes: the backends of joblib that it stands for.
        has_scheduler: whether it connects to an address.
    """

    name: str
    open: Callable[[PoolRequest], contextlib.AbstractContextManager[Pool]]
    joblib_classes: tuple[str, ...] = ()
    has_scheduler: bool = True


def threads_per_job(threads: int, jobs: int) -> int:
    """Return the threads of one inference, so that jobs share the cores of a machine; 0 leaves it to the runtime."""
    if jobs == 1:
        return threads
    share = max(cores() // jobs, 1)
    return min(threads, share) if threads else share


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # macOS has none
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Seconds that an evaluation may always take, however fast that of the fp32 model was. Judgement: it includes the time
# to load the data once more in a new process.
MIN_LIMIT = 1.0


def check_limit(value: object) -> float | str | None:
    """Return a valid `trial_timeout`: seconds, "10x" for ten times the fp32 model's time, or None for no limit."""
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?x", value.strip()) and float(value.strip()[:-1]) > 1:
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    raise SettingsError(
        f"`trial_timeout` must be seconds above 0, or a text such as '10x' for ten times what the fp32 model took, "
        f"not {value!r}"
    )


def limit(trial_timeout: float | str | None, usual: float | None) -> float | None:
    """Return the seconds that an evaluation may take; None is no limit.

    Args:
        trial_timeout: the setting.
        usual: seconds that the evaluation of the fp32 model took, if that is known.
    """
    if trial_timeout is None or isinstance(trial_timeout, float):
        return trial_timeout
    return None if usual is None else max(float(trial_timeout[:-1]) * usual, MIN_LIMIT)
