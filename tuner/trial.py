"""A trial: one configuration, built and scored. A record with no reference to anything alive."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from quaver.limit import loss_phrase
from quaver.ops import QuantConfig
from quaver.scores import UNNAMED, Samples


class TrialState(enum.StrEnum):
    """How an evaluation ended."""

    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"
    UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class Trial:
    """What is remembered of one evaluated configuration.

    Attributes:
        number: 1 for the first trial; 0 is the fp32 baseline.
        config: what was tried.
        state: complete, stopped when the samples seen had ruled it out, failed with `error`, or unscored: built by a
            run that has no eval_func.
        score: what eval_func returned, the first of several metrics; an estimate when the trial was stopped, None when
            it failed or is unscored.
        metrics: all that it returned, by name; empty if it gives one number without a name.
        samples: the scores of samples, by the name of their metric ("score" without one), as far as they were seen.
        loss: how much worse than the baseline, in the criterion's unit; None when the trial failed, or nobody has
            judged it yet.
        met: whether the score meets the criterion. Like the loss it is judged, not recorded: a criterion may change.
        interval: between what the loss on such data lies, where there are scores of samples; judged, too.
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
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    samples: Mapping[str, Samples] = field(default_factory=dict, hash=False, repr=False)
    interval: tuple[float, float] | None = None

    @property
    def by_name(self) -> Mapping[str, float]:
        """All metrics; one without a name is called "score". Empty when the trial failed."""
        return self.metrics or ({} if self.score is None else {UNNAMED: self.score})

    @property
    def stopped(self) -> bool:
        """Whether the evaluation was ended early, because the trial could not meet the criterion any more."""
        return self.state is TrialState.STOPPED

    @property
    def estimated(self) -> bool:
        """Whether score and loss are estimates, from the samples that were seen."""
        return self.stopped

    @property
    def seen(self) -> int:
        """How many samples were scored; 0 if eval_func does not tell."""
        return max(map(len, self.samples.values()), default=0)

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
        verdict = ""
        if self.loss is not None:  # the trial does not know whether the loss is relative
            verdict = f"{loss_phrase(self.loss, relative=False)}, {'met' if self.met else 'not met'}, "
        if self.stopped:
            return f"trial {self.number}: stopped after {self.seen} samples, about {verdict}{counts}"
        return f"trial {self.number}: score {self.score:.6g}, {verdict}{counts}"
