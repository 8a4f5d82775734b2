"""Everything that happens in a run, as typed events. `quaver.engine.observers` passes them on.

A new event is one class in this file: the log, the console and the live display show its `line`, and `tone` chooses the
colour. An observer that wants more matches on the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from quaver.budget import StopReason
from quaver.engine.event_base import Event, Stage, Tone
from quaver.engine.event_base import RulesWithoutEffect as RulesWithoutEffect
from quaver.formatting import duration, last_line, op_counts, scores, verdict
from quaver.limit import loss_phrase
from quaver.trial import Trial
from quaver.types import PlainMapping

if TYPE_CHECKING:
    from quaver.diagnosis import Diagnosis

# Ops that a line names. Judgement: more do not fit on a line of a terminal.
MAX_NAMED_OPS = 5


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run begins or is resumed. This is the first event.

    Attributes:
        workspace: the folder of the run.
        settings: its settings, as builtins.
        resumed: whether it continues an earlier run.
        spent: seconds of the timeout that earlier runs used.
    """

    workspace: Path
    settings: PlainMapping
    resumed: bool
    spent: float


@dataclass(frozen=True, slots=True)
class StageStarted(Event):
    """A stage begins; `work` is what it does, such as "60 ops on 16 samples", as far as that is known."""

    stage: Stage
    work: str = ""

    def line(self) -> str:
        return f"{self.stage}: {self.work}" if self.work else str(self.stage)


@dataclass(frozen=True, slots=True)
class Progressed(Event):
    """A long stage makes progress; `total` is None while the end is unknown.

    Once it tells the seconds that are `left`, and the stage's `share` of the search until then.
    """

    stage: Stage
    done: int
    total: int | None
    left: float = 0.0
    share: float = 0.0

    def line(self) -> str:
        estimate = f"about {duration(self.left)} left, {self.share:.0%} of the search until then"
        return f"{self.stage}: {estimate}" if self.left else ""


@dataclass(frozen=True, slots=True)
class SettingChanged(Event):
    """A resumed run continues with another value of a setting, or another version of a package."""

    notice: ClassVar[bool] = True

    name: str
    before: Any
    now: Any

    def line(self) -> str:
        return f"resumed run: {self.name} is {self.now!r} from here on; it was {self.before!r}"


@dataclass(frozen=True, slots=True)
class ModelConverted(Event):
    """The model was loaded as another version of its format; `what` is such as "opset 11 to 17"."""

    what: str

    def line(self) -> str:
        return f"the model was converted from {self.what}"


@dataclass(frozen=True, slots=True)
class CalibrationCut(Event):
    """Calibration ended before the data did, after `samples`; `why` is the reason, and how to use more."""

    notice: ClassVar[bool] = True

    samples: int
    why: str

    def line(self) -> str:
        return f"calibrated on the first {self.samples:,} samples: {self.why}"


@dataclass(frozen=True, slots=True)
class Uncalibrated(Event):
    """There is no calibration data, so choices that need calibrated ranges are not offered.

    Attributes:
        ops: how many ops can run with dynamic ranges, or with their weights alone in 8 bits.
        left_out: how many ops stay in fp32 because they can do neither.
    """

    notice: ClassVar[bool] = True

    ops: int
    left_out: int

    def line(self) -> str:
        in_fp32 = f"; {self.left_out} stay in fp32" if self.left_out else ""
        return (
            f"no calibration data: {self.ops} ops can run with dynamic ranges or with weights alone in 8 bits{in_fp32}"
            ". Ops are ranked by the error of their weights, and no latency is measured"
        )


@dataclass(frozen=True, slots=True)
class Planned(Event):
    """The search begins.

    Attributes:
        strategy: the name of the strategy.
        ops: how many ops can be tuned.
        evaluations: the largest number of evaluations, by the strategy's own limit and `max_trials`, without the
            baseline.
        first_success: the largest number that the strategy needs for a first success, if it can tell.
        timeout: seconds; 0 ends the run at the first success.
    """

    strategy: str
    ops: int
    evaluations: int
    first_success: int | None
    timeout: float

    def line(self) -> str:
        limit = f"at most {self.evaluations:,} evaluations, and the baseline"
        if self.first_success is not None and self.first_success < self.evaluations:
            limit += f" (a first success needs at most {self.first_success:,})"
        return f"tuning {self.ops} ops with strategy {self.strategy}: {limit}"


@dataclass(frozen=True, slots=True)
class TimingsReused(Event):
    """The times of ops come from the timing cache and are not measured again."""

    def line(self) -> str:
        return "op times come from an earlier run on this machine (timing_cache=False measures them again)"


@dataclass(frozen=True, slots=True)
class MeasurementDied(Event):
    """A measurement without labels, `what`, ended its process `deaths` times and is skipped."""

    notice: ClassVar[bool] = True
    usual_tone: ClassVar[Tone] = Tone.WARNING

    what: str
    deaths: int

    def line(self) -> str:
        return (
            f"the runtime ended the process {self.deaths} times while measuring {self.what}, so this candidate is "
            "skipped: its error counts as infinite and it counts as slow"
        )


@dataclass(frozen=True, slots=True)
class BaselineScored(Event):
    """The fp32 model has a score."""

    trial: Trial

    def line(self) -> str:
        return f"fp32: score {scores(self.trial)}, {duration(self.trial.seconds)}"


@dataclass(frozen=True, slots=True)
class SamplesOrdered(Event):
    """The scores of the fp32 model do not come in random order, which early stop assumes.

    Attributes:
        metric: the metric of the scores.
        chance: the p-value of that order under randomness.
    """

    notice: ClassVar[bool] = True
    usual_tone: ClassVar[Tone] = Tone.WARNING

    metric: str
    chance: float

    def line(self) -> str:
        return (
            f"the samples do not come in random order (by their {self.metric} in fp32; p = {self.chance:.1g} if they "
            "did), so trials may be stopped too soon or too late: shuffle the samples once, with a fixed seed, or use "
            "early_stop=False"
        )


