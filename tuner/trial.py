"""A trial: the record of one configuration, built and scored."""

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
    """The record of one configuration.

    Attributes:
        number: 1 for the first trial; 0 is the fp32 baseline.
        config: the configuration.
        state: complete, stopped because its samples so far ruled it out, failed with `error`, or unscored: built by a
            run without an eval_func.
        score: what eval_func returned, the first of several metrics; an estimate when the trial was stopped, None when
            it failed or is unscored.
        metrics: all metrics by name; empty if eval_func returns one number without a name.
        samples: the scores of samples, by the name of their metric ("score" without one), as far as they were scored.
        loss: in the criterion's unit; None when the trial failed, or is not judged yet.
        met: True if the score meets the criterion. Like the loss it is judged, not recorded: a criterion may change.
        interval: the confidence interval of the loss, where there are scores of samples; judged, too.
        seconds: the time spent in eval_func.
        build_seconds: the time spent on everything else of the trial.
        model_hash: sha256 of the complete model file that was scored.
        model_size: the size of that file in bytes.
        measured: the figures of the objective, such as {"latency": 0.41, "latency_ms": 3.8, "latency_spread": 0.01}: a
            fraction of the fp32 model's, milliseconds of one inference, and the error bar as a part of it: the
            difference between two halves of the runs.
        error: the traceback of a failed trial, or how its worker ended.
        worker: the worker that evaluated it, as machine:process; empty if it was the process of the run itself.
        started: when the worker began, in seconds since the epoch; 0 if there was none.
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
        """True if the evaluation was stopped early, because the trial could not meet the criterion any more."""
        return self.state is TrialState.STOPPED

    @property
    def estimated(self) -> bool:
        """True if score and loss are estimates, from the samples that were scored."""
        return self.stopped

    @property
    def seen(self) -> int:
        """The number of samples that were scored; 0 if eval_func does not score samples."""
        return max(map(len, self.samples.values()), default=0)

    @property
    def failed(self) -> bool:
        """True if there is no score because something failed."""
        return self.state is TrialState.FAILED

    @property
    def unscored(self) -> bool:
        """True if there is no score because the run had no eval_func."""
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
