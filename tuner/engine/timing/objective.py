"""Objectives: what decides between trials that meet the criterion. The smallest value wins.

An objective says in data what others do with it: what the search may use (`traits`), whether a model has to be run for
it (`measured`), whether close winners are measured again (`has_finalists`), how the trade-off figure shows it (`axis`)
and what accuracy is traded for (`trade_against`). A class with `@register_objective` is complete: settings, the help of
the command line, strategies and figures find it under its name.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from quaver.engine.timing.latency import compare
from quaver.errors import SettingsError
from quaver.objective_traits import ObjectiveTraits, register_traits
from quaver.ops import QuantConfig
from quaver.suggestions import hint
from quaver.target_budget import TargetBudget
from quaver.trial import Trial
from quaver.types import Feed, ModelLike

Predictor: TypeAlias = Callable[[QuantConfig], dict[str, float]]
"""The figures that a cost model predicts of a configuration."""

# The error bar of a measured latency is the difference between two halves of its runs, within these bounds. Judgement:
# differences below 1 % do not repeat from run to run, and a disturbed measurement must not let a slow model win.
MIN_MARGIN, MAX_MARGIN = 0.01, 0.05
# Without a measurement, one more quantized op counts as this part of the float model's latency: enough to order trials.
GAIN_PER_QUANTIZED_OP = 1e-6


@dataclass(frozen=True, slots=True)
class Axis:
    """How the trade-off figure shows the figure that an objective minimizes.

    Attributes:
        title: the title of the axis.
        position: where a trial lies; None if that is not recorded.
        limit: where a budget for the model lies, given the float model's trial; None if the budget does not limit it.
    """

    title: str
    position: Callable[[Trial], float | None]
    limit: Callable[[TargetBudget, Trial | None], float | None] = lambda budget, baseline: None


@dataclass(frozen=True, slots=True)
class Ratio:
    """The figure of a trial as a fraction of the float model's.

    Attributes:
        figure: what the ratio is of: "latency", "predicted_latency" (on the machine of a cost model) or "size".
        ratio: the fraction.
        own: the trial's own figure: milliseconds, or bytes of a size; None where only the ratio is recorded.
    """

    figure: str
    ratio: float
    own: float | None = None


class Objective(ABC):
    """A figure to minimize. Derive from it and define `value`; register the class to use it by name.

    A figure that has to be measured is taken once, for trials that meet the criterion, and recorded under `name`.

    Attributes:
        name: what users write in `objective=`, and what the figure is recorded as.
        traits: what the objective asks of a search.
        measured: True if a model has to be run for the figure.
        measures_every_trial: True if the figure is measured of every trial, not only of those that meet the criterion.
        has_finalists: True if the best trials are measured again, interleaved, at the end of a run.
        axis: how the trade-off figure shows it; None if it does not.
    """

    name: str = ""
    traits: ClassVar[ObjectiveTraits] = ObjectiveTraits()
    measured: bool = False
    measures_every_trial: bool = False
    has_finalists: bool = False
    axis: ClassVar[Axis | None] = None

    @classmethod
    def create(cls, target_budget: TargetBudget | None) -> Objective:
        """Return the objective for a run with this budget for the model, if it has one."""
        return cls()

    @abstractmethod
    def value(self, trial: Trial) -> float:
        """Return the figure of a trial; the smallest wins."""

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        """Return the figures to record of a model that meets the criterion.

        Args:
            model: the model to measure.
            baseline: returns the float model.
            feed: calibration samples to run; None if there are none.
        """
        return {}

    def predict(self, config: QuantConfig) -> dict[str, float]:
        """Return the figures to record of a configuration that are predicted, not measured."""
        return {}

    def margin(self, trial: Trial) -> float:
        """Return the error bar of the figure, as a fraction of it. Trials whose error bars overlap are tied."""
        return 0.0

    def known(self, trial: Trial) -> bool:
        """Return True if the figure of this trial is known."""
        return not self.measured or self.name in trial.measured

    def ratio(self, trial: Trial, fp32: Trial | None) -> Ratio | None:
        """Compare a trial with the float model; return None if the figure of either is not recorded."""
        return None

    def for_target(self, predictor: Predictor) -> Objective:
        """Return the objective for another machine, whose latencies `predictor` knows."""
        return self

    @property
    def trade_against(self) -> Objective:
        """The objective that accuracy is traded for: this one, unless it is accuracy itself."""
        return self

    @property
    def recorded_name(self) -> str:
        """The name in a history: `name` if it is registered, else module and name of the user's class."""
        kind = type(self)
        return self.name if self.is_registered else f"{kind.__module__}.{kind.__qualname__}"

    @property
    def is_registered(self) -> bool:
        """True if `make_objective` finds this very class under its name."""
        return OBJECTIVES.get(self.name) is type(self)


