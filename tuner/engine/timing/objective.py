"""Which of the trials that meet the criterion is best: a figure to make small."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from quaver.adapters import Model
from quaver.engine.timing.latency import measure
from quaver.errors import SettingsError
from quaver.ops import QuantConfig
from quaver.suggestions import hint
from quaver.target_budget import TargetBudget
from quaver.trial import Trial
from quaver.types import Feed, ModelLike

# A latency is off by its spread, by no less than the first of these parts of it, and by no more than the second: a
# measurement that was disturbed must not let a slow model win.
MARGINS = (0.01, 0.05)


class Objective:
    """A figure to make small: here, the number of ops that are not reduced.

    Figures that have to be measured are taken once, for trials that meet the criterion, and recorded under `name`.

    Attributes:
        name: what users write in `objective=`, and what it is recorded as.
        measured: whether its figure has to be measured on the model.
        needs_all: whether it is measured of every trial, and not only of those that meet the criterion.
    """

    name = "int8_ops"
    measured = False
    needs_all = False

    @property
    def against(self) -> Objective:
        """What accuracy is traded for: the figure itself, unless that is accuracy."""
        return self

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        """What to remember of a model that meets the criterion."""
        return {}

    def predict(self, config: QuantConfig) -> dict[str, float]:
        """What to remember of a configuration besides: what is not measured, but predicted."""
        return {}

    def value(self, trial: Trial) -> float:
        """The figure; the smallest wins."""
        return -trial.config.quantized_count

    def margin(self, trial: Trial) -> float:
        """By which part of itself the figure may be off. What differs by less than the margins of both is a tie."""
        return 0.0

    def known(self, trial: Trial) -> bool:
        """Whether the figure is known of this trial."""
        return not self.measured or self.name in trial.measured


class Size(Objective):
    """The size of the model file."""

    name = "size"

    def value(self, trial: Trial) -> float:
        return trial.model_size


class Latency(Objective):
    """Seconds of one inference, as a fraction of the fp32 model's, both measured in turns.

    On the threads that the user will deploy with: as many as the setting `threads` says, else one, whose time on the
    processor counts, so that a busy machine does not mislead.
    """

    name = "latency"
    measured = True

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        if feed is None:
            return {}
        threads = model.threads
        try:
            return compare([model], baseline(), feed)[0]
        finally:
            model.on_threads(threads)  # whoever scored it may still hold it

    def value(self, trial: Trial) -> float:
        # Without a measurement (no samples at hand) more reduced ops count as faster.
        return trial.measured.get("latency", 1.0 - 1e-6 * trial.config.quantized_count)

    def margin(self, trial: Trial) -> float:
        return min(max(trial.measured.get("latency_spread", 0.0), MARGINS[0]), MARGINS[1])


def compare(
    models: Sequence[Model], baseline: Model, feed: Feed, seconds: float | None = None, left: float = math.inf
) -> list[dict[str, float]]:
    """Figures of each model, all run in turns with the float model; `seconds` and `left` as in `latency.measure`.

    `latency` is a fraction of the float model's, `latency_ms` milliseconds of one inference, and `latency_spread` by
    what part of it two halves of the runs differ.
    """
    *taken, base = measure([as_deployed(model) for model in (*models, baseline)], feed, seconds, left)
    return [
        {
            "latency": one.seconds / base.seconds,
            "latency_ms": 1e3 * one.seconds,
            "latency_spread": one.spread,
        }
        for one in taken
    ]


def as_deployed(model: Model) -> Model:
    """The model on the threads that were asked for, or else on one."""
    return model.on_threads(model.threads or 1)


class PredictedLatency(Latency):
    """The latency that a cost model predicts for another machine. That of this machine is measured and told apart."""

    def __init__(self, predictor: Callable[[QuantConfig], dict[str, float]] = lambda config: {}) -> None:
        self._predictor = predictor

    def predict(self, config: QuantConfig) -> dict[str, float]:
        return self._predictor(config)

    def value(self, trial: Trial) -> float:
        return trial.measured.get("predicted_latency", math.inf)

    def margin(self, trial: Trial) -> float:
        return MARGINS[0]

    def known(self, trial: Trial) -> bool:
        return "predicted_latency" in trial.measured


class Accuracy(Latency):
    """The loss of accuracy, within a budget for the model: latency is measured of every trial, for it decides."""

    name = "accuracy"
    needs_all = True

    def __init__(self, predictor: Callable[[QuantConfig], dict[str, float]] | None = None) -> None:
        self._predictor = predictor

    def predict(self, config: QuantConfig) -> dict[str, float]:
        return {} if self._predictor is None else self._predictor(config)

    def value(self, trial: Trial) -> float:
        return math.inf if trial.loss is None else trial.loss

    def margin(self, trial: Trial) -> float:
        return 0.0

    def known(self, trial: Trial) -> bool:
        return ("latency" if self._predictor is None else "predicted_latency") in trial.measured

    @property
    def against(self) -> Objective:
        return Latency() if self._predictor is None else PredictedLatency()


class AccuracyBySize(Accuracy):
    """The loss of accuracy within a budget of size alone, which is known without being measured."""

    measured = needs_all = False

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        return {}

    def known(self, trial: Trial) -> bool:
        return True

    @property
    def against(self) -> Objective:
        return Size()


class UserObjective(Objective):
    """A function of the user's: `objective(model) -> float`, the smaller the better.

    Its figures are recorded under its name and a digest of its code, so that those of another function are never
    compared with them.
    """

    measured = True

    def __init__(self, function: Callable[[Any], float]) -> None:
        self._function = function
        self.name = name_of(function)

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        figure = float(self._function(model))
        if math.isnan(figure):
            raise ValueError("the objective returned NaN, which cannot be compared")
        return {self.name: figure}

    def value(self, trial: Trial) -> float:
        return trial.measured.get(self.name, math.inf)


class RecordedObjective(UserObjective):
    """A user's function that is not at hand: its figures are in the trials."""

    def __init__(self, name: str) -> None:
        self.name = name

    def measure(self, model: ModelLike, baseline: Callable[[], Any], feed: Feed | None) -> dict[str, float]:
        return {}


