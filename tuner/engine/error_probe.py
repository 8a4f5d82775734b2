"""Output errors of a run's probe: of ops by themselves and of whole configurations, recorded as they are measured."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from quaver.adapters import Adapter, abilities
from quaver.adapters.data import count_samples
from quaver.engine.event_base import Stage
from quaver.engine.events import Progressed, StageStarted
from quaver.engine.executors.base import Executor
from quaver.engine.executors.parallel_probe import measured_beside
from quaver.engine.measurement_runner import MeasurementRunner, ProcessDied
from quaver.engine.measurements import OUTPUT_ERROR, OUTPUT_METRIC, Measurement
from quaver.engine.observers import Observer
from quaver.engine.probe_plan import ProbePlan, make_plan
from quaver.history import History
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.types import Feed

# Seconds between notes while many ops are measured, so that a crash loses little. Judgement.
NOTE_SECONDS = 10.0
# The note that holds the plan, so that a resumed run measures on the same samples.
PLAN = "probe.plan"
# After this many seconds a stage tells how long it still takes. Judgement: shorter stages need no line of their own.
ESTIMATE_SECONDS = 3.0
# Whole configurations that are worth a stage of their own when they are compared. Judgement.
MANY_CONFIGS = 8


class Samples(Protocol):
    """The probe that gives samples and time."""

    @property
    def adapter(self) -> Adapter:
        """The adapter of the run."""

    @property
    def has_samples(self) -> bool:
        """True if there are samples to measure on."""

    def samples(self) -> Sequence[Feed]:
        """Return the probe samples. Raise if there are none."""

    def check_time(self) -> None:
        """Raise if the run has no time for another measurement."""


class ErrorProbe:
    """Measures errors at the outputs, and records each.

    Args:
        probe: gives the samples.
        space: all ops.
        history: records the errors.
        observer: hears of progress.
        runner: takes the measurements.
        effort: the setting that the number of samples follows from.

    Attributes:
        executor: the workers that measure in parallel; None if there are none.
    """

    def __init__(
        self,
        probe: Samples,
        space: TuningSpace,
        history: History,
        observer: Observer,
        runner: MeasurementRunner,
        effort: str,
    ) -> None:
        self._probe, self._space, self._history, self._observer = probe, space, history, observer
        self._runner, self._effort = runner, effort
        self._start = time.monotonic()
        self.executor: Executor | None = None
        self._searching = False

    @functools.cached_property
    def plan(self) -> ProbePlan:
        """Return how many samples measurements run on: recorded, or made for this model and noted."""
        noted = ProbePlan.from_dict(self._history.notes.get(PLAN))
        if noted is not None:
            return noted
        seconds = abilities.expected_seconds(self._probe.adapter, self._probe.samples()[0])
        plan = make_plan(self._effort, len(self._space.tunable), seconds)
        self._history.note(PLAN, plan.to_dict())
        return plan

    def sensitivity(self, config: QuantConfig) -> Mapping[str, float]:
        """Return, for each op that can fall back, the error at the outputs when it alone is as in `config`."""
        float_model = self._space.float_config()
        names = [name for name in self._space.tunable if config[name].quantized]
        keys = {name: f"{name} {config[name]}" for name in names}
        alone = {keys[name]: float_model.replace({name: config[name]}) for name in names}
        if self._searching or not self._probe.has_samples:
            kind = "sensitivity.whole" if self._searching else "sensitivity"
            errors = self._measure_each(kind, Stage.SENSITIVITY, alone, lambda: self.plan.leading)
        else:
            errors = self._in_two_rounds(alone)
        return {name: errors[keys[name]] for name in names}

    def _in_two_rounds(self, alone: Mapping[str, QuantConfig]) -> Mapping[str, float]:
        """Return the error of each op by itself: of all ops on the first samples, of the leading ones on more."""
        recorded: Mapping[str, float] = self._history.notes.get(_note("sensitivity"), {})
        missing = {key: config for key, config in alone.items() if key not in recorded}
        if not missing:
            return recorded
        plan, leading_ops = self.plan, self.plan.leading_ops(len(alone))
        is_one_round = plan.first == plan.leading or len(alone) <= leading_ops
        first = plan.leading if is_one_round else plan.first
        more = "" if is_one_round else f", the {leading_ops} leading ones on {plan.leading}"
        self._observer(
            StageStarted(Stage.SENSITIVITY, f"{len(missing)} ops on {first} samples{more} (effort: {plan.effort})")
        )
        if is_one_round:
            return self._measure_each("sensitivity", Stage.SENSITIVITY, missing, lambda: first)
        screened = self._measure_each("sensitivity.first", Stage.SENSITIVITY, missing, lambda: first)
        # An op that was screened before is compared by that error again, so that a resumed run finds the same leaders.
        errors = {key: screened.get(key, recorded.get(key, 0.0)) for key in alone}
        leaders = set(sorted(alone, key=lambda key: -errors[key])[:leading_ops])
        rest = {key: errors[key] for key in missing if key not in leaders}
        if rest:
            self._history.extend_note(_note("sensitivity"), rest)
        leading = {key: config for key, config in missing.items() if key in leaders}
        return self._measure_each("sensitivity", Stage.SENSITIVITY, leading, lambda: plan.leading)

    def of(self, configs: Sequence[QuantConfig]) -> list[float]:
        """Return the errors at the outputs of whole configurations."""
        keyed = {config.fingerprint: config for config in configs}
        if self._probe.has_samples:
            recorded = self._history.notes.get(_note("output_error"), {})
            if (count := sum(key not in recorded for key in keyed)) >= MANY_CONFIGS:
                work = f"{count} configurations on {self.plan.configs} samples"
                self._observer(StageStarted(Stage.OUTPUT_ERRORS, work))
        errors = self._measure_each("output_error", Stage.OUTPUT_ERRORS, keyed, lambda: self.plan.configs)
        return [errors[config.fingerprint] for config in configs]

    def find_fatal_ops(self, config: QuantConfig) -> None:
        """Measure each op of a configuration that died alone, unless one is known that ends the process.

        Whole models run, as the one that died did.
        """
        if self._searching or self._runner.fatal_ops(config):
            return
        self._searching = True
        try:
            self.sensitivity(config)
        finally:
            self._searching = False

    def _error(self, config: QuantConfig, samples: Callable[[], int]) -> float:
        """Return the error at the outputs on the first `samples()` samples; without any, the errors of weights.

        It is infinite for a configuration that ended its process too often.
        """
        if not self._probe.has_samples:
            return sum(abilities.weight_errors(self._probe.adapter, config).values())
        try:
            return float(
                self._runner.run(Measurement(OUTPUT_ERROR, (config,), self._feeds(samples()), whole=self._searching))
            )
        except ProcessDied:
            self.find_fatal_ops(config)
            return math.inf

    def _feeds(self, wanted: int) -> int:
        """Return the number of feeds that hold this many samples, or all feeds."""
        samples = 0
        for count, feed in enumerate(self._probe.samples(), 1):
            samples += count_samples(feed)
            if samples >= wanted:
                return count
        return len(self._probe.samples())

    def _measure_each(
        self,
        name: str,
        stage: Stage,
        configs: Mapping[str, QuantConfig],
        samples: Callable[[], int],
    ) -> Mapping[str, float]:
        """Return the error of each configuration at the outputs, from the history if it was measured before."""
        note = _note(name, self._probe.has_samples)
        recorded: Mapping[str, float] = self._history.notes.get(note, {})
        missing = {key: config for key, config in configs.items() if key not in recorded}
        unrecorded: dict[str, float] = {}
        start = last_note = time.monotonic()
        has_told = False
        try:
            for done, (key, error) in enumerate(self._measured(missing, samples), 1):
                unrecorded[key] = error
                if len(missing) > 1:
                    elapsed = time.monotonic() - start
                    left = elapsed * (len(missing) - done) / done
                    tells = not has_told and elapsed > ESTIMATE_SECONDS and done < len(missing)
                    has_told |= tells
                    share = (elapsed + left) / (time.monotonic() - self._start + left)
                    self._observer(Progressed(stage, done, len(missing), *((left, share) if tells else ())))
                if time.monotonic() - last_note > NOTE_SECONDS:
                    self._history.extend_note(note, unrecorded)
                    unrecorded, last_note = {}, time.monotonic()
        finally:
            if unrecorded:
                self._history.extend_note(note, unrecorded)
        recorded = self._history.notes.get(note, {})
        return recorded

    def _measured(self, configs: Mapping[str, QuantConfig], samples: Callable[[], int]) -> Iterator[tuple[str, float]]:
        """Yield errors as they are measured: in parallel if there are workers, else one after another."""
        if self.executor is None or not self._probe.has_samples or self._searching:
            for key, config in configs.items():
                self._probe.check_time()
                yield key, self._error(config, samples)
            return

        def deaths(config: QuantConfig) -> int:
            return self._history.step_crashes(Measurement(OUTPUT_ERROR, (config,)).name)

        if not configs:
            return
        is_fatal, feeds = self._runner.is_fatal, self._feeds(samples())
        for key, error in measured_beside(self.executor, configs, feeds, self._probe.check_time, deaths, is_fatal):
            if error is None and not is_fatal(configs[key]):
                self._runner.give_up(Measurement(OUTPUT_ERROR, (configs[key],)))
                self.find_fatal_ops(configs[key])
            yield key, math.inf if error is None else error


def _note(name: str, has_samples: bool = True) -> str:
    return f"probe.{name}.{OUTPUT_METRIC if has_samples else 'weights'}"
