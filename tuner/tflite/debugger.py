"""TFLite's quantization debugger: its scripts run once their import line is changed.

Pass a debug model, or a converter that makes one: the figures, their names and the CSV are those of TFLite's debugger.
Any other quantized model works too: beside its float model it is compared by `quaver.diagnose`, and alone the debugger
reports how it uses its integers.
"""

from __future__ import annotations

import csv
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from quaver.adapters import load_unmodified
from quaver.adapters.data import feeds
from quaver.adapters.inspection import as_list
from quaver.api import diagnose, diagnose_quantized
from quaver.diagnosis import Diagnosis, QuantizedStatistics
from quaver.diagnosis.statistics.integers import QuantizedTensorRow
from quaver.diagnosis.tables import LayerRow
from quaver.engine.inspection.diagnose import replayable
from quaver.errors import CalibrationError, SettingsError
from quaver.files.paths import expanded
from quaver.ops import Precision
from quaver.types import Array, CalibrationData, Feed, ModelLike

if TYPE_CHECKING:
    from quaver.adapters.litert.inspect.debug_model import DebugConversion, DebugModel, VerifiedOp

log = logging.getLogger(__name__)

# TFLite's statistics of the differences of one sample; the figure of an op is the mean over all samples.
SAMPLE_STATISTICS: Mapping[str, Callable[[Array], Any]] = {
    "num_elements": lambda differences: differences.size,
    "stddev": np.std,
    "mean_error": np.mean,
    "max_abs_error": lambda differences: np.max(np.abs(differences)),
    "mean_squared_error": lambda differences: np.mean(np.square(differences)),
}
# The same statistics in `quaver.diagnose`.
STATISTICS = {
    "num_elements": "elements_per_sample",
    "stddev": "stddev",
    "mean_error": "mean_error",
    "max_abs_error": "mean_max_abs_error",
    "mean_squared_error": "mean_squared_error",
}

Metrics = Mapping[str, Callable[..., Any]]


