"""Drives a quantized model through samples with no float model beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaver.adapters import Model, QuantizedView
from quaver.adapters.batches import feeds, samples
from quaver.adapters.view import listed
from quaver.diagnosis.alone import AloneRecorder, QuantizedStatistics
from quaver.diagnosis.levels import MOST_BITS, weight_row
from quaver.engine.events import Observer, Progressed, Stage, StageStarted
from quaver.errors import CalibrationError, ModelError


def examine_alone(
    view: QuantizedView,
    data: Any,
    limit: int | None,
    observer: Observer,
    metrics: Mapping[str, Any],
    model_metrics: Mapping[str, Any],
    beside: Model | None = None,
) -> QuantizedStatistics:
    """The statistics of a quantized model on `data`; batches are run as they come.

    `model_metrics` compare its outputs with those of the float model `beside`.
    """
    if not view.ops:
        raise ModelError("no tensor of the model is in integers with a scale: is it the quantized model?")
    observer(StageStarted(Stage.DIAGNOSING))
    recorder = AloneRecorder(tuple(view.ops), metrics, model_metrics)
    for feed in feeds(data, view.inputs, limit):
        try:
            seen = view.run(feed)
            real = None if beside is None else listed(beside.run(feed))
        except Exception as error:
            raise CalibrationError(f"the model fails on a batch of {samples(feed)} sample(s): {error}") from error
        recorder.add(seen.ops, samples(feed))
        if real is not None:
            recorder.model.add(real, seen.outputs, samples(feed))
        observer(Progressed(Stage.DIAGNOSING, recorder.samples, limit))
    if not recorder.samples:
        raise CalibrationError("the data to look at gave no samples; pass a list, an array or a new generator")
    weights = (found for found in view.weights() if 8 * found[1].values.dtype.itemsize <= MOST_BITS)
    return QuantizedStatistics(
        recorder.samples,
        tuple(recorder.tensors()),
        tuple(weight_row(name, weight) for name, weight in weights),
        tuple(recorder.layers()),
        recorder.model.figures(),
    )
