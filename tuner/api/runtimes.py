"""Several runtimes compared: the best file of each, timed the same way, and which one wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from quaver.errors import SettingsError
from quaver.types import PlainDict, PlainMapping

# The value of `runtime` that tunes for every runtime of a model.
FASTEST = "fastest"
# The note of a history that holds the outcomes of all runtimes.
NOTE = "runtimes"


@dataclass(frozen=True, slots=True)
class RuntimeOutcome:
    """The best file for one runtime.

    Attributes:
        runtime: the value of `runtime`.
        wins: True for the file and the runtime that were chosen.
        met: whether it meets the criterion; None if nothing was evaluated.
        score: its score; None if nothing was evaluated.
        trial: its trial in the history of this runtime; None if no trial has a score.
        evaluations: calls of eval_func for this runtime, the baseline included.
        latency: of the file, relative to the fp32 model in the usual runtime; all were timed interleaved. None if there
            were no samples to time on.
        fp32_latency: the same of the fp32 model in this runtime.
        milliseconds: of one inference of the file.
        workspace: the folder of the run.
    """

    runtime: str
    wins: bool
    met: bool | None
    score: float | None
    trial: int | None
    evaluations: int
    latency: float | None
    fp32_latency: float | None
    milliseconds: float | None
    workspace: str

    def to_dict(self) -> PlainDict:
        """Return builtins, for the history and for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, noted: PlainMapping) -> RuntimeOutcome:
        """Return the outcome that `to_dict` made builtins of."""
        return cls(**{name: noted[name] for name in cls.__dataclass_fields__})

    def __str__(self) -> str:
        verdict = {True: "meets the criterion", False: "misses the criterion", None: "not evaluated"}[self.met]
        score = "" if self.score is None else f", score {self.score:.6g}"
        figures = f"{self.runtime}: {verdict}{score}, {self.evaluations} evaluations"
        if self.latency is None or self.milliseconds is None:
            return figures
        fp32 = "" if self.fp32_latency is None else f"; its fp32 {self.fp32_latency:.2f}x"
        return f"{figures}, {self.latency:.2f}x ({self.milliseconds:.3g} ms{fp32})"


def check_single(runtime: str | None) -> None:
    """Refuse a run in all runtimes where one is needed."""
    if runtime == FASTEST:
        raise SettingsError('runtime="fastest" makes a run for each runtime, which only fit does: name one runtime')


def comparison_lines(outcomes: Sequence[RuntimeOutcome]) -> list[str]:
    """Return which runtime wins and the figures of all, a line each; nothing for a run in one runtime."""
    winner = next((outcome for outcome in outcomes if outcome.wins), None)
    if winner is None:
        return []
    reference = "latencies relative to fp32 in the usual runtime, all timed interleaved"
    return [f"the fastest runtime is {winner.runtime} ({reference}):", *(f"  {outcome}" for outcome in outcomes)]


def noted_outcomes(notes: PlainMapping) -> tuple[RuntimeOutcome, ...]:
    """Return the outcomes that a history holds; nothing if it has none that can be read."""
    noted = notes.get(NOTE)
    try:
        return tuple(map(RuntimeOutcome.from_dict, noted)) if isinstance(noted, list | tuple) else ()
    except (AttributeError, KeyError, TypeError):
        return ()


def order_of(outcome: RuntimeOutcome, loss: float | None) -> tuple[bool, float, float]:
    """Return a key: those that meet the criterion first, by latency; the others by loss."""
    misses = outcome.met is False or outcome.trial is None
    latency = math.inf if outcome.latency is None else outcome.latency
    return misses, (math.inf if loss is None else loss) if misses else 0.0, latency
