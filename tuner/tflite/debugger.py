"""TFLite's quantization debugger on `quaver.diagnose`: its scripts run once their import line is changed.

Pass the quantized model and the float model, or the quantized model alone. A debug model of TensorFlow also holds the
float ops and is compared with them, as TFLite's debugger does. For any other model alone the debugger reports how the
model uses its integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from quaver.api import diagnose, diagnose_quantized
from quaver.diagnosis import Diagnosis, QuantizedStatistics
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.ops import Precision
from quaver.types import CalibrationData, ModelLike

# TFLite's names of statistics and ours; its counts and maxima are those of one sample.
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
    """Statistics that the user adds.

    Attributes:
        layer_debug_metrics: functions of the differences of an op's output.
        model_debug_metrics: functions of the outputs of the float and of the quantized model, called for each sample.
        layer_direct_compare_metrics: functions of the float output, the quantized one, its scale and zero point.
    """

    layer_debug_metrics: Metrics = field(default_factory=dict)
    model_debug_metrics: Metrics = field(default_factory=dict)
    layer_direct_compare_metrics: Metrics = field(default_factory=dict)


class QuantizationDebugger:
    """Compare a quantized model with its float model, or a debug model with its own float ops, layer by layer.

    Attributes:
        layer_statistics: after `run`, {layer: {statistic: value}}.
        model_statistics: after `run`, {metric: value}.
        diagnosis: after `run`, the whole diagnosis with causes and rules.
    """

    def __init__(
        self,
        quant_debug_model_path: str | None = None,
        quant_debug_model_content: bytes | None = None,
        float_model_path: str | None = None,
        float_model_content: bytes | None = None,
        debug_dataset: CalibrationData = None,
        debug_options: QuantizationDebugOptions | None = None,
    ) -> None:
        self._quantized = _path_or_content("quant_debug_model", quant_debug_model_path, quant_debug_model_content)
        alone = float_model_path is None and float_model_content is None
        self._float = None if alone else _path_or_content("float_model", float_model_path, float_model_content)
        if alone and debug_options is not None and debug_options.model_debug_metrics:
            raise SettingsError("model_debug_metrics compare two models: give float_model_path or float_model_content")
        if debug_dataset is None:
            raise SettingsError("pass debug_dataset: samples, or a function that returns them")
        self._data, self._options = debug_dataset, debug_options or QuantizationDebugOptions()
        self.layer_statistics: dict[str, dict[str, float]] = {}
        self.model_statistics: dict[str, float] = {}
        self.diagnosis: Diagnosis | QuantizedStatistics | None = None

    def run(self) -> None:
        """Run all samples through the model, or through both models."""
        options = self._options
        own = [*options.layer_debug_metrics, *options.layer_direct_compare_metrics]
        names = STATISTICS | {name: name for name in own}
        self.layer_statistics = {}
        diagnosis: Diagnosis | QuantizedStatistics
        if self._float is None or _is_debug_model(self._quantized):
            diagnosis = statistics = self._diagnose_alone()
            rows = statistics.layers
            if not rows:
                self.layer_statistics = {row.op: row.figures() for row in statistics.tensors}
        else:
            diagnosis = self._diagnose_beside(self._float)
            rows = tuple(row for row in diagnosis.layers if row.scales and Precision(row.precision).quantized)
        self.diagnosis, self.model_statistics = diagnosis, dict(diagnosis.model_statistics)
        self.layer_statistics |= {row.op: {name: row.local[ours] for name, ours in names.items()} for row in rows}

    def _diagnose_alone(self) -> QuantizedStatistics:
        options = self._options
        return diagnose_quantized(
            self._quantized,
            self._data,
            samples=None,
            layer_metrics=options.layer_debug_metrics,
            layer_direct_metrics=options.layer_direct_compare_metrics,
            model_metrics=options.model_debug_metrics,
            float_model=self._float,
        )

    def _diagnose_beside(self, model: ModelLike) -> Diagnosis:
        options = self._options
        return diagnose(
            model,
            self._quantized,
            self._data,
            samples=None,
            layer_metrics=options.layer_debug_metrics,
            layer_direct_metrics=options.layer_direct_compare_metrics,
            model_metrics=options.model_debug_metrics,
            timing=False,
        )

    def layer_statistics_dump(self, file: TextIO) -> None:
        """Write the statistics to an open file as CSV, with scales and zero points as lists."""
        if self.diagnosis is None:
            raise SettingsError("call run() before layer_statistics_dump()")
        self.diagnosis.layer_statistics_dump(file)


def _is_debug_model(model: ModelLike) -> bool:
    """Return True if a model holds the ops of TensorFlow's debugger, and so its float ops."""
    content = model if isinstance(model, bytes | bytearray | memoryview) else Path(expanded(model)).read_bytes()
    return b"NumericVerify" in bytes(content)


def _path_or_content(name: str, path: str | None, content: bytes | None) -> str | bytes | None:
    """Return the model's path or bytes; exactly one must be set."""
    if (path is None) == (content is None):
        raise SettingsError(f"pass either {name}_path or {name}_content")
    return content if path is None else path
