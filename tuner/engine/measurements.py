"""Measurements without labels: what each one runs, in the process of the run or in a worker.

A measurement is plain data, so that it can be sent to a worker, and so is its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quaver.adapters import Adapter, abilities
from quaver.adapters.weight_study import SupportsWeightStudy
from quaver.engine.inspection.output_error import OutputErrors
from quaver.engine.timing import latency
from quaver.engine.timing.time_model import measure_time_model, to_dict
from quaver.ops import QuantConfig
from quaver.types import Feed, PlainDict

# Seconds for each candidate whose speed is measured. Judgement: enough for two digits on small models.
CANDIDATE_SECONDS = 0.2
# A candidate is dropped early above this multiple of the fastest one's time. Judgement: well above the error bars.
IN_THE_RUNNING = 1.08
# Ops that the description of a measurement names. Judgement: it is one line of a warning.
MAX_NAMES = 3

OUTPUT_ERROR, LOCAL_ERRORS, OP_SECONDS = "output error", "local errors", "op times"
TIME_MODEL, SPEED, OUTPUTS = "time model", "speed", "outputs of ops"
DIVERGENCE = "divergence"

# The end of the names of notes with errors at the outputs. It changes with their definition: those of older versions,
# whose notes have no such end, must not be compared with new ones.
OUTPUT_METRIC = "parts"


@dataclass(frozen=True)
class Measurement:
    """One measurement of one or several configurations.

    Attributes:
        kind: what is measured: one of the names above.
        configs: the configurations, in order.
        samples: for output errors, the number of feeds to run.
        ops: for outputs, the ops to record.
        whole: for output errors, always run the whole model: it may end the process where a part of it does not.
    """

    kind: str
    configs: tuple[QuantConfig, ...]
    samples: int = 0
    ops: tuple[str, ...] = ()
    whole: bool = False

    @property
    def name(self) -> str:
        """Return the name under which its process deaths are counted."""
        return f"measuring the {self.kind} of {' '.join(config.fingerprint for config in self.configs)}"

    def __str__(self) -> str:
        if not self.configs:
            return f"the {self.kind} of the float model"
        if len(self.configs) > 1:
            return f"the {self.kind} of {len(self.configs)} configurations"
        choices = [f"{op}: {pick}" for op, pick in self.configs[0].items() if pick.quantized]
        ops = ", ".join(choices) if len(choices) <= MAX_NAMES else f"{len(choices)} quantized ops"
        return f"the {self.kind} of a configuration ({ops})"


@dataclass
class Bench:
    """Everything that measurements run on.

    Attributes:
        adapter: builds and runs models.
        last_op: the op whose output stands for the model's where no output is made of numbers.
        feeds: the calibration samples.
    """

    adapter: Adapter
    last_op: str
    feeds: Sequence[Feed]
    _errors: OutputErrors | None = field(default=None, repr=False)

    @property
    def errors(self) -> OutputErrors:
        """Return the output errors, for which the float model runs once."""
        if self._errors is None:
            self._errors = OutputErrors(self.adapter, self.last_op, self.feeds)
        return self._errors


def carry_out(bench: Bench, measurement: Measurement) -> Any:
    """Take a measurement in this process and return its result as builtins and arrays."""
    return _KINDS[measurement.kind](bench, measurement)


def _output_error(bench: Bench, measurement: Measurement) -> float:
    (config,) = measurement.configs
    return bench.errors.error(config, measurement.samples, measurement.whole)


def _local_errors(bench: Bench, measurement: Measurement) -> Mapping[str, tuple[float, float]]:
    (config,) = measurement.configs
    return abilities.local_errors(bench.adapter, config)


def _op_seconds(bench: Bench, measurement: Measurement) -> list[dict[str, float]]:
    return [bench.adapter.op_seconds(config) for config in (None, *measurement.configs)]


def _time_model(bench: Bench, measurement: Measurement) -> PlainDict:
    config, *float_config = measurement.configs
    return to_dict(measure_time_model(bench.adapter, config, bench.adapter.timing_feed, *float_config))


def _speed(bench: Bench, measurement: Measurement) -> list[float]:
    """Return the latency of each configuration as a fraction of the float model's, all interleaved."""
    models = [bench.adapter.assemble(config).with_threads(1) for config in (None, *measurement.configs)]
    base, *latencies = latency.measure(
        models, bench.adapter.timing_feed, CANDIDATE_SECONDS * len(models), within=IN_THE_RUNNING
    )
    return [measured.seconds / base.seconds for measured in latencies]


def _outputs(bench: Bench, measurement: Measurement) -> dict[str, tuple[list[Any], list[Any]]]:
    """Return the outputs of ops on each feed, in the float model and in the configuration, if there is one."""
    outputs: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in measurement.ops}
    watchers = [bench.adapter.record_outputs(config, measurement.ops) for config in (None, *measurement.configs)]
    for feed in bench.feeds:
        for part, watcher in enumerate(watchers):
            for name, values in watcher(feed).items():
                outputs[name][part].append(values)
    return outputs


def _divergence(bench: Bench, measurement: Measurement) -> float:
    (config,) = measurement.configs
    return abilities.require(bench.adapter, SupportsWeightStudy).divergence(config)


_KINDS: dict[str, Callable[[Bench, Measurement], Any]] = {
    OUTPUT_ERROR: _output_error,
    LOCAL_ERRORS: _local_errors,
    OP_SECONDS: _op_seconds,
    TIME_MODEL: _time_model,
    SPEED: _speed,
    OUTPUTS: _outputs,
    DIVERGENCE: _divergence,
}
