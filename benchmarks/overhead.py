"""What a trial costs besides eval_func, against the bare creation of the same session and against quantize_static."""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

import quaver
from benchmarks import shapes
from quaver.adapters.onnxrt.run import session as sessions
from quaver.engine import events

TRIALS = 12
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "ResNet50": shapes.resnet50,
    "MobileNetV2": shapes.mobilenet_v2,
    "BERT-base": shapes.bert_base,
}


class Scatter(quaver.Strategy):
    """Sends another tenth of the ops to fp32 each time."""

    name = "scatter"

    def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Iterator[quaver.QuantConfig]:
        config = space.default_config()
        for shift in range(TRIALS):
            yield config.fallback(*space.tunable[shift::10])


class Clock:
    """Times each trial from proposal to record."""

    def __init__(self) -> None:
        self.overheads: list[float] = []
        self._start = 0.0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.TrialStarted():
                self._start = time.perf_counter()
            case events.TrialFinished(trial, _):
                self.overheads.append(time.perf_counter() - self._start - trial.seconds)


def measure(name: str) -> dict[str, Any]:
    """Median seconds of a trial's overhead, of creating the same session, and of quantize_static."""
    model = MODELS[name]()
    feeds = list(shapes.feeds(model, 3))
    bare: list[float] = []
    hashing: list[float] = []

    def evaluate(built: Any) -> float:
        model_bytes, folder = built.source()
        start = time.perf_counter()
        built.sha256  # noqa: B018 - computed beside eval_func, which takes longer than this; waited for here
        hashing.append(time.perf_counter() - start)
        start = time.perf_counter()
        sessions.create(model_bytes, sessions.options(1), folder)
        bare.append(time.perf_counter() - start)
        return 1.0 - 0.5 * len(bare[1:])  # the baseline is perfect, no trial is

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        quaver.fit(
            model, calib_dataloader=feeds, eval_func=evaluate, strategy=Scatter, observer=clock, threads=1,
            workspace=Path(folder) / "run", max_trials=TRIALS,
        )  # fmt: skip
        static = quantize_static_seconds(model, feeds, Path(folder))
    overhead, creation = statistics.median(clock.overheads[1:]), statistics.median(bare[2:])
    return {
        "model": name,
        "trial overhead ms": 1e3 * overhead,
        "bare session ms": 1e3 * creation,
        "overhead / session": overhead / creation,
        "hashing beside eval ms": 1e3 * statistics.median(hashing[2:]),
        "first trial ms": 1e3 * clock.overheads[0],
        "quantize_static ms": 1e3 * static,
        "quantize_static / overhead": static / overhead,
    }


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: list[dict[str, Any]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def quantize_static_seconds(model: onnx.ModelProto, feeds: list[dict[str, Any]], folder: Path) -> float:
    """Seconds of ORT's own per-channel quantization when its calibration is cached."""
    source = folder / "float.onnx"
    onnx.save_model(model, source)
    times = []
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # quantize_static warns about every LayerNorm weight
    for _ in range(3):
        start = time.perf_counter()
        quantize_static(
            source, folder / "static.onnx", _Reader(feeds), per_channel=True, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8, calibration_cache_path=folder / "calibration.cache",
        )  # fmt: skip
        times.append(time.perf_counter() - start)
    logger.setLevel(level)
    return min(times[1:])


def run() -> list[dict[str, Any]]:
    """All models."""
    return [measure(name) for name in MODELS]
