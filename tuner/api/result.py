"""What `fit` returns. Never None."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from quaver.api.display.format import (
    confirmed_phrases,
    converted_phrase,
    latency_phrase,
    lost_phrases,
    predicted_phrase,
    seen_phrase,
    sure_line,
)
from quaver.api.display.html import WARNED, as_html, trial_rows
from quaver.api.plugins import load_view
from quaver.api.result_warnings import drift_phrase, no_gain_summary, size_phrase, warn_of_batch_dependence
from quaver.budget import StopReason
from quaver.criterion import Criterion
from quaver.engine.inspection.output_drift import OutputDrift
from quaver.engine.scoring.benefit import Benefit, benefit
from quaver.engine.scoring.confirmation import Confirmation
from quaver.engine.scoring.judge import Confidence, pareto
from quaver.engine.scoring.losses import LimitLoss
from quaver.engine.timing.objective import Objective
from quaver.errors import MissingPackageError, ModelError
from quaver.files.paths import expanded
from quaver.processors import Portability
from quaver.trial import Trial
from quaver.unquantizable import Unquantizable, in_words

if TYPE_CHECKING:
    from pandas import DataFrame

    from quaver.adapters import Model
    from quaver.adapters.comparison import Comparison
    from quaver.diagnosis import Diagnosis
    from quaver.insights import Plot


@dataclass(frozen=True, slots=True)
class TuneResult:
    """How a run ended.

    Attributes:
        best: the winner among the trials that meet the criterion; the most accurate trial if none does (of a budget the
            one that comes nearest to it); None if no trial has a score. Without eval_func, the one that was built.
        baseline: the score of the fp32 model; None without eval_func.
        met: whether `best` meets the criterion, or keeps the budget that takes its place; None without eval_func.
        reason: why the run stopped.
        trials: all trials, those of earlier, resumed runs included.
        criterion: what was asked for.
        objective: what decides between trials that meet it.
        workspace: the folder of the run.
        history_path: its history.snapshot, from which any trial can be rebuilt.
        model_path: the best model, saved in the workspace; None if there is none.
        model: the best model, callable; None if there is none.
        diagnosis: what was found if it was asked for: the best trial, with the ops that were sent back in int8 too.
        unquantizable: what computes in the model and can only run in float, with its share of the fp32 model's time.
        conversions: what the model was converted from and to when it was read, such as ("opset 11 to 17",).
        comparison: how the float model that was tuned compares with the model as given; None of a run before 0.3.0.
        target: what the machine is called that latencies are predicted for; empty if it is this one.
        fp32_measured: figures of the fp32 model: `latency_ms` of the optimised one and its `latency_spread`,
            `as_given_ms` of the one given if that is another, and the `batch` and `threads` of all latencies.
        fp32: the fp32 model's trial, with its metrics and the scores of samples.
        losses: what the best trial loses by each limit of the criterion, slices included, the worst first.
        sureness: how sure it is that the best trial's loss on such data is within the criterion; None without scores of
            samples.
        confirmations: what trials score on the data of `confirm`, in the order they were tried.
        output_drift: how far the best model's outputs are from the float model's on a few calibration samples:
            `relative_error` and, for classifiers, `top1_agreement`. None without samples.
        warnings: what must not be overlooked, a sentence or two each: a best model that is no faster than the float
            model, quantized trials that all failed, and the like. A result with warnings is no plain success.
        skipped_measurements: measurements without labels that were given up because they ended their process.
        portability: which processor the verdict was measured on, and on which others it holds.
    """

    best: Trial | None
    baseline: float | None
    met: bool | None
    reason: StopReason
    trials: tuple[Trial, ...]
    criterion: Criterion
    objective: Objective
    workspace: Path
    history_path: Path
    model_path: Path | None
    model: Model | None = field(repr=False, default=None)
    diagnosis: Diagnosis | None = field(repr=False, default=None)
    unquantizable: tuple[Unquantizable, ...] = ()
    conversions: tuple[str, ...] = ()
    comparison: Comparison | None = None
    target: str = ""
    fp32_measured: Mapping[str, float] = field(default_factory=dict, hash=False)
    fp32: Trial | None = field(repr=False, default=None)
    losses: tuple[LimitLoss, ...] = field(repr=False, default=())
    confidence: Confidence | None = None
    confirmations: tuple[Confirmation, ...] = ()
    output_drift: OutputDrift | None = None
    warnings: tuple[str, ...] = ()
    skipped_measurements: tuple[str, ...] = ()
    portability: Portability | None = field(repr=False, default=None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the best model to a file, also one that misses the criterion: look at `met` first."""
        if self.model is None and self.best is not None:
            raise ModelError(
                f"the best model was not saved by this run: quaver.recover(model, {str(self.history_path)!r}, "
                f"{self.best.number}) writes it"
            )
        if self.model is None:
            raise ModelError("no trial has a score, so there is no best model to save; see the errors in `trials`")
        return self.model.save(expanded(path))

    def to_dataframe(self) -> DataFrame:
        """The trials as a pandas table, a row each: score, verdict, ops in each precision, seconds, measurements."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise MissingPackageError(
                "to_dataframe needs pandas, which is not installed: pip install pandas"
            ) from error
        return DataFrame(trial_rows(self.trials))

    @property
    def confirmed(self) -> bool | None:
        """Whether the best trial meets the criterion on the data of `confirm`, too; None if it was not scored there."""
        said = {one.trial: one.met for one in self.confirmations}
        return None if self.best is None else said.get(self.best.number)

    @property
    def benefit(self) -> Benefit | None:
        """Return the best trial's latency or size compared with the float model's, by what the run was tuned for."""
        return benefit(self.best, self.objective, self.fp32)

    def pareto(self) -> tuple[Trial, ...]:
        """The trials that no other beats in both accuracy and objective, the best by objective first.

        Latency and a user's objective are measured only for trials that meet the criterion, so only those are
        compared by them; size and the number of int8 ops are known of every trial.
        """
        return pareto(self.trials, self.objective.trade_against)

    @property
    def plot(self) -> Plot:
        """Figures of the run, made with plotly: `trials()`, `pareto()`, `ops()`, `histogram(op)`."""
        found: Plot = load_view("plot")(self.workspace)
        return found

    @property
    def evaluations(self) -> int:
        """How often eval_func was called in all, the baseline included."""
        return sum(not trial.unscored for trial in self.trials) + (self.baseline is not None)

    def __repr__(self) -> str:
        tried = f"{len(self.trials)} trial{'' if len(self.trials) == 1 else 's'}"
        if self.best is None:
            return f"<TuneResult: nothing found in {tried}, fp32 scores {self.baseline:.6g}>"
        if self.met is None:
            return f"<TuneResult: not evaluated, {self._counts(' / ')} ops, trial {self.best.number} of {tried}>"
        counts = self._counts(" / ")
        no_gain = no_gain_summary(self.benefit)
        verdict = ("met" if self.met else "NOT met") + (f" {'but' if self.met else 'and'} {no_gain}" if no_gain else "")
        return (
            f"<TuneResult: {verdict}, score {self.best.score:.6g} against {self.baseline:.6g} "
            f"in fp32, {counts} ops, trial {self.best.number} of {tried}>"
        )

    def _repr_html_(self) -> str:
        """For notebooks."""
        return as_html(self)

    def __str__(self) -> str:
        latency = "" if self.best is None else latency_phrase(self.best.measured, self.fp32_measured)
        predicted = "" if self.best is None else predicted_phrase(self.best.measured, self.target)
        here = f"{latency}, on this machine" if predicted and latency else latency
        equal = "" if self.comparison is None else str(self.comparison)
        model = converted_phrase(self.conversions), equal, in_words(self.unquantizable)
        where = "" if self.portability is None else str(self.portability)
        warned = [f"{WARNED}{text}" for text in self.warnings]
        notes = drift_phrase(self.output_drift), *model, warn_of_batch_dependence(self.best)
        lines = self._verdict(), *warned, *self.trust, *notes, predicted, here, size_phrase(self.benefit), where
        return "\n".join(filter(None, lines))

    @property
    def trust(self) -> list[str]:
        """How far the verdict can be trusted, a line each: limits, interval, sureness, other data, samples saved."""
        if self.best is None or self.best.unscored:
            return []
        said = list(lost_phrases(self.losses))
        said.append(sure_line(self.best, self.confidence, self.criterion))
        said += confirmed_phrases(self.confirmations, self.criterion)
        said.append(seen_phrase(self.trials, 0 if self.fp32 is None else self.fp32.seen))
        return [line for line in said if line]

    def _counts(self, between: str) -> str:
        counts = {} if self.best is None else self.best.config.counts
        return between.join(f"{count} {precision}" for precision, count in counts.items())

    def _verdict(self) -> str:
        if self.best is None:
            return f"nothing found ({self.reason}); fp32 scores {self.baseline:.6g}"
        if self.met is None:
            how = f"{self._counts(' and ')} ops, chosen without labels"
            return f"trial {self.best.number} was not evaluated: {how}; pass eval_func to see whether it is good enough"
        verdict = "meets" if self.met else "does NOT meet"
        if self.best.met and not self.met:
            verdict = f"meets ({'but not' if self.confirmed is False else 'but is not confirmed'} on other data)"
        if self.criterion.target_budget is not None:
            verdict = "is the most accurate within" if self.met else "comes nearest to, but does NOT keep,"
        only = ", but runs all in fp32: nothing was quantized" if not self.best.config.quantized_ops else ""
        no_gain = no_gain_summary(self.benefit)
        if no_gain and not only:
            only = f", {'but' if self.met else 'and'} is {no_gain}"
        counts = self._counts(" and ")
        return (
            f"trial {self.best.number} {verdict} the {self.criterion.called} ({self.criterion}){only}: "
            f"score {self.best.score:.6g} against {self.baseline:.6g} in fp32, {counts} ops, "
            f"after {self.evaluations} evaluations ({self.reason})"
        )
