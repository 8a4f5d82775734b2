"""A trial: one configuration, built and scored. A record with no reference to anything alive."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from quaver.ops import QuantConfig


class TrialState(enum.StrEnum):
    """How an evaluation ended."""

    COMPLETE = "complete"
    FAILED = "failed"
    UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class Trial:
    """What is remembered of one evaluated configuration.

    Attributes:
        number: 1 for the first trial; 0 is the fp32 baseline.
        config: what was tried.
        state: complete, failed with `error`, or unscored: built by a run that has no eval_func.
        score: what eval_func returned; None when the trial failed or is unscored.
        loss: how much worse than the baseline, in the criterion's unit; None when the trial failed, or nobody has
            judged it yet.
        met: whether the score meets the criterion. Like the loss it is judged, not recorded: a criterion may change.
        seconds: time spent in eval_func.
        build_seconds: time spent on everything else of the trial.
        model_hash: sha256 of the complete model file that was scored.
        model_size: its size in bytes.
        measured: figures the objective took, such as {"latency": 0.41, "latency_ms": 3.8, "latency_spread": 0.01}: a
            fraction of the fp32 model's, milliseconds of one inference, and by what part of it two halves of the runs
            differ.
        error: the traceback of a failed trial, or how its worker ended.
        worker: who evaluated it, as machine:process; empty if it was the process of the run itself.
        started: when a worker began with it, in seconds since the epoch; 0 if there was none.
    """

    number: int
    config: QuantConfig
    state: TrialState
    score: float | None = None
    loss: float | None = None
    met: bool = False
    seconds: float = 0.0
    build_seconds: float = 0.0
    model_hash: str = ""
    model_size: int = 0
    measured: dict[str, float] = field(default_factory=dict, hash=False)
    error: str | None = None
    worker: str = ""
    started: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether there is no score because something went wrong."""
        return self.state is TrialState.FAILED

    @property
    def unscored(self) -> bool:
        """Whether there is no score because nobody asked for one."""
        return self.state is TrialState.UNSCORED

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        counts = " / ".join(f"{count} {precision}" for precision, count in self.config.counts.items()) + " ops"
        if self.failed:
            return f"trial {self.number}: failed, {counts}"
        if self.score is None:
            return f"trial {self.number}: not evaluated, {counts}"
        verdict = "" if self.loss is None else f"loss {self.loss:.4g}, {'met' if self.met else 'not met'}, "
        return f"trial {self.number}: score {self.score:.6g}, {verdict}{counts}"
