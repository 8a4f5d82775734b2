"""The probe that strategies get: an adapter, a few calibration samples, and a memory."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from quaver.adapters import Adapter
from quaver.adapters.batches import Feed, samples
from quaver.engine import latency
from quaver.engine.cost_model import CostModel
from quaver.engine.events import Observer, Progressed, Stage, StageStarted, TimingsReused
from quaver.engine.executors.probes import measured_beside
from quaver.engine.executors.task import Executor
from quaver.engine.mixtures import from_plain, measure_time_model, to_plain
from quaver.engine.output_error import OutputErrors
from quaver.engine.timing_cache import TimingCache
from quaver.errors import CalibrationError
from quaver.history import Storage
from quaver.ops import QuantConfig
from quaver.probe import Observed, OpTime, Probe
from quaver.space import TuningSpace
from quaver.time_model import TimeModel

# Measurements of many ops are noted this often, so that a crash loses little.
NOTE_SECONDS = 10.0
# Candidates are measured for so long each; those that take so many times the fastest one's time are given up sooner.
CANDIDATE_SECONDS = 0.2
IN_THE_RUNNING = 1.08
# Ops taken one by one are told apart on the first few of the kept samples; whole configurations differ less, on all.
FEW_SAMPLES = 16


class OutOfTime(Exception):
    """The timeout of the run leaves no time for a measurement. Not for strategies: it ends them."""


class AdapterProbe(Probe):
    """Measures with an adapter. Results are noted in the history, so that a resumed run sees the same figures.

    Times are those of `cost`, if the model is meant for another machine, else those that `cache` has of this one.
    """

    def __init__(
        self,
        adapter: Adapter,
        space: TuningSpace,
        history: Storage,
        observer: Observer,
        out_of_time: Callable[[], bool] = lambda: False,
        cost: CostModel | None = None,
        cache: TimingCache | None = None,
    ) -> None:
        self._adapter, self._space, self._history, self._observer = adapter, space, history, observer
        self._out_of_time, self._cost = out_of_time, cost
        self._cache, self._reused = cache or TimingCache(None), False
        self._errors: OutputErrors | None = None
        self._executor: Executor | None = None

    @contextlib.contextmanager
    def beside(self, executor: Executor) -> Iterator[None]:
        """For a while, let workers measure what can be measured side by side."""
        self._executor = executor if executor.isolated and executor.jobs > 1 else None
        try:
            yield
        finally:
            self._executor = None

    @property
    def has_samples(self) -> bool:
        # A run that was calibrated goes by what was measured then, or asks for samples.
        header = self._history.header
        return bool(self._adapter.kept) or header is None or header.calibrated

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        config = config or self._space.all_int8()
        float_model = self._space.float_config()
        names = [name for name in self._space.tunable if config[name].reduced]
        alone = {name: float_model.replace({name: config[name]}) for name in names}
        keys = {name: f"{name} {config[name]}" for name in names}
        known = self._each("sensitivity", Stage.SENSITIVITY, [(keys[name], alone[name]) for name in names], self._few)
        return {name: known[keys[name]] for name in names}

    def mse(self) -> Mapping[str, float]:
        return dict(self._once("mse", Stage.LOCAL_ERRORS, self._mse)) if self.has_samples else self._by_weights()

    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        if not self.has_samples:
            return self._by_weights()
        if config is None:
            return dict(self._once("local_error", Stage.LOCAL_ERRORS, lambda: self._local(self._space.all_int8())))
        if config.fingerprint not in self._history.notes.get("probe.local_errors", {}):
            self._check_time()
            self._observer(StageStarted(Stage.REPAIRS))
            self._history.extend_note("probe.local_errors", {config.fingerprint: self._local(config)})
        return dict(self._history.notes["probe.local_errors"][config.fingerprint])

    def _local(self, config: QuantConfig) -> dict[str, float]:
        self._samples()
        errors = self._adapter.local_errors(config)
        return {name: noise / signal if signal > 0 else noise for name, (noise, signal) in errors.items()}

    def latency(self) -> Mapping[str, OpTime]:
        if self._cost is not None:
            there = self._cost.model
            return {name: OpTime(there.fp32[name], there.reduced[name]) for name in self._space.quantizable}

        def measure() -> dict[str, list[float]]:
            self._samples()
            fp32, int8 = self._adapter.op_seconds(None), self._adapter.op_seconds(self._space.all_int8())
            return {name: [fp32[name], int8[name]] for name in self._space.quantizable}

        return {name: OpTime(*pair) for name, pair in self._once("latency", Stage.TIMING, measure).items()}

    def output_error(self, config: QuantConfig) -> float:
        key = config.fingerprint
        return self._each("output_error", None, [(key, config)], self._all)[key]

    def output_errors(self, configs: Sequence[QuantConfig]) -> list[float]:
        keys = [config.fingerprint for config in configs]
        known = self._each("output_error", None, list(dict(zip(keys, configs, strict=True)).items()), self._all)
        return [known[key] for key in keys]

    def time_model(self, config: QuantConfig) -> TimeModel:
        if self._cost is not None:
            return self._cost.at(config)
        key = config.fingerprint
        if key not in self._times_of("time_model", [config]):
            self._check_time()
            self._observer(StageStarted(Stage.TIMING))
            measured = to_plain(measure_time_model(self._adapter, config, self._timed()))
            self._keep("time_model", {key: measured})
        return from_plain(self._history.notes["probe.time_model"][key])

    def speed(self, config: QuantConfig) -> float:
        return self.speeds([config])[0]

    def speeds(self, configs: Sequence[QuantConfig]) -> list[float]:
        if self._cost is not None:
            return [self._cost.predict(config)["predicted_latency"] for config in configs]
        known = self._times_of("speed", configs)
        missing = [config for config in dict.fromkeys(configs) if config.fingerprint not in known]
        if missing:
            self._check_time()
            models = [self._adapter.rebuild(config).on_threads(1) for config in (None, *missing)]
            spend = CANDIDATE_SECONDS * len(models)
            base, *others = latency.measure(models, self._timed(), spend, within=IN_THE_RUNNING)
            found = {
                config.fingerprint: one.seconds / base.seconds for config, one in zip(missing, others, strict=True)
            }
            self._keep("speed", found)
        return [self._history.notes["probe.speed"][config.fingerprint] for config in configs]

    def _times_of(self, name: str, configs: Sequence[QuantConfig]) -> Mapping[str, Any]:
        """What is known of the times of configurations, from this run or from an earlier one on this machine."""
        known = self._history.notes.get(f"probe.{name}", {})
        missing = {config.fingerprint: config for config in configs if config.fingerprint not in known}
        found = {key: kept for key in missing if _sound(name, kept := self._cache.get(name, key), missing[key])}
        if found:
            if not self._reused:
                self._observer(TimingsReused())
                self._reused = True
            self._history.extend_note(f"probe.{name}", found)
            known = self._history.notes[f"probe.{name}"]
        return dict(known)

    def _keep(self, name: str, found: Mapping[str, Any]) -> None:
        self._history.extend_note(f"probe.{name}", dict(found))
        self._cache.put(name, found)

    def size(self, config: QuantConfig) -> float:
        known = self._history.notes.get("probe.size", {})
        if config.fingerprint not in known:
            whole, model = (self._adapter.rebuild(one) for one in (None, config))
            self._history.extend_note("probe.size", {config.fingerprint: model.size / whole.size})
        return float(self._history.notes["probe.size"][config.fingerprint])

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        seen = {name: Observed([], []) for name in ops}
        watchers = self._adapter.watch(None, ops), self._adapter.watch(config, ops)
        for feed in self._samples():
            for part, watcher in enumerate(watchers):
                for name, values in watcher(feed).items():
                    seen[name][part].append(values)
        return seen

    def _mse(self) -> dict[str, float]:
        self._samples()
        errors = self._adapter.local_errors(self._space.all_int8())
        return {name: errors[name][0] if name in errors else 0.0 for name in self._space.quantizable}

    def _by_weights(self) -> dict[str, float]:
        """The error of each op's weight in the all-int8 model: what can be told of it without samples."""
        whole = self._space.all_int8()
        errors = self._adapter.weight_errors(whole)
        worst = max(errors.values(), default=0.0)
        return {name: errors.get(name, worst) for name in whole.reduced_ops}

    def _error(self, config: QuantConfig, feeds: Callable[[], int]) -> float:
        """The error at the outputs on so many of the kept feeds; without any, the errors of weights together."""
        if not self.has_samples:
            return sum(self._adapter.weight_errors(config).values())
        count = feeds()
        if self._errors is None:
            self._errors = OutputErrors(self._adapter, self._space.ops[-1].name, self._samples())
        return self._errors.error(config, count)

    def _all(self) -> int:
        return len(self._samples())

    def _few(self) -> int:
        """How many of the kept feeds hold the first few samples."""
        taken = 0
        for count, feed in enumerate(self._samples(), 1):
            taken += samples(feed)
            if taken >= FEW_SAMPLES:
                return count
        return self._all()

    def _check_time(self) -> None:
        if self._out_of_time():
            raise OutOfTime

    def _samples(self) -> Sequence[Any]:
        if not self._adapter.kept:
            raise CalibrationError(
                "this strategy measures ops on calibration samples, and there are none: pass calib_dataloader, also to "
                "a resumed run"
            )
        return self._adapter.kept

    def _timed(self) -> Feed:
        """Return the batch that models are timed on."""
        self._samples()
        return self._adapter.timing_feed

    def _once(self, name: str, stage: Stage, measure: Callable[[], Any]) -> Any:
        """A measurement as a whole, from the history if it was taken before of what the rules leave now."""
        note, meant = f"probe.{name}", self._space.all_int8()
        known = self._history.notes.get(note, {})
        same = self._history.notes.get(f"{note}.config", meant.fingerprint) == meant.fingerprint
        if not same or not known or any(op not in known for op in self._space.able_to_fall_back(meant)):
            self._check_time()
            self._observer(StageStarted(stage))
            self._history.note(note, measure())
            self._history.note(f"{note}.config", meant.fingerprint)
        return self._history.notes[note]

    def _each(
        self,
        name: str,
        stage: Stage | None,
        configs: Sequence[tuple[str, QuantConfig]],
        feeds: Callable[[], int],
    ) -> Mapping[str, float]:
        """The error of each configuration at the outputs, from the history if it was measured before."""
        note = f"probe.{name}" if self.has_samples else f"probe.{name}.weights"
        known: Mapping[str, float] = self._history.notes.get(note, {})
        missing = [(key, config) for key, config in configs if key not in known]
        fresh: dict[str, float] = {}
        noted = time.monotonic()
        try:
            for done, (key, error) in enumerate(self._measured(missing, feeds), 1):
                fresh[key] = error
                if stage is not None:
                    self._observer(Progressed(stage, done, len(missing)))
                if time.monotonic() - noted > NOTE_SECONDS:
                    self._history.extend_note(note, fresh)
                    fresh, noted = {}, time.monotonic()
        finally:
            if fresh:
                self._history.extend_note(note, fresh)
        known = self._history.notes.get(note, {})
        return known

    def _measured(
        self, configs: Sequence[tuple[str, QuantConfig]], feeds: Callable[[], int]
    ) -> Iterator[tuple[str, float]]:
        """The errors, as they come: side by side if there are workers, else one after another."""
        if self._executor is None or len(configs) < 2 or not self.has_samples:
            for key, config in configs:
                self._check_time()
                yield key, self._error(config, feeds)
            return
        yield from measured_beside(self._executor, dict(configs), feeds(), self._check_time)


def _sound(name: str, kept: Any, config: QuantConfig) -> bool:
    """Whether a measurement that was kept is one: the file is anybody's to write."""
    if name == "speed":
        return isinstance(kept, float) and 0 < kept < math.inf
    try:
        return 0 < from_plain(kept).predict(config) < math.inf
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