@dataclass(slots=True)
class QuantizationDebugOptions:
    """Statistics that the user adds, and the ops that a converter leaves float.

    Attributes:
        layer_debug_metrics: functions of the differences of an op's output.
        model_debug_metrics: functions of the outputs of the float and of the quantized model, called for each sample.
        layer_direct_compare_metrics: functions of the float output, the quantized one, its scale and zero point.
        denylisted_ops: types of ops that stay float, such as "SOFTMAX"; with a converter.
        denylisted_nodes: names of output tensors whose ops stay float; with a converter.
        fully_quantize: whether inputs and outputs are quantized, too; with a converter.
    """

    layer_debug_metrics: Metrics | None = None
    model_debug_metrics: Metrics | None = None
    layer_direct_compare_metrics: Metrics | None = None
    denylisted_ops: Sequence[str] | None = None
    denylisted_nodes: Sequence[str] | None = None
    fully_quantize: bool = False

    def __post_init__(self) -> None:
        """Refuse two metrics of one name."""
        parts = (self.layer_debug_metrics, self.model_debug_metrics, self.layer_direct_compare_metrics)
        names = [name for part in parts for name in part or ()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SettingsError(f"two metrics are named {', '.join(map(repr, twice))}: give each a name of its own")

    @property
    def own_metrics(self) -> list[str]:
        """The names of the user's statistics of layers, in the order of the CSV."""
        return [*(self.layer_debug_metrics or {}), *(self.layer_direct_compare_metrics or {})]


@dataclass(slots=True)
class _Result:
    """The outcome of a run, and what the CSV says about each layer besides its figures."""

    layers: dict[str, dict[str, float]] = field(default_factory=dict)
    model: dict[str, float] = field(default_factory=dict)
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    diagnosis: Diagnosis | QuantizedStatistics | None = None


class QuantizationDebugger:
    """Compare a quantized model with its float model, or a debug model with its own float ops, layer by layer.

    Attributes:
        layer_statistics: after `run`, {layer: {statistic: value}}.
        model_statistics: after `run`, {metric: value}.
        converter: the converter that was passed; None without one.
        float_model: with a converter and `model_debug_metrics`, the float model.
        quant_model: with a converter, the debug model.
    """

    def __init__(
        self,
        quant_debug_model_path: str | None = None,
        quant_debug_model_content: bytes | None = None,
        float_model_path: str | None = None,
        float_model_content: bytes | None = None,
        debug_dataset: CalibrationData = None,
        debug_options: QuantizationDebugOptions | None = None,
        converter: Any = None,
    ) -> None:
        if debug_dataset is None:
            raise SettingsError("pass debug_dataset: samples, or a function that returns them")
        self._data, self._options = replayable(debug_dataset), debug_options or QuantizationDebugOptions()
        self._conversion: DebugConversion | None = None
        self.converter = converter
        self.quant_model: bytes | None = None
        self.float_model: bytes | None = None
        self._quantized: str | bytes | None = None
        self._float: str | bytes | None = None
        if converter is not None:
            self._convert(converter)
        else:
            self._quantized = _path_or_content("quant_debug_model", quant_debug_model_path, quant_debug_model_content)
            if float_model_path is not None or float_model_content is not None:
                self._float = _path_or_content("float_model", float_model_path, float_model_content)
        if self._options.model_debug_metrics and self._float is None:
            raise SettingsError("model_debug_metrics compare two models: give float_model_path or float_model_content")
        self._result = _Result()
        self._has_run = False

    def _convert(self, converter: Any) -> None:
        from quaver.adapters.litert.inspect.debug_model import DebugConversion

        self._conversion = DebugConversion(converter, bool(self._options.model_debug_metrics))
        self._float = self.float_model = self._conversion.float_model
        self._quantized = self.quant_model = self._quantize(is_debug=True)

    def _quantize(self, is_debug: bool) -> bytes:
        if self._conversion is None:
            raise SettingsError("only a debugger with `converter=` can quantize: pass your tf.lite.TFLiteConverter")
        options = self._options
        ops, nodes = options.denylisted_ops or (), options.denylisted_nodes or ()
        unknown = self._conversion.unknown(ops, nodes)
        if unknown:
            log.warning("%s: no op of the model has this type or output; it has no effect", ", ".join(unknown))
        return self._conversion.quantize(is_debug, options.fully_quantize, ops, nodes)

    @property
    def options(self) -> QuantizationDebugOptions:
        """The options. With a converter, new ones quantize the model again, without another calibration."""
        return self._options

    @options.setter
    def options(self, options: QuantizationDebugOptions) -> None:
        if options.model_debug_metrics and self._float is None:
            raise SettingsError("model_debug_metrics need a float model: pass them to the constructor")
        self._options, self._result, self._has_run = options, _Result(), False
        if self._conversion is not None:
            self._quantized = self.quant_model = self._quantize(is_debug=True)

    def get_nondebug_quantized_model(self) -> bytes:
        """Return the int8 .tflite to deploy, with the options applied. It needs a converter."""
        return self._quantize(is_debug=False)

    def get_debug_quantized_model(self) -> bytes:
        """Return the debug model, with the options applied. It needs a converter."""
        return self._quantize(is_debug=True)

    def run(self) -> None:
        """Run all samples through the model, or through both models."""
        content = (
            self._quantized if isinstance(self._quantized, bytes) else Path(expanded(self._quantized)).read_bytes()
        )
        if _is_debug_model(content):
            from quaver.adapters.litert.inspect.debug_model import DebugModel

            model = DebugModel(content, keep_all=bool(self._options.layer_direct_compare_metrics))
            self._result = _run_debug_model(model, self._float, self._data, self._options)
        elif self._float is None:
            self._result = self._run_alone()
        else:
            self._result = self._run_beside(self._float)
        self._has_run = True

    @property
    def layer_statistics(self) -> dict[str, dict[str, float]]:
        """The statistics of each layer; empty before `run`."""
        return self._result.layers

    @property
    def model_statistics(self) -> dict[str, float]:
        """The user's metrics of both models; empty before `run`."""
        return self._result.model

    @property
    def diagnosis(self) -> Diagnosis | QuantizedStatistics | None:
        """quaver's own diagnosis, with causes and rules if there is a float model; None before `run`."""
        if self._has_run and self._result.diagnosis is None:  # a debug model, of which only the statistics were needed
            self._result.diagnosis = diagnose_quantized(self._quantized, self._data, samples=None)
        return self._result.diagnosis

    def _run_alone(self) -> _Result:
        if self._options.own_metrics:
            raise SettingsError(
                f"{', '.join(self._options.own_metrics)} compare with float values: pass the float model too, or a "
                "debug model"
            )
        statistics = diagnose_quantized(self._quantized, self._data, samples=None)
        rows = statistics.tensors
        return _Result(
            {row.op: row.figures() for row in rows}, {}, {row.op: _columns_of(row) for row in rows}, statistics
        )

    def _run_beside(self, model: ModelLike) -> _Result:
        options = self._options
        diagnosis = diagnose(
            model,
            self._quantized,
            self._data,
            samples=None,
            layer_metrics=options.layer_debug_metrics or {},
            layer_direct_metrics=options.layer_direct_compare_metrics or {},
            model_metrics=options.model_debug_metrics or {},
            timing=False,
        )
        names = STATISTICS | {name: name for name in options.own_metrics}
        rows = [row for row in diagnosis.layers if row.scales and Precision(row.precision).quantized]
        layers = {row.op: {name: row.local[ours] for name, ours in names.items()} for row in rows}
        columns = {row.op: _columns_of(row) for row in rows}
        return _Result(layers, dict(diagnosis.model_statistics), columns, diagnosis)

    def layer_statistics_dump(self, file: TextIO) -> None:
        """Write the statistics to an open file as CSV.

        The columns are those of TFLite's debugger, and `scales` and `zero_points` as lists behind them.
        """
        if not self._has_run:
            raise SettingsError("call run() before layer_statistics_dump()")
        result = self._result
        statistics = list(dict.fromkeys(name for figures in result.layers.values() for name in figures))
        ends = ["scale", "zero_point", "tensor_name", "scales", "zero_points"]
        heads = ["op_name", "tensor_idx", *(name for name in statistics if name not in ends), *ends]
        writer = csv.DictWriter(file, heads)
        writer.writeheader()
        for name, figures in result.layers.items():
            writer.writerow({**figures, **result.columns[name]})


def _run_debug_model(
    model: DebugModel, float_model: ModelLike, data: CalibrationData, options: QuantizationDebugOptions
) -> _Result:
    """Return the mean over all samples of each statistic, as TFLite's debugger does."""
    metrics = {**SAMPLE_STATISTICS, **(options.layer_debug_metrics or {})}
    direct, compared = options.layer_direct_compare_metrics or {}, options.model_debug_metrics or {}
    measured = {op.name: {name: [] for name in (*metrics, *direct)} for op in model.ops}  # type: ignore[var-annotated]
    outputs: dict[str, list[Any]] = {name: [] for name in compared}
    runner = load_unmodified(expanded(float_model)) if compared else None
    for feed in _samples(model, data):
        model.run(feed)
        for op, differences in model.differences():
            for name, metric in metrics.items():
                measured[op.name][name].append(metric(differences))
        if direct:
            for op, real, integers in model.values():
                parameters = np.float32(op.scale), np.int32(op.zero_point)
                for name, metric in direct.items():
                    measured[op.name][name].append(metric(real, integers, *parameters))
        if runner is not None:
            pair = as_list(runner.run(feed)), model.outputs()
            for name, metric in compared.items():
                outputs[name].append(metric(*pair))
    return _Result(
        {op: {name: _mean(values) for name, values in figures.items()} for op, figures in measured.items()},
        {name: float(np.mean(values)) for name, values in outputs.items()},
        {op.name: _columns_of_verified(op) for op in model.ops},
    )


def _samples(model: DebugModel, data: CalibrationData) -> Iterator[Feed]:
    count = 0
    for count, feed in enumerate(feeds(data, model.inputs), 1):  # noqa: B007
        yield feed
    if not count:
        raise CalibrationError("debug_dataset gave no samples; pass a list, an array or a function that returns them")


def _mean(values: Sequence[Any]) -> float:
    """Return the mean without NaN, with the digits that its type has: 0.1 of float32 is 0.1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all are NaN
        return float(str(np.nanmean(values)))


def _columns_of_verified(op: VerifiedOp) -> dict[str, Any]:
    scale = float(str(np.float32(op.scale)))
    return {
        "op_name": op.kind,
        "tensor_idx": op.tensor,
        "scale": scale,
        "zero_point": op.zero_point,
        "tensor_name": op.tensor_name,
        "scales": [scale],
        "zero_points": [op.zero_point],
    }


def _columns_of(row: LayerRow | QuantizedTensorRow) -> dict[str, Any]:
    if isinstance(row, LayerRow):
        scales, zero_points, tensor = list(row.scales), list(row.zero_points), row.tensor
    else:
        scales, zero_points, tensor = [row.scale], [row.zero_point], row.tensor
    return {
        "op_name": row.kind,
        "tensor_idx": row.tensor_id,
        "scale": scales[0],
        "zero_point": zero_points[0] if zero_points else 0,
        "tensor_name": tensor,
        "scales": scales,
        "zero_points": zero_points,
    }


def _is_debug_model(content: bytes) -> bool:
    """Return True if a model holds the ops of TensorFlow's debugger, and so its float ops."""
    return b"NumericVerify" in content


def _path_or_content(name: str, path: str | None, content: bytes | None) -> str | bytes | None:
    """Return the model's path or bytes; exactly one must be set."""
    if (path is None) == (content is None):
        raise SettingsError(f"pass either {name}_path or {name}_content")
    return content if path is None else path
