"""TFLite's quantization debugger on `quaver.diagnose`: its scripts run with their import line changed.

The debug model with float ops inside that TensorFlow makes for its own debugger is not needed: give the quantized model
and the float model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from quaver.api import diagnose
from quaver.diagnosis import Diagnosis
from quaver.errors import SettingsError

# The statistics of TFLite's debugger, and what they are called here: its counts and maxima are those of one sample.
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
    """Figures of one's own.

    Attributes:
        layer_debug_metrics: functions of the differences of an op's output.
        model_debug_metrics: functions of the outputs of the float and of the quantized model, called for each sample.
        layer_direct_compare_metrics: functions of the float output, the quantized one, its scale and zero point.
    """

    layer_debug_metrics: Metrics = field(default_factory=dict)
    model_debug_metrics: Metrics = field(default_factory=dict)
    layer_direct_compare_metrics: Metrics = field(default_factory=dict)


class QuantizationDebugger:
    """Compares a quantized model with its float model, layer by layer.

    Attributes:
        layer_statistics: after `run`, {layer: {statistic: value}}.
        model_statistics: after `run`, {metric: value}.
        diagnosis: after `run`, all of it, causes and rules included.
    """

    def __init__(
        self,
        quant_debug_model_path: str | None = None,
        quant_debug_model_content: bytes | None = None,
        float_model_path: str | None = None,
        float_model_content: bytes | None = None,
        debug_dataset: Any = None,
        debug_options: QuantizationDebugOptions | None = None,
    ) -> None:
        self._float = _one("float_model", float_model_path, float_model_content)
        self._quantized = _one("quant_debug_model", quant_debug_model_path, quant_debug_model_content)
        if debug_dataset is None:
            raise SettingsError("debug_dataset is needed: a function that gives samples, or the samples")
        self._data, self._options = debug_dataset, debug_options or QuantizationDebugOptions()
        self.layer_statistics: dict[str, dict[str, float]] = {}
        self.model_statistics: dict[str, float] = {}
        self.diagnosis: Diagnosis | None = None

    def run(self) -> None:
        """Run all samples through both models."""
        options = self._options
        found = self.diagnosis = diagnose(
            self._float,
            self._quantized,
            self._data,
            samples=None,
            layer_metrics=options.layer_debug_metrics,
            layer_direct_metrics=options.layer_direct_compare_metrics,
            model_metrics=options.model_debug_metrics,
            timing=False,
        )
        own = [*options.layer_debug_metrics, *options.layer_direct_compare_metrics]
        names = STATISTICS | {name: name for name in own}
        self.layer_statistics = {
            row.op: {name: row.local[ours] for name, ours in names.items()} for row in found.layers if row.scales
        }
        self.model_statistics = dict(found.model_statistics)

    def layer_statistics_dump(self, file: TextIO) -> None:
        """Write the statistics to an open file as CSV, with scales and zero points as lists."""
        if self.diagnosis is None:
            raise SettingsError("call run() before layer_statistics_dump()")
        self.diagnosis.layer_statistics_dump(file)


def _one(what: str, path: str | None, content: bytes | None) -> Any:
    """A model by its path or by its bytes, not by both."""
    if (path is None) == (content is None):
        why = "" if path is not None else ": what it computes is compared with it"
        raise SettingsError(f"give {what}_path or {what}_content, one of the two{why}")
    return content if path is None else path