@dataclass(frozen=True, slots=True)
class TrialStarted(Event):
    """A trial is about to be scored; number 0 is the fp32 model."""

    number: int
    best: Trial | None


@dataclass(frozen=True, slots=True)
class TrialSlow(Event):
    """An evaluation takes far longer than the baseline's did, so it may hang.

    Attributes:
        number: the number of the trial.
        seconds: how long it has been running.
        usual: how long the evaluation of the fp32 model took.
    """

    usual_tone: ClassVar[Tone] = Tone.WARNING

    number: int
    seconds: float
    usual: float

    def line(self) -> str:
        subject = "the baseline" if self.number == 0 else f"trial {self.number}"
        return (
            f"{subject}: eval_func has been running for {duration(self.seconds)}; it took {duration(self.usual)} on "
            "the fp32 model. It may hang. Ctrl-C ends the run with the best so far"
        )


@dataclass(frozen=True, slots=True)
class TrialFinished(Event):
    """A trial is judged and recorded.

    Attributes:
        trial: the trial.
        best: the best trial so far.
        is_relative: whether its loss is a fraction of the baseline.
    """

    trial: Trial
    best: Trial | None
    is_relative: bool = True

    def line(self) -> str:
        trial = self.trial
        if trial.failed:
            return f"trial {trial.number}: failed: {last_line(trial.error)}"
        estimated = "about " if trial.estimated else ""
        loss = "loss unknown" if trial.loss is None else loss_phrase(trial.loss, self.is_relative)
        is_best = self.best is not None and self.best.number == trial.number
        return (
            f"trial {trial.number}: score {estimated}{scores(trial)}, {loss}, {verdict(trial)}, "
            f"{op_counts(trial)} ops, {duration(trial.seconds)}{', best so far' if is_best else ''}"
        )

    def details(self) -> str:
        worker = f", on {self.trial.worker}" if self.trial.worker else ""
        facts = f"trial {self.trial.number}: model built and recorded in {self.trial.build_seconds:.2f} s{worker}"
        return "\n".join(filter(None, [facts, (self.trial.error or "").rstrip()]))

    @property
    def tone(self) -> Tone:
        return Tone.GOOD if self.trial.met else Tone.BAD


@dataclass(frozen=True, slots=True)
class Confirmed(Event):
    """The winner so far was scored on data that took no part in choosing it.

    Attributes:
        number: the number of the trial.
        score: its score on that data.
        baseline: the score of the fp32 model there.
        loss: its loss there, in the criterion's unit.
        met: whether that is within the criterion. If not, the next best trial is scored there too.
    """

    number: int
    score: float
    baseline: float
    loss: float
    met: bool

    def line(self) -> str:
        verdict = "is confirmed" if self.met else "is NOT confirmed"
        return f"trial {self.number} {verdict}: score {self.score:.6g} vs {self.baseline:.6g} in fp32 on other data"

    @property
    def tone(self) -> Tone:
        return Tone.GOOD if self.met else Tone.BAD

    @property
    def is_notice(self) -> bool:
        return not self.met


@dataclass(frozen=True, slots=True)
class StartedFrom(Event):
    """The first trial is the winner of a run on an earlier version of the model.

    Attributes:
        path: the snapshot of that run.
        number: the number of its winner.
        taken: how many ops run as they did there.
        ops: how many ops there are.
        not_offered: ops whose choice there is not offered now.
    """

    notice: ClassVar[bool] = True

    path: Path
    number: int
    taken: int
    ops: int
    not_offered: tuple[str, ...]

    def line(self) -> str:
        start = (
            f"starting from trial {self.number} of {self.path}: {self.taken} of {self.ops} ops run as they did there"
        )
        if not self.not_offered:
            return start
        more = len(self.not_offered) - MAX_NAMED_OPS
        names = ", ".join(self.not_offered[:MAX_NAMED_OPS]) + (f" and {more} more" if more > 0 else "")
        return f"{start}; its choice is no longer offered for {names}"


@dataclass(frozen=True, slots=True)
class Diagnosed(Event):
    """The quantized model was diagnosed; the tables are in the workspace."""

    diagnosis: Diagnosis

    def details(self) -> str:
        return str(self.diagnosis)


@dataclass(frozen=True, slots=True)
class PageOpened(Event):
    """A web page shows the run."""

    notice: ClassVar[bool] = True

    url: str

    def line(self) -> str:
        return f"this run is shown on {self.url}"


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The run is over.

    Attributes:
        reason: why it ended.
        best: the winner, or the most accurate trial if none meets the criterion; None if no trial has a score.
        baseline: the score of the fp32 model; None if nothing was evaluated.
        evaluations: calls of eval_func in all, those of earlier, resumed runs included.
        summary: the result in a few lines.
        stages: the seconds of each stage, and of `EVALUATING`.
    """

    usual_tone: ClassVar[Tone] = Tone.QUIET

    reason: StopReason
    best: Trial | None
    baseline: float | None
    evaluations: int
    summary: str
    stages: Mapping[str, float] = field(default_factory=dict)

    def line(self) -> str:
        longest = sorted(self.stages.items(), key=lambda item: -item[1])
        total = sum(self.stages.values()) or 1.0
        times = "; ".join(f"{stage}: {duration(seconds)} ({seconds / total:.0%})" for stage, seconds in longest)
        return f"done: {self.reason}. {times}"

    def details(self) -> str:
        return self.summary
