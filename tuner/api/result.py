"""The result of a run: `TuneResult`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from quaver.api.display.format import (
    converted_phrase,
    early_stop_phrase,
    latency_phrase,
    predicted_phrase,
    trust_phrases,
)
from quaver.api.display.html import WARNED, as_html, trial_rows
from quaver.api.fastest import RuntimeOutcome, comparison_lines
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
from quaver.engine.timing.steps import StepLatencies
from quaver.engine.weight_probe import recorded_table
from quaver.errors import MissingPackageError, ModelError
from quaver.files.paths import expanded
from quaver.history import read_snapshot
from quaver.processors import Portability
from quaver.trial import Trial
from quaver.unquantizable import Unquantizable, in_words
from quaver.weight_table import Assignment

if TYPE_CHECKING:
    from pandas import DataFrame

    from quaver.adapters import Model
    from quaver.adapters.comparison import Comparison
    from quaver.diagnosis import Diagnosis
    from quaver.insights import Plot


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The result of a run: the best trial, its model, and how reliable the verdict is.

    Attributes:
        best: the winner among the trials that meet the criterion; the most accurate trial if none does (with a target
            budget, the one nearest to it); None if no trial has a score. Without eval_func, the trial that was built.
        baseline: the score of the fp32 model; None without eval_func.
        met: whether `best` meets the criterion, or keeps the target budget; None without eval_func.
        reason: why the run stopped.
        trials: all trials, those of earlier, resumed runs included.
        criterion: the accuracy to keep.
        objective: decides between trials that meet it.
        workspace: the folder of the run.
        history_path: its history.snapshot, from which any trial can be rebuilt.
        model_path: the best model, saved in the workspace; None if there is none.
        model: the best model, which can be called; None if there is none.
        diagnosis: the diagnosis of the best trial, with its fallback ops in int8; None without `diagnosis=True`.
        unquantizable: op kinds that can only run in float, with their share of the fp32 latency.
        conversions: what was converted when the model was loaded, such as ("opset 11 to 17",).
        comparison: the difference between the optimised float model and the model as given; None before 0.3.0.
        target: the name of the machine that latencies are predicted for; empty for this machine.
        fp32_measured: figures of the fp32 model: `latency_ms` of the optimised one and its `latency_spread`,
            `as_given_ms` of the model as given if that differs, and the `batch` and `threads` of all latencies.
        fp32: the fp32 model's trial, with its metrics and the scores of samples.
        losses: the loss of the best trial by each limit of the criterion, slices included, the worst first.
        confidence: the confidence that the best trial's loss on such data is within the criterion; None without scores
            of samples.
        confirmations: the scores of trials on the data of `confirm`, in order.
        output_drift: the difference between the outputs of the best and the float model on a few samples:
            `relative_error` and, for classifiers, `top1_agreement`. None without samples.
        step_latencies: the latencies of a prompt and of the next token, for a decoder with a cache; None for others.
        warnings: problems that the verdict does not show, a sentence or two each: a best model that is no faster than
            the float model, quantized trials that all failed, and so on.
        skipped_measurements: measurements without labels that were skipped because they ended their process.
        portability: the processor that the verdict was measured on, and those on which it holds.
        runtimes: with `runtime="fastest"`, the best file for each runtime and which one wins; this result is that of
            the winner.
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
    step_latencies: StepLatencies | None = None
    warnings: tuple[str, ...] = ()
    skipped_measurements: tuple[str, ...] = ()
    portability: Portability | None = field(repr=False, default=None)
    runtimes: tuple[RuntimeOutcome, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the best model to a file, even if it misses the criterion: check `met` first."""
        if self.model is None and self.best is not None:
            raise ModelError(
                f"the best model was not saved by this run: quaver.recover(model, {str(self.history_path)!r}, "
                f"{self.best.number}) writes it"
            )
        if self.model is None:
            raise ModelError("no trial has a score, so there is no best model to save; see the errors in `trials`")
        return self.model.save(expanded(path))

    def to_dataframe(self) -> DataFrame:
        """Return the trials as a pandas DataFrame: score, verdict, ops in each precision, seconds, measured figures."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise MissingPackageError(
                "to_dataframe needs pandas, which is not installed: pip install pandas"
            ) from error
        return DataFrame(trial_rows(self.trials))

    @property
    def confirmed(self) -> bool | None:
        """Return whether the best trial meets the criterion on the data of `confirm`; None without a score there."""
        met = {confirmation.trial: confirmation.met for confirmation in self.confirmations}
        return None if self.best is None else met.get(self.best.number)

    @property
    def benefit(self) -> Benefit | None:
        """Return the latency or size of the best trial compared with the float model, as the objective says."""
        return benefit(self.best, self.objective, self.fp32)

    def pareto(self) -> tuple[Trial, ...]:
        """Return the Pareto front of accuracy and objective, the best by objective first.

        Latency and a user's objective are measured only for trials that meet the criterion, so only those are on the
        front; size and the number of int8 ops are known for every trial.
        """
        return pareto(self.trials, self.objective.trade_against)

    def size_curve(self, points: int = 33) -> tuple[Assignment, ...]:
        """Return the best choices for the weights of a language model in each size, smallest first; else none.

        Each has its `bytes`, of the weights alone, and the `divergence` of the next token that was predicted for it,
        without what kernels add by rounding activations. No model is built for it. `plot.sizes()` draws it.

        Args:
            points: the number of sizes, in equal steps from the smallest to fp32.
        """
        table = recorded_table(read_snapshot(self.history_path).notes)
        return () if table is None else tuple(table.curve(points))

    @property
    def plot(self) -> Plot:
        """Return the figures of the run, drawn with plotly.

        They are `trials()`, `pareto()`, `sizes()`, `ops()` and `histogram(op)`.
        """
        plot: Plot = load_view("plot")(self.workspace)
        return plot

    @property
    def evaluations(self) -> int:
        """Return the number of calls of eval_func, the baseline included."""
        return sum(not trial.unscored for trial in self.trials) + (self.baseline is not None)

    def __repr__(self) -> str:
        tried = f"{len(self.trials)} trial{'' if len(self.trials) == 1 else 's'}"
        if self.best is None:
            return f"<TuneResult: no scored trial in {tried}, fp32 scores {self.baseline:.6g}>"
        if self.met is None:
            return f"<TuneResult: not evaluated, {self._counts(' / ')} ops, trial {self.best.number} of {tried}>"
        counts = self._counts(" / ")
        no_gain = no_gain_summary(self.benefit)
        verdict = ("met" if self.met else "NOT met") + (f" {'but' if self.met else 'and'} {no_gain}" if no_gain else "")
        return (
            f"<TuneResult: {verdict}, score {self.best.score:.6g} vs {self.baseline:.6g} "
            f"in fp32, {counts} ops, trial {self.best.number} of {tried}>"
        )

    def _repr_html_(self) -> str:
        """Return the result as HTML, for notebooks."""
        return as_html(self)

    def __str__(self) -> str:
        latency = "" if self.best is None else latency_phrase(self.best.measured, self.fp32_measured)
        predicted = "" if self.best is None else predicted_phrase(self.best.measured, self.target)
        lines = [
            self._verdict(),
            *(f"{WARNED}{text}" for text in self.warnings),
            *self.trust,
            drift_phrase(self.output_drift),
            converted_phrase(self.conversions),
            "" if self.comparison is None else str(self.comparison),
            in_words(self.unquantizable),
            warn_of_batch_dependence(self.best),
            predicted,
            f"{latency}, on this machine" if predicted and latency else latency,
            "" if self.step_latencies is None else str(self.step_latencies),
            size_phrase(self.benefit),
            "" if self.portability is None else str(self.portability),
            *comparison_lines(self.runtimes),
        ]
        return "\n".join(filter(None, lines))

    @property
    def trust(self) -> list[str]:
        """Return how reliable the verdict is, line by line: limits, confidence, scores on other data, samples saved."""
        if self.best is None or self.best.unscored:
            return []
        lines = trust_phrases(self.best, self.losses, self.confidence, self.confirmations, self.criterion)
        saved = early_stop_phrase(self.trials, 0 if self.fp32 is None else self.fp32.seen)
        return [*lines, *([saved] if saved else [])]

    def _counts(self, separator: str) -> str:
        counts = {} if self.best is None else self.best.config.counts
        return separator.join(f"{count} {precision}" for precision, count in counts.items())

    def _verdict(self) -> str:
        if self.best is None:
            return f"no trial has a score ({self.reason}); fp32 scores {self.baseline:.6g}"
        if self.met is None:
            counts = self._counts(" and ")
            return (
                f"trial {self.best.number} was not evaluated: {counts} ops, chosen without labels; pass eval_func to "
                "see whether it is good enough"
            )
        verdict = "meets" if self.met else "does NOT meet"
        if self.best.met and not self.met:
            verdict = f"meets ({'but not' if self.confirmed is False else 'but is not confirmed'} on other data)"
        if self.criterion.target_budget is not None:
            verdict = "is the most accurate within" if self.met else "comes nearest to, but does NOT keep,"
        addition = ", but runs all in fp32: nothing was quantized" if self.best.config.is_fp32 else ""
        no_gain = no_gain_summary(self.benefit)
        if no_gain and not addition:
            addition = f", {'but' if self.met else 'and'} is {no_gain}"
        counts = self._counts(" and ")
        return (
            f"trial {self.best.number} {verdict} the {self.criterion.called} ({self.criterion}){addition}: "
            f"score {self.best.score:.6g} vs {self.baseline:.6g} in fp32, {counts} ops, "
            f"after {self.evaluations} evaluations ({self.reason})"
        )
