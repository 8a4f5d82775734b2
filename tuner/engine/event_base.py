"""The base of all events of a run, the stages that a run goes through, and the tone of a line."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field
from typing import ClassVar

# The name of the time spent in eval_func, among the times of stages.
EVALUATING = "eval_func"


class Stage(enum.StrEnum):
    """A long step of a run. The values are recorded in histories, so they never change."""

    EXPORTING = "exporting the model"
    READING = "reading the model"
    CALIBRATING = "calibrating"
    SENSITIVITY = "measuring the sensitivity of ops"
    OUTPUT_ERRORS = "comparing the outputs of configurations"
    LOCAL_ERRORS = "measuring the error of each op by itself"
    REPAIRS = "measuring what repairs bring"
    TIMING = "timing each op"
    FINALISTS = "measuring the best trials again, in turns"
    CONFIRMING = "scoring the winner on other data"
    WEIGHTS = "measuring what each weight does to the next token"
    DIAGNOSING = "looking into the quantized model"


class Tone(enum.Enum):
    """How a line is to be read; a display chooses the colour."""

    PLAIN = enum.auto()
    GOOD = enum.auto()
    BAD = enum.auto()
    WARNING = enum.auto()
    QUIET = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events.

    Attributes:
        time: when it happened, in seconds since the epoch.
    """

    notice: ClassVar[bool] = False
    usual_tone: ClassVar[Tone] = Tone.PLAIN

    time: float = field(default_factory=time.time)

    def line(self) -> str:
        """Return the event as one line for people; empty if it is not shown."""
        return ""

    def details(self) -> str:
        """Return further lines for the log; empty if there are none."""
        return ""

    @property
    def tone(self) -> Tone:
        """Return how the line is to be read."""
        return self.usual_tone

    @property
    def is_notice(self) -> bool:
        """Return whether the user must hear of it: a run without observers turns the line into a Python warning."""
        return self.notice

    def __str__(self) -> str:
        return self.line() or repr(self)


@dataclass(frozen=True, slots=True)
class RulesWithoutEffect(Event):
    """Rules on types whose ops always run in fp32, such as Softmax, change nothing."""

    types: tuple[str, ...]

    def line(self) -> str:
        return f"ops of type {', '.join(self.types)} always run in fp32, so the rule for them changes nothing"