OBJECTIVES: dict[str, type[Objective]] = {kind.name: kind for kind in (Latency, Size, Objective, Accuracy)}


def make_objective(wanted: Any, target_budget: TargetBudget | None = None) -> Objective:
    """An objective from its name or from a function. `ceiling` is that of a run whose objective is accuracy."""
    if wanted == Accuracy.name and target_budget is not None and target_budget.latency is None:
        return AccuracyBySize()
    if isinstance(wanted, type) and issubclass(wanted, Objective):
        return wanted()
    if isinstance(wanted, Objective):
        return wanted
    if isinstance(wanted, str) and wanted in OBJECTIVES:
        return OBJECTIVES[wanted]()
    if callable(wanted):
        return UserObjective(wanted)
    raise SettingsError(
        f"unknown objective {wanted!r}; {hint(str(wanted), OBJECTIVES)} A function of the model works too"
    )


def recorded_name(objective: Objective) -> str:
    """What an objective goes by in a history: its name; of a class of the user's, module and name of that."""
    kind = type(objective)
    if isinstance(objective, UserObjective | Accuracy | PredictedLatency) or OBJECTIVES.get(objective.name) is kind:
        return objective.name
    return f"{kind.__module__}.{kind.__qualname__}"


def for_target(objective: Objective, predictor: Callable[[QuantConfig], dict[str, float]]) -> Objective:
    """The same objective for another machine, where it is about time."""
    if type(objective) is Latency:
        return PredictedLatency(predictor)
    return Accuracy(predictor) if type(objective) is Accuracy else objective


def recorded_objective(name: Any, target_budget: TargetBudget | None = None, predicted: bool = False) -> Objective:
    """The objective of a run from its recorded name, to compare trials by."""
    if predicted:
        return for_target(recorded_objective(name, target_budget), lambda config: {})
    if not isinstance(name, str):
        return Latency()
    return make_objective(name, target_budget) if name in OBJECTIVES else RecordedObjective(name)


def name_of(function: Callable[..., Any]) -> str:
    """Module and name of a function, and a digest of its code; of a partial those of its function, of another callable
    those of its class. Never a repr, nor anything of the arguments: they may hold secrets.
    """
    while isinstance(function, functools.partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    code = getattr(function, "__code__", None)
    name = f"{named.__module__}.{named.__qualname__}"
    if code is None:
        return name
    seen = repr((code.co_code, [item for item in code.co_consts if not hasattr(item, "co_code")], code.co_names))
    return f"{name}@{hashlib.sha256(seen.encode()).hexdigest()[:8]}"
