"""Output errors of a run's probe: of ops by themselves and of whole configurations, recorded as they are measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from quaver.adapters import Adapter, abilities
from quaver.adapters.data import count_samples
from quaver.engine.event_base import Stage
from quaver.engine.events import Progressed
from quaver.engine.executors.base import Executor
from quaver.engine.executors.parallel_probe import measured_beside
from quaver.engine.measurement_runner import MeasurementRunner, ProcessDied
from quaver.engine.measurements import OUTPUT_ERROR, OUTPUT_METRIC, Measurement
from quaver.engine.observers import Observer
from quaver.history import History
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.types import Feed

# Seconds between notes while many ops are measured, so that a crash loses little. Judgement.
NOTE_SECONDS = 10.0
# Single ops are compared on the first few probe samples; whole configurations differ less, so on all. Judgement.
FEW_SAMPLES = 16


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

    Attributes:
        executor: the workers that measure in parallel; None if there are none.
    """

    def __init__(
        self, probe: Samples, space: TuningSpace, history: History, observer: Observer, runner: MeasurementRunner
    ) -> None:
        self._probe, self._space, self._history, self._observer = probe, space, history, observer
        self._runner = runner
        self.executor: Executor | None = None
        self._searching = False

    def sensitivity(self, config: QuantConfig) -> Mapping[str, float]:
        """Return, for each op that can fall back, the error at the outputs when it alone is as in `config`."""
        float_model = self._space.float_config()
        names = [name for name in self._space.tunable if config[name].quantized]
        alone = {name: float_model.replace({name: config[name]}) for name in names}
        keys = {name: f"{name} {config[name]}" for name in names}
        errors = self._measure_each(
            "sensitivity.whole" if self._searching else "sensitivity",
            Stage.SENSITIVITY,
            [(keys[name], alone[name]) for name in names],
            self._few_feeds,
        )
        return {name: errors[keys[name]] for name in names}

    def of(self, configs: Sequence[QuantConfig]) -> list[float]:
        """Return the errors at the outputs of whole configurations."""
        keyed = {config.fingerprint: config for config in configs}
        errors = self._measure_each("output_error", None, list(keyed.items()), lambda: len(self._probe.samples()))
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

    def _error(self, config: QuantConfig, feeds: Callable[[], int]) -> float:
        """Return the error at the outputs on the first `feeds()` probe samples; without samples, the errors of weights.

        It is infinite for a configuration that ended its process too often.
        """
        if not self._probe.has_samples:
            return sum(abilities.weight_errors(self._probe.adapter, config).values())
        try:
            return float(self._runner.run(Measurement(OUTPUT_ERROR, (config,), feeds(), whole=self._searching)))
        except ProcessDied:
            self.find_fatal_ops(config)
            return math.inf

    def _few_feeds(self) -> int:
        """Return the number of feeds that hold the first few samples."""
        samples = 0
        for count, feed in enumerate(self._probe.samples(), 1):
            samples += count_samples(feed)
            if samples >= FEW_SAMPLES:
                return count
        return len(self._probe.samples())

    def _measure_each(
        self,
        name: str,
        stage: Stage | None,
        configs: Sequence[tuple[str, QuantConfig]],
        feeds: Callable[[], int],
    ) -> Mapping[str, float]:
        """Return the error of each configuration at the outputs, from the history if it was measured before."""
        note = f"probe.{name}.{OUTPUT_METRIC if self._probe.has_samples else 'weights'}"
        recorded: Mapping[str, float] = self._history.notes.get(note, {})
        missing = [(key, config) for key, config in configs if key not in recorded]
        unrecorded: dict[str, float] = {}
        last_note = time.monotonic()
        try:
            for done, (key, error) in enumerate(self._measured(missing, feeds), 1):
                unrecorded[key] = error
                if stage is not None:
                    self._observer(Progressed(stage, done, len(missing)))
                if time.monotonic() - last_note > NOTE_SECONDS:
                    self._history.extend_note(note, unrecorded)
                    unrecorded, last_note = {}, time.monotonic()
        finally:
            if unrecorded:
                self._history.extend_note(note, unrecorded)
        recorded = self._history.notes.get(note, {})
        return recorded

    def _measured(
        self, configs: Sequence[tuple[str, QuantConfig]], feeds: Callable[[], int]
    ) -> Iterator[tuple[str, float]]:
        """Yield errors as they are measured: in parallel if there are workers, else one after another."""
        if self.executor is None or not self._probe.has_samples or self._searching:
            for key, config in configs:
                self._probe.check_time()
                yield key, self._error(config, feeds)
            return

        def deaths(config: QuantConfig) -> int:
            return self._history.step_crashes(Measurement(OUTPUT_ERROR, (config,)).name)

        config_of, is_fatal = dict(configs), self._runner.is_fatal
        for key, error in measured_beside(self.executor, config_of, feeds(), self._probe.check_time, deaths, is_fatal):
            if error is None and not is_fatal(config_of[key]):
                self._runner.give_up(Measurement(OUTPUT_ERROR, (config_of[key],)))
                self.find_fatal_ops(config_of[key])
            yield key, math.inf if error is None else error
