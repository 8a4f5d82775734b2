"""The probe of a run: it measures with an adapter on the probe samples, and records in the history."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quaver.adapters import Adapter, abilities
from quaver.engine.error_probe import ErrorProbe
from quaver.engine.event_base import Stage
from quaver.engine.events import StageStarted, TimingsReused
from quaver.engine.executors.base import Executor
from quaver.engine.measurement_runner import FATAL_SLOWDOWN, MeasurementRunner, OpenWorker, ProcessDied
from quaver.engine.measurements import (
    LOCAL_ERRORS,
    OP_SECONDS,
    OUTPUTS,
    SPEED,
    TIME_MODEL,
    Bench,
    Measurement,
)
from quaver.engine.observers import Observer
from quaver.engine.timing.cache import TimingCache, is_valid_time
from quaver.engine.timing.cost_model import CostModel
from quaver.engine.timing.time_model import from_dict, to_dict
from quaver.engine.weight_probe import WeightProbe
from quaver.errors import CalibrationError
from quaver.history import History
from quaver.ops import QuantConfig
from quaver.probe import Observed, OpTime
from quaver.space import TuningSpace
from quaver.time_model import TimeModel
from quaver.types import Feed, PlainMapping


class OutOfTime(Exception):
    """The timeout of the run leaves no time for a measurement. Strategies must not catch it: it ends them."""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """The options of a probe.

    Attributes:
        out_of_time: returns True if the run has no time for another measurement.
        cost_model: the times of another machine, if the model is meant for one.
        cache: the times that earlier runs measured on this machine.
        open_worker: opens a process for measurements that may end it.
        effort: how much is measured, one of `EFFORTS`.
    """

    out_of_time: Callable[[], bool] = lambda: False
    cost_model: CostModel | None = None
    cache: TimingCache | None = None
    open_worker: OpenWorker | None = None
    effort: str = "normal"


class AdapterProbe(WeightProbe):
    """Measures with an adapter. Results are recorded in the history, so that a resumed run sees the same figures."""

    def __init__(
        self,
        adapter: Adapter,
        space: TuningSpace,
        history: History,
        observer: Observer,
        options: ProbeOptions | None = None,
    ) -> None:
        options = options or ProbeOptions()
        self._adapter, self._space, self._history, self._observer = adapter, space, history, observer
        self._out_of_time, self._cost = options.out_of_time, options.cost_model
        self._cache, self._announced_reuse = options.cache or TimingCache(None), False
        self._runner = MeasurementRunner(self._bench, space, history, observer, options.open_worker)
        self._opened_bench: Bench | None = None
        self._errors = ErrorProbe(self, space, history, observer, self._runner, options.effort)

    @contextlib.contextmanager
    def measuring_with(self, executor: Executor, local: bool = False) -> Iterator[None]:
        """Let the workers of an executor measure output errors; a single `local` one measures everything else, too."""
        self._errors.executor = executor if executor.isolated else None
        self._runner.share(executor if local and executor.isolated and executor.jobs == 1 else None)
        try:
            yield
        finally:
            self._errors.executor = None
            self._runner.share(None)

    def close(self) -> None:
        """End the worker that measures, if there is one."""
        self._runner.close()

    def fatal_ops(self, config: QuantConfig) -> list[str]:
        """Return the quantized ops of a configuration that end the process even if no other op is quantized."""
        return self._runner.fatal_ops(config)

    @property
    def adapter(self) -> Adapter:
        """The adapter of the run."""
        return self._adapter

    @property
    def has_samples(self) -> bool:
        # A calibrated run uses the measurements of its history, or needs samples for new ones.
        header = self._history.header
        return bool(self._adapter.probe_samples) or header is None or header.calibrated

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self._errors.sensitivity(config or self._space.default_config())

    def mse(self) -> Mapping[str, float]:
        return dict(self._measure_once("mse", Stage.LOCAL_ERRORS, self._mse)) if self.has_samples else self._by_weight()

    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        if not self.has_samples:
            return self._by_weight()
        if config is None:
            return dict(
                self._measure_once(
                    "local_error", Stage.LOCAL_ERRORS, lambda: self._relative_errors(self._space.default_config())
                )
            )
        if config.fingerprint not in self._history.notes.get("probe.local_errors", {}):
            self.check_time()
            self._observer(StageStarted(Stage.REPAIRS))
            self._history.extend_note("probe.local_errors", {config.fingerprint: self._relative_errors(config)})
        return dict(self._history.notes["probe.local_errors"][config.fingerprint])

    def _relative_errors(self, config: QuantConfig) -> dict[str, float]:
        errors = self._local_errors(config)
        return {name: noise / signal if signal > 0 else noise for name, (noise, signal) in errors.items()}

    def latency(self) -> Mapping[str, OpTime]:
        if self._cost is not None:
            target = self._cost.model
            return {name: OpTime(target.fp32[name], target.quantized[name]) for name in self._space.quantizable}

        def measure() -> dict[str, list[float]]:
            self.samples()
            try:
                fp32, int8 = self._runner.run(Measurement(OP_SECONDS, (self._space.default_config(),)))
            except ProcessDied:
                fp32, int8 = self._runner.guessed_seconds(self._space.default_config())
            return {name: [fp32[name], int8[name]] for name in self._space.quantizable}

        return {name: OpTime(*pair) for name, pair in self._measure_once("latency", Stage.TIMING, measure).items()}

    def output_error(self, config: QuantConfig) -> float:
        return self._errors.of([config])[0]

    def output_errors(self, configs: Sequence[QuantConfig]) -> list[float]:
        return self._errors.of(configs)

    def time_model(self, config: QuantConfig) -> TimeModel:
        return self._time_model(config, config.fingerprint)

    def time_model_beside(self, config: QuantConfig, float_config: QuantConfig) -> TimeModel:
        return self._time_model(config, f"{config.fingerprint} {float_config.fingerprint}", float_config)

    def _time_model(self, config: QuantConfig, key: str, *float_config: QuantConfig) -> TimeModel:
        """Return the time model with this key, from the history if it was measured before."""
        if self._cost is not None:
            return self._cost.at(config)
        if key not in self._times_of("time_model", {key: config}):
            self.check_time()
            self._observer(StageStarted(Stage.TIMING))
            self.samples()
            try:
                measured = self._runner.run(Measurement(TIME_MODEL, (config, *float_config)))
                self._record_times("time_model", {key: measured})
            except ProcessDied:  # a guess is not cached for other runs
                self._history.extend_note("probe.time_model", {key: to_dict(self._guessed_times(config))})
        return from_dict(self._history.notes["probe.time_model"][key])

    def speed(self, config: QuantConfig) -> float:
        return self.speeds([config])[0]

    def speeds(self, configs: Sequence[QuantConfig]) -> list[float]:
        if self._cost is not None:
            return [self._cost.predict(config)["predicted_latency"] for config in configs]
        recorded = self._times_of("speed", {config.fingerprint: config for config in configs})
        missing = [config for config in dict.fromkeys(configs) if config.fingerprint not in recorded]
        if missing:
            self.check_time()
            self.samples()
            measured = dict(zip(missing, self._measured_speeds(missing, configs, recorded), strict=True))
            self._record_times(
                "speed", {config.fingerprint: speed for config, speed in measured.items() if speed is not None}
            )
            if died := {config.fingerprint: math.inf for config, speed in measured.items() if speed is None}:
                self._history.extend_note("probe.speed", died)
                for config in missing:
                    if config.fingerprint in died:
                        self._errors.find_fatal_ops(config)
        return [self._history.notes["probe.speed"][config.fingerprint] for config in configs]

    def _measured_speeds(
        self, missing: Sequence[QuantConfig], configs: Sequence[QuantConfig], recorded: PlainMapping
    ) -> list[float | None]:
        """Measure configurations, together with one of those that they are compared with.

        Figures of two measurements differ by the noise of the float model in both. So one that is known is measured
        again, and the new figures are given on its scale.
        """
        known = [config for config in configs if recorded.get(config.fingerprint, math.inf) < math.inf][:1]
        speeds = self._runner.run_group(SPEED, [*known, *missing])
        if not known or speeds[0] is None:
            return speeds[len(known) :]
        scale = recorded[known[0].fingerprint] / speeds[0]
        return [None if speed is None else scale * speed for speed in speeds[1:]]

    def _times_of(self, name: str, keyed: Mapping[str, QuantConfig]) -> PlainMapping:
        """Return the recorded times, by key, with those that an earlier run on this machine has cached."""
        recorded = self._history.notes.get(f"probe.{name}", {})
        missing = {key: config for key, config in keyed.items() if key not in recorded}
        cached = {key: self._cache.get(name, key) for key in missing}
        cached = {key: value for key, value in cached.items() if is_valid_time(name, value, missing[key])}
        if cached:
            if not self._announced_reuse:
                self._observer(TimingsReused())
                self._announced_reuse = True
            self._history.extend_note(f"probe.{name}", cached)
            recorded = self._history.notes[f"probe.{name}"]
        return dict(recorded)

    def _record_times(self, name: str, measured: PlainMapping) -> None:
        self._history.extend_note(f"probe.{name}", dict(measured))
        self._cache.put(name, measured)

    def size(self, config: QuantConfig) -> float:
        if config.fingerprint not in self._history.notes.get("probe.size", {}):
            float_model, model = (self._adapter.assemble(candidate) for candidate in (None, config))
            self._history.extend_note("probe.size", {config.fingerprint: model.size / float_model.size})
        return float(self._history.notes["probe.size"][config.fingerprint])

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        self.samples()
        try:
            outputs = self._runner.run(Measurement(OUTPUTS, (config,), ops=tuple(ops)))
        except ProcessDied:
            outputs = self._runner.run(Measurement(OUTPUTS, (), ops=tuple(ops)))
            outputs = {
                name: (fp32, [np.full_like(values, np.inf) for values in fp32]) for name, (fp32, _) in outputs.items()
            }
        return {name: Observed(*both) for name, both in outputs.items()}

    def _bench(self) -> Bench:
        if self._opened_bench is None:
            self._opened_bench = Bench(self._adapter, self._space.ops[-1].name, self.samples())
        return self._opened_bench

    def _mse(self) -> dict[str, float]:
        errors = self._local_errors(self._space.default_config())
        return {name: errors[name][0] if name in errors else 0.0 for name in self._space.quantizable}

    def _local_errors(self, config: QuantConfig) -> Mapping[str, tuple[float, float]]:
        """Return squared error and squared output of each quantized op; infinite for ops that end the process."""
        self.samples()
        try:
            errors: Mapping[str, tuple[float, float]] = self._runner.run(Measurement(LOCAL_ERRORS, (config,)))
            return errors
        except ProcessDied:
            worst = dict.fromkeys(config.quantized_ops, (math.inf, 1.0))
        if (survivors := self._survivors(config)) is not None:
            with contextlib.suppress(ProcessDied):
                return {**worst, **self._runner.run(Measurement(LOCAL_ERRORS, (survivors,)))}
        return worst

    def _survivors(self, config: QuantConfig) -> QuantConfig | None:
        """Return a configuration without the ops that end the process alone; None if that leaves all or nothing.

        The sensitivity of its ops tells which they are.
        """
        self._errors.find_fatal_ops(config)
        survivors = config.fallback(*self._runner.fatal_ops(config))
        return survivors if survivors != config and survivors.quantized_ops else None

    def _guessed_times(self, config: QuantConfig) -> TimeModel:
        """Return a time model of a configuration that cannot be timed: of the part that can, or a guess."""
        if (survivors := self._survivors(config)) is not None:
            with contextlib.suppress(ProcessDied):
                model = from_dict(self._runner.run(Measurement(TIME_MODEL, (survivors,))))
                slow = FATAL_SLOWDOWN * sum(model.fp32.values())
                return replace(
                    model, quantized={**model.quantized, **dict.fromkeys(self._runner.fatal_ops(config), slow)}
                )
        fp32, int8 = self._runner.guessed_seconds(config)
        rest = fp32.pop("", 0.0)
        int8.pop("", None)
        return TimeModel(fp32, int8, rest)

    def _by_weight(self) -> dict[str, float]:
        """Return the error of each op's weight in its default choice, which needs no samples."""
        config = self._space.default_config()
        errors = abilities.weight_errors(self._adapter, config)
        worst = max(errors.values(), default=0.0)
        return {name: errors.get(name, worst) for name in config.quantized_ops}

    def check_time(self) -> None:
        """Raise if the run has no time for another measurement."""
        if self._out_of_time():
            raise OutOfTime

    def samples(self) -> Sequence[Feed]:
        """Return the probe samples. Raise if there are none."""
        if not self._adapter.probe_samples:
            raise CalibrationError(
                "this strategy measures ops on calibration samples, and there are none: pass calib_dataloader, also to "
                "a resumed run"
            )
        return self._adapter.probe_samples

    def _measure_once(self, name: str, stage: Stage, measure: Callable[[], Any]) -> Any:
        """Return a measurement of all ops, from the history if it covers the ops that the rules leave now."""
        note, config = f"probe.{name}", self._space.default_config()
        recorded = self._history.notes.get(note, {})
        is_same = self._history.notes.get(f"{note}.config", config.fingerprint) == config.fingerprint
        if not is_same or not recorded or any(op not in recorded for op in self._space.able_to_fall_back(config)):
            self.check_time()
            self._observer(StageStarted(stage))
            self._history.note(note, measure())
            self._history.note(f"{note}.config", config.fingerprint)
        return self._history.notes[note]
