"""Takes measurements where they may die: a runtime that aborts costs one candidate, not the run.

Most measurements take milliseconds, so they run in the process of the run. Each is recorded as begun, and taken back
when it is done: two small writes that are not synced. A run that resumes after a measurement ended the process takes
all further ones in a worker process. One that ended its process `MAX_DEATHS` times is given up, noted and reported.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from quaver.engine.events import MeasurementDied
from quaver.engine.executors.base import Executor, Kind, State, Task
from quaver.engine.measurements import OP_SECONDS, OUTPUT_ERROR, Bench, Measurement, carry_out
from quaver.engine.observers import Observer
from quaver.engine.run.crashes import DIED, FATAL_OPS, MAX_DEATHS, fatal_key, fatal_ops, step
from quaver.errors import QuaverError
from quaver.history import History
from quaver.history.records.unfinished_trials import digest_step
from quaver.ops import QuantConfig
from quaver.space import TuningSpace

log = logging.getLogger(__name__)

# Entries of the note `DIED`; further ones are kept in memory. Judgement: it bounds the size of a history.
MAX_NOTED = 1000
# Characters of a description in that note. Judgement: it bounds the size of a history.
MAX_DESCRIPTION = 1000

OpenWorker = Callable[[], contextlib.AbstractContextManager[Executor]]


class ProcessDied(Exception):
    """A measurement ended its process too often, so there is no result."""


# Where int8 cannot be timed, an op counts as this fraction of its fp32 time: int8 kernels take 0.3 to 0.8 of it
# (benchmarks/kernel_times.py).
GUESSED_SPEED = 0.5
# An op that ends the process when it is quantized counts as this many times the whole fp32 model: it is never chosen.
FATAL_SLOWDOWN = 10.0


class MeasurementRunner:
    """Takes measurements, in this process or in a worker.

    Args:
        bench: what measurements run on.
        space: all ops, to tell which ones die alone.
        history: records what is under way and what was given up.
        observer: hears of measurements that are given up.
        open_worker: opens a worker of this machine; None if there is none.
    """

    def __init__(
        self,
        bench: Callable[[], Bench],
        space: TuningSpace,
        history: History,
        observer: Observer,
        open_worker: OpenWorker | None = None,
    ) -> None:
        self._bench, self._space, self._history, self._observer = bench, space, history, observer
        self._open_worker = open_worker
        self._dead: set[str] = set(history.notes.get(DIED, {}))
        self._worker: Executor | None = None
        self._shared: Executor | None = None
        self._stack = contextlib.ExitStack()

    def share(self, executor: Executor | None) -> None:
        """Use this worker, which the run has anyway, from now on; None for none."""
        self._shared = executor

    def run(self, measurement: Measurement) -> Any:
        """Take a measurement and return its result.

        Raises:
            ProcessDied: it ended its process too often, now or before.
        """
        if self.is_dead(measurement):
            raise ProcessDied(str(measurement))
        deaths = self._history.step_crashes(measurement.name)
        while deaths < MAX_DEATHS:
            with contextlib.suppress(ProcessDied):
                return self._attempt(measurement)
            deaths += 1
        self.give_up(measurement)
        raise ProcessDied(str(measurement))

    def run_group(self, kind: str, configs: Sequence[QuantConfig]) -> list[Any]:
        """Take one measurement of several configurations and return a result for each, None for those that die.

        If they die together, each is measured alone, to find the one that does.
        """
        alive = tuple(config for config in configs if not self.is_fatal(config))
        together = Measurement(kind, alive)
        results: dict[QuantConfig, Any] = {}
        if len(alive) > 1 and not self._history.step_crashes(together.name):
            with contextlib.suppress(ProcessDied):
                results = dict(zip(alive, self._attempt(together), strict=True))
        for config in alive:
            if config not in results:
                with contextlib.suppress(ProcessDied):
                    (results[config],) = self.run(Measurement(kind, (config,)))
        return [results.get(config) for config in configs]

    def is_dead(self, measurement: Measurement) -> bool:
        """Return whether a measurement, or a plain run of one of its configurations, was given up."""
        if any(self.is_fatal(config) for config in measurement.configs):
            return True
        return self._is_given_up(measurement)

    def guessed_seconds(self, config: QuantConfig) -> tuple[dict[str, float], dict[str, float]]:
        """Return seconds of each op in the float model, and a guess for the configuration."""
        try:
            (fp32,) = self.run(Measurement(OP_SECONDS, ()))
        except ProcessDied:  # the runtime's profiler itself
            fp32 = {"": 0.0} | dict.fromkeys(config, 1.0)
        slow = FATAL_SLOWDOWN * sum(fp32.values())
        int8 = {
            name: GUESSED_SPEED * seconds if config[name].quantized else seconds
            for name, seconds in fp32.items()
            if name
        }
        return fp32, {"": fp32.get("", 0.0)} | int8 | dict.fromkeys(self.fatal_ops(config), slow)

    def is_fatal(self, config: QuantConfig) -> bool:
        """Return whether a configuration ended its process on calibration samples, or one of its ops does alone."""
        return self._is_given_up(Measurement(OUTPUT_ERROR, (config,))) or bool(self.fatal_ops(config))

    def fatal_ops(self, config: QuantConfig) -> list[str]:
        """Return the quantized ops of a configuration that end the process though no other op is quantized."""
        return fatal_ops(self._history, config)

    def give_up(self, measurement: Measurement) -> None:
        """Note that a measurement ended its process too often, and report it."""
        self._give_up(digest_step(measurement.name), measurement)

    def close(self) -> None:
        """End the worker, if there is one."""
        self._worker = self._shared = None
        self._stack.close()

    def _attempt(self, measurement: Measurement) -> Any:
        """Take a measurement once. Only in a worker its death is an exception."""
        worker = self._shared or self._own_worker()
        if worker is not None:
            outcome = worker.submit(Task(0, Kind.MEASUREMENT, measurement=measurement)).result()
            if outcome.state is State.DONE:
                return outcome.result
            if outcome.state is State.DIED:
                log.warning("measuring %s: %s", measurement, outcome.message)
                raise ProcessDied(str(measurement))
            # An exception is the same one here; a worker that cannot open the model is of no use.
            log.warning("a worker cannot measure %s (%s), so this process does", measurement, outcome.message)
            self._shared = self._worker = self._open_worker = None
        with step(self._history, measurement.name):
            return carry_out(self._bench(), measurement)

    def _is_given_up(self, measurement: Measurement) -> bool:
        if not self._dead and not self._crashed:  # the usual case costs no digest
            return False
        key = digest_step(measurement.name)
        if key not in self._dead and self._history.crashed_steps.get(key, 0) >= MAX_DEATHS:
            self._give_up(key, measurement)
        return key in self._dead

    def _give_up(self, key: str, measurement: Measurement) -> None:
        self._dead.add(key)
        if len(self._history.notes.get(DIED, {})) < MAX_NOTED:
            self._history.extend_note(DIED, {key: str(measurement)[:MAX_DESCRIPTION]})
        if measurement.kind == OUTPUT_ERROR and len(measurement.configs[0].quantized_ops) == 1:
            (op,) = measurement.configs[0].quantized_ops
            self._history.extend_note(FATAL_OPS, {fatal_key(op, measurement.configs[0][op]): True})
        self._observer(MeasurementDied(str(measurement), MAX_DEATHS))

    @property
    def _crashed(self) -> Collection[str]:
        """Return the steps that ended the process of an earlier run, the fp32 model's evaluation not among them."""
        crashed = self._history.crashed_steps
        return crashed.keys() - {self._space.float_config().fingerprint} if crashed else ()

    def _own_worker(self) -> Executor | None:
        """Return a worker once a measurement has ended the process of an earlier run, or of a worker."""
        if self._worker is None and self._open_worker is not None and (self._crashed or self._dead):
            log.warning(
                "an earlier process of this run ended while something was measured: measurements are taken in a "
                "process of their own from here on"
            )
            try:
                self._worker = self._stack.enter_context(self._open_worker())
            except QuaverError as error:  # a model that cannot be sent
                log.warning("there is no worker to measure in, so this process does it: %s", error)
                self._open_worker = None
        return self._worker
