"""What is handed to a worker and what comes back: plain data, both of them."""

from __future__ import annotations

import concurrent.futures
import enum
import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from quaver.engine.measurements import Measurement
from quaver.engine.scoring.early_stop import EarlyStopReference
from quaver.errors import SettingsError
from quaver.history.records.choices import from_choice, from_indexes, to_choices, to_indexes
from quaver.ops import Op, OpConfig, QuantConfig
from quaver.scores import Score


class Kind(enum.StrEnum):
    """What is to be found out about a configuration."""

    SCORE = "score"  # by eval_func
    ERROR = "error"  # at the outputs, on calibration samples, beside the float model
    MEASUREMENT = "measurement"  # any other measurement without labels


class State(enum.StrEnum):
    """How a task ended."""

    DONE = "done"
    FAILED = "failed"  # an exception of eval_func's, or the model could not be built
    FULL = "full"  # there was no space on a disk
    DIED = "died"  # the process ended
    ENDED = "ended"  # it took too long, and its process was ended
    ABSENT = "absent"  # the worker does not see the files of the run
    REFUSED = "refused"  # the worker has another model, calibration or version


@dataclass(frozen=True, slots=True)
class Task:
    """One configuration to look at.

    Attributes:
        number: of the trial; 0 is the fp32 model.
        kind: what is asked.
        choices: the distinct ways to run an op, as plain strings.
        picks: the index of each op's choice, in the order of the ops; None is the float model.
        samples: for the error at the outputs, on how many of the kept feeds.
        site: the folder that the run has prepared for workers.
        model: fingerprint of the model.
        calibration: sha256 of the calibration.
        threads: of one inference.
        seconds: how long it may take; None is for ever.
        parcel: the content of the folder, for a worker that does not see it.
        standard: what the scores are held against.
        measurement: what to measure, if it is not the error at the outputs.
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
    parcel: bytes | None = None
    reference: EarlyStopReference | None = None
    measurement: Measurement | None = None

    @classmethod
    def of(cls, number: int, config: QuantConfig | None, kind: Kind = Kind.SCORE, samples: int = 0) -> Task:
        """The task for a configuration; None is the float model."""
        if config is None:
            return cls(number, kind, samples=samples)
        table: dict[OpConfig, int] = {}
        indexes = [table.setdefault(choice, len(table)) for choice in config.values()]
        return cls(number, kind, tuple(map(from_choice, table)), from_indexes(indexes, len(table)), samples)

    def config(self, ops: Sequence[Op]) -> QuantConfig | None:
        """The configuration, of these ops."""
        if self.picks is None:
            return None
        choices = to_choices(list(self.choices))
        picks = to_indexes(self.picks, len(choices), "picks")
        return QuantConfig((op.name, choices[pick]) for op, pick in zip(ops, picks, strict=True))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a task.

    Attributes:
        state: how it ended.
        score: what eval_func said.
        value: the error at the outputs, if that was asked for.
        seconds: spent in eval_func.
        build_seconds: spent on everything else.
        model_hash: sha256 of the model that was scored.
        model_size: its size in bytes.
        worker: who did it, as machine:process; empty for the process of the run.
        started: when, in seconds since the epoch.
        error: the traceback, or how the process ended.
        said: the same in a line.
        exception: what was raised, if it was in this process.
        result: what was measured, if it is not the error at the outputs.
    """

    state: State
    value: float = 0.0
    score: Score | None = None
    seconds: float = 0.0
    build_seconds: float = 0.0
    model_hash: str = ""
    model_size: int = 0
    worker: str = ""
    started: float = 0.0
    error: str = ""
    said: str = ""
    exception: BaseException | None = None
    result: Any = None


class Executor(Protocol):
    """Whoever carries out tasks. The loop knows no more of it.

    Attributes:
        jobs: how many tasks it works on at once.
        isolated: whether a task that ends its process leaves the run alone.
    """

    @property
    def jobs(self) -> int: ...

    @property
    def isolated(self) -> bool: ...

    def submit(self, task: Task) -> Future[Outcome]:
        """Begin with a task, or line it up."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Whoever has the workers, and how many there are.

    Attributes:
        executor: takes tasks.
        jobs: how many it works on at once.
        threads: of one inference on a worker; 0 leaves it to the runtime.
        deaths: what a future raises when its worker died.
        stop: ends what is under way, as far as that is possible, once the last trial is told.
    """

    executor: concurrent.futures.Executor
    jobs: int
    threads: int
    deaths: tuple[type[BaseException], ...] = ()
    stop: Callable[[], None] = lambda: None


# However short the evaluation of the fp32 model was, one of so many seconds does not hang yet.
LEAST = 1.0


def check_limit(value: Any) -> float | str | None:
    """`trial_timeout` as users write it: seconds, or "10x" for ten times what the fp32 model took; None is no limit."""
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


def limit(wanted: float | str | None, usual: float | None) -> float | None:
    """Seconds that an evaluation may take; `usual` is what that of the fp32 model took, if it is known."""
    if wanted is None or isinstance(wanted, float):
        return wanted
    return None if usual is None else max(float(wanted[:-1]) * usual, LEAST)
