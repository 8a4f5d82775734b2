"""`diagnose_quantized`: what a quantized model shows by itself, with no float model at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from quaver.adapters import adapter_for, open_given
from quaver.api.checked import check_metrics, check_samples, check_writable, keywords_checked
from quaver.diagnosis.alone import QuantizedStatistics
from quaver.diagnosis.differences import Direct
from quaver.engine.diagnosing import SAMPLES
from quaver.engine.diagnosing_alone import examine_alone
from quaver.engine.events import Observer, Observers, Stage, StageStarted, make_observers
from quaver.errors import SettingsError
from quaver.paths import expanded


@keywords_checked
def diagnose_quantized(
    quantized: Any,
    calib_dataloader: Any,
    *,
    workspace: str | os.PathLike[str] | None = None,
    samples: int | None = SAMPLES,
    layer_metrics: Mapping[str, Callable[[Any], Any]] | None = None,
    layer_direct_metrics: Mapping[str, Callable[[Any, Any, Any, Any], Any]] | None = None,
    model_metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    float_model: Any = None,
    threads: int = 0,
    observer: Observer | Iterable[Observer] | None = None,
) -> QuantizedStatistics:
    """Say how a quantized model uses its integers: scales, ranges, what sticks to their ends, levels that are used.

    Errors need the float model (`diagnose`), or a debug model of TensorFlow, which holds the float ops, too.

    Args:
        quantized: the quantized model: a file or bytes, ONNX or .tflite, whoever made it.
        calib_dataloader: typical inputs, as for `fit`, in float also where the model takes integers.
        workspace: a folder to write the tables into; None writes none (`QuantizedStatistics.save` does it later).
        samples: how many samples to look at; None is all.
        layer_metrics: {name: function} of the differences of an op's output; for a debug model.
        layer_direct_metrics: {name: function} of the float output, the integers, scale and zero point; likewise.
        model_metrics: {name: function} of the outputs of `float_model` and of this one, called for each sample.
        float_model: what `model_metrics` compare with; for nothing else. `diagnose` makes more of it.
        threads: threads of one inference; 0 lets the runtime decide.
        observer: called with an event for all that happens; a list for several.

    Returns:
        A `QuantizedStatistics`.
    """
    if calib_dataloader is None:
        raise SettingsError("calib_dataloader is needed: typical inputs to run through the model, without labels")
    check_samples(samples)
    check_metrics(layer_metrics=layer_metrics, layer_direct_metrics=layer_direct_metrics, model_metrics=model_metrics)
    if model_metrics and float_model is None:
        raise SettingsError(f"{', '.join(model_metrics)} compare with the outputs of the float model: give float_model")
    if workspace is not None:
        check_writable(Path(expanded(workspace)))
    watch = Observers(*make_observers(observer))
    watch(StageStarted(Stage.READING))
    quantized = expanded(quantized)
    view = adapter_for(quantized).look_alone(quantized, threads)
    direct = {name: Direct(function) for name, function in (layer_direct_metrics or {}).items()}
    metrics = {**(layer_metrics or {}), **direct}
    beside = None if float_model is None else open_given(expanded(float_model), threads=threads)
    found = examine_alone(view, calib_dataloader, samples, watch, metrics, model_metrics or {}, beside)
    if metrics and not found.layers:
        raise SettingsError(
            f"{', '.join(metrics)} compare with float values, and the model has none: call `diagnose` with the float "
            "model and this one"
        )
    if workspace is not None:
        found.save(workspace)
    return found