OBJECTIVES: dict[str, type[Objective]] = {}


def register_objective(kind: type[Objective]) -> type[Objective]:
    """Make an objective known under its name. Use it as a decorator of the class."""
    OBJECTIVES[kind.name] = kind
    register_traits(kind.name, kind.traits)
    return kind


@register_objective
class Latency(Objective):
    """Seconds of one inference as a fraction of the fp32 model's, both measured interleaved.

    It is measured on as many threads as the setting `threads` says, or else on one, whose processor time counts, so
    that a busy machine does not mislead. With a predictor, the predicted latency of another machine decides; that of
    this machine is measured and recorded too.
    """

    name = "latency"
    traits = ObjectiveTraits(rewards_speed=True)
    measured = True
    has_finalists = True
    axis = Axis(
        "latency relative to fp32",
        lambda trial: trial.measured.get("latency"),
        lambda budget, baseline: budget.latency,
    )
    _predictor: Predictor | None = None

    def __init__(self, predictor: Predictor | None = None) -> None:
        self._predictor = predictor
        self.has_finalists = predictor is None  # measuring again does not change a prediction

    @property
    def _figure(self) -> str:
        return "latency" if self._predictor is None else "predicted_latency"

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        if feed is None:
            return {}
        threads = model.threads
        try:
            return compare([model], baseline(), feed)[0]
        finally:
            model.with_threads(threads)  # eval_func may still hold the model

    def predict(self, config: QuantConfig) -> dict[str, float]:
        return {} if self._predictor is None else self._predictor(config)

    def value(self, trial: Trial) -> float:
        if self._predictor is not None:
            return trial.measured.get(self._figure, math.inf)
        # Without a measurement (no samples at hand) more quantized ops count as faster.
        return trial.measured.get(self._figure, 1.0 - GAIN_PER_QUANTIZED_OP * trial.config.quantized_count)

    def margin(self, trial: Trial) -> float:
        if self._predictor is not None:
            return MIN_MARGIN
        return min(max(trial.measured.get("latency_spread", 0.0), MIN_MARGIN), MAX_MARGIN)

    def known(self, trial: Trial) -> bool:
        return self._figure in trial.measured

    def ratio(self, trial: Trial, fp32: Trial | None) -> Ratio | None:
        ratio = trial.measured.get(self._figure, math.nan)
        if not math.isfinite(ratio) or ratio <= 0.0:
            return None
        milliseconds = trial.measured.get("latency_ms" if self._predictor is None else "predicted_ms", math.nan)
        return Ratio(self._figure, ratio, milliseconds if math.isfinite(milliseconds) else None)

    def for_target(self, predictor: Predictor) -> Objective:
        objective = copy.copy(self)
        objective._predictor, objective.has_finalists = predictor, False
        return objective


def _megabytes(budget: TargetBudget, baseline: Trial | None) -> float | None:
    limit = None if baseline is None else budget.size_limit(baseline.model_size)
    return None if limit is None or baseline is None else limit * baseline.model_size / 1e6


@register_objective
class Size(Objective):
    """The size of the model file."""

    name = "size"
    traits = ObjectiveTraits(rewards_small_files=True)
    axis = Axis("file size in MB", lambda trial: trial.model_size / 1e6 if trial.model_size else None, _megabytes)

    def value(self, trial: Trial) -> float:
        return trial.model_size

    def ratio(self, trial: Trial, fp32: Trial | None) -> Ratio | None:
        if fp32 is None or fp32.model_size <= 0 or trial.model_size <= 0:
            return None
        return Ratio("size", trial.model_size / fp32.model_size, float(trial.model_size))


@register_objective
class Int8Ops(Objective):
    """The number of quantized ops, to be maximized. It needs no measurement."""

    name = "int8_ops"

    def value(self, trial: Trial) -> float:
        return -trial.config.quantized_count


@register_objective
class Accuracy(Objective):
    """The loss of accuracy, within a budget for the model.

    What the budget limits is an objective of its own, `trade_against`: it is measured of every trial, because it
    decides which trials keep the budget.

    Args:
        target_budget: the budget; without one, or with a limit of latency, latency is measured.
        predictor: predicts the latency of another machine, if that is what the budget limits.
    """

    name = "accuracy"
    traits = ObjectiveTraits(needs_target_budget=True)

    def __init__(self, target_budget: TargetBudget | None = None, predictor: Predictor | None = None) -> None:
        by_size_alone = target_budget is not None and target_budget.latency is None
        self._limited: Objective = Size() if by_size_alone else Latency(predictor)
        self.measured = self.measures_every_trial = self._limited.measured

    @classmethod
    def create(cls, target_budget: TargetBudget | None) -> Objective:
        return cls(target_budget)

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        return self._limited.measure(model, baseline, feed)

    def predict(self, config: QuantConfig) -> dict[str, float]:
        return self._limited.predict(config)

    def value(self, trial: Trial) -> float:
        return math.inf if trial.loss is None else trial.loss

    def known(self, trial: Trial) -> bool:
        return self._limited.known(trial)

    def for_target(self, predictor: Predictor) -> Objective:
        objective = copy.copy(self)
        objective._limited = self._limited.for_target(predictor)
        return objective

    @property
    def trade_against(self) -> Objective:
        return self._limited


class RecordedObjective(Objective):
    """An objective whose class is not available: it compares the figures that its trials recorded under its name."""

    measured = True

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, trial: Trial) -> float:
        return trial.measured.get(self.name, math.inf)

    @property
    def recorded_name(self) -> str:
        return self.name


class UserObjective(RecordedObjective):
    """A function of the user: `objective(model) -> float`, the smaller the better.

    Its figures are recorded under its name and a digest of its code, so that those of another function are never
    compared with them.
    """

    def __init__(self, function: Callable[[Any], float]) -> None:
        super().__init__(name_of(function))
        self._function = function

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        figure = float(self._function(model))
        if math.isnan(figure):
            raise ValueError("the objective returned NaN, which cannot be compared")
        return {self.name: figure}


def make_objective(spec: object, target_budget: TargetBudget | None = None) -> Objective:
    """Return an objective.

    Args:
        spec: the name of a registered objective, an `Objective` or its class, or a function of the model.
        target_budget: the budget of a run that has one in place of a criterion.

    Raises:
        SettingsError: nothing is registered under this name.
    """
    if isinstance(spec, type) and issubclass(spec, Objective):
        return spec()
    if isinstance(spec, Objective):
        return spec
    if isinstance(spec, str) and spec in OBJECTIVES:
        return OBJECTIVES[spec].create(target_budget)
    if callable(spec):
        return UserObjective(spec)
    raise SettingsError(f"unknown objective {spec!r}; {hint(str(spec), OBJECTIVES)} A function of the model works too")


def for_target(objective: Objective, predictor: Predictor) -> Objective:
    """Return a registered objective for another machine. A user's own class or function stays as it is."""
    return objective.for_target(predictor) if objective.is_registered else objective


def recorded_objective(name: object, target_budget: TargetBudget | None = None, predicted: bool = False) -> Objective:
    """Return the objective of a run from its recorded name, to compare trials by.

    Args:
        name: as in the history; a name that is not registered is compared by the figures recorded under it.
        target_budget: the budget of the run, if it had one.
        predicted: True if the run was for another machine.
    """
    if predicted:
        return for_target(recorded_objective(name, target_budget), lambda config: {})
    if not isinstance(name, str):
        return Latency()
    return make_objective(name, target_budget) if name in OBJECTIVES else RecordedObjective(name)


def quoted_names() -> str:
    """Return the names of the objectives that go with a criterion, as docs and help list them."""
    return ", ".join(f'"{name}"' for name, kind in OBJECTIVES.items() if not kind.traits.needs_target_budget)


def axes() -> dict[str, Axis]:
    """Return the axes of the trade-off figure, by the name of the objective."""
    return {name: kind.axis for name, kind in OBJECTIVES.items() if kind.axis is not None}


def name_of(function: Callable[..., Any]) -> str:
    """Return module and name of a function, and a digest of its code.

    Of a partial those of its function, of another callable those of its class. Never a repr, nor anything of the
    arguments: they may hold secrets.
    """
    while isinstance(function, functools.partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    code = getattr(function, "__code__", None)
    name = f"{named.__module__}.{named.__qualname__}"
    if code is None:
        return name
    source = repr((code.co_code, [item for item in code.co_consts if not hasattr(item, "co_code")], code.co_names))
    return f"{name}@{hashlib.sha256(source.encode()).hexdigest()[:8]}"
