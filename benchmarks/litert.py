"""The TensorFlow side: what a trial costs, and what tuning gains on LiteRT's kernels.

A trial is set against the bare work it cannot do without (ai-edge-quantizer's own front door and the creation of an
interpreter) and against the re-quantization of TensorFlow's QuantizationDebugger, the tool that people exclude ops with
today. Weights are random, so scores are agreement with the fp32 model; times do not depend on them.

    python -m benchmarks.run litert
"""

from __future__ import annotations

import contextlib
import io
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import quaver
from benchmarks.overhead import TRIALS, Clock, Scatter
from quaver.adapters.options import AdapterOptions
from quaver.ops import FLOAT, INT8

RUNS = 200
SIZE = 128


def mobilenet_v2() -> Any:
    import keras

    return keras.applications.MobileNetV2((SIZE, SIZE, 3), weights=None, classes=100)


def mobilenet_v3() -> Any:
    import keras

    return keras.applications.MobileNetV3Small(
        (SIZE, SIZE, 3), weights=None, classes=100, include_preprocessing=False, dropout_rate=0.0
    )


def transformer() -> Any:
    """Four blocks of attention over 64 vectors of 128."""
    import keras
    from keras import layers

    x = steps = keras.Input((64, 128), name="steps")
    for _ in range(4):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))
    return keras.Model(steps, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


MODELS: dict[str, Callable[[], Any]] = {
    "MobileNetV2": mobilenet_v2,
    "MobileNetV3-small": mobilenet_v3,
    "transformer": transformer,
}


def make(name: str) -> tuple[Any, NDArray[np.float32]]:
    """A model and inputs for it. BatchNorm gets the statistics of these inputs, or activations would vanish."""
    import keras

    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    data = np.random.default_rng(0).normal(size=(32, *model.inputs[0].shape[1:])).astype(np.float32)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    if any(isinstance(layer, keras.layers.BatchNormalization) for layer in model.layers):
        model(data, training=True)
    return model, data


class Agreement:
    """How near a model's outputs are to those of the fp32 model, which is the first that it sees."""

    def __init__(self, data: NDArray[np.float32]) -> None:
        self._data = data
        self._expected: NDArray[Any] | None = None

    def __call__(self, model: Any) -> float:
        outputs = model(self._data)
        if self._expected is None:
            self._expected = outputs
        noise = float(np.sum(np.square(outputs - self._expected)))
        return 1.0 - noise / float(np.sum(np.square(self._expected - self._expected.mean(axis=0))))


def overhead(name: str) -> dict[str, Any]:
    """Median milliseconds of a trial besides eval_func, and of the alternatives."""
    model, data = make(name)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        quaver.fit(
            model, calib_dataloader=data[:8], eval_func=_falling(), strategy=Scatter, observer=clock, threads=1,
            workspace=Path(folder) / "run", max_trials=TRIALS,
        )  # fmt: skip
    ours = statistics.median(clock.overheads[1:])
    quantize, create = bare(model, data)
    debugger = quantization_debugger(model, data)
    return {
        "model": name,
        "trial overhead ms": 1e3 * ours,
        "first trial ms": 1e3 * clock.overheads[0],
        "bare quantize ms": 1e3 * quantize,
        "bare interpreter ms": 1e3 * create,
        "overhead / bare": ours / (quantize + create),
        "QuantizationDebugger ms": 1e3 * debugger,
        "debugger / overhead": debugger / ours,
    }


def _falling() -> Callable[[Any], float]:
    """The baseline is perfect, no trial is."""
    scores = iter(range(1000))
    return lambda model: 1.0 - 0.5 * next(scores)


def bare(model: Any, data: NDArray[np.float32]) -> tuple[float, float]:
    """Seconds of ai-edge-quantizer's own `quantize` with everything in int8 that can be, and of an interpreter."""
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer

    from quaver.adapters.litert.adapter import LiteRTAdapter
    from quaver.adapters.litert.build.builder import _quantizer_scope
    from quaver.adapters.litert.ops.units import QUANTIZER_NAMES

    adapter = LiteRTAdapter.load(model, AdapterOptions(threads=1))
    adapter.calibrate(data[:8])
    config = quaver.TuningSpace(adapter.ops()).default_config()
    builder = adapter._builder
    int8 = [unit for unit in builder.units if config[unit.op.name].precision is INT8]
    moved = builder._int8_passthrough({unit.operator.index for unit in int8})
    operators = [*(unit.operator for unit in int8), *(builder.graph.operators[index] for index in moved)]
    front = quantizer.Quantizer(builder.graph.content)
    times: list[tuple[float, float]] = []
    for _ in range(4):
        start = time.perf_counter()
        front.load_quantization_recipe([])
        for op in operators:
            front.add_static_config(
                f"^{re.escape(_quantizer_scope(builder.graph, op.index))}$", QUANTIZER_NAMES[op.kind], 8, 8
            )
        statistics_ = builder._statistics(config, int8, moved)
        result = front.quantize(statistics_, enable_progress_bar=False, enable_progress_report=False)
        built = time.perf_counter()
        Interpreter(model_content=bytes(result.quantized_model), num_threads=1).allocate_tensors()
        times.append((built - start, time.perf_counter() - built))
    return statistics.median(pair[0] for pair in times), statistics.median(pair[1] for pair in times)


def quantization_debugger(model: Any, data: NDArray[np.float32]) -> float:
    """Seconds in which TensorFlow's debugger quantizes a calibrated model again with some ops left out."""
    import tensorflow as tf

    def dataset() -> Iterator[list[NDArray[np.float32]]]:
        for row in data[:8]:
            yield [row[None]]

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = dataset
    with contextlib.redirect_stdout(io.StringIO()):  # it lists every variable
        debugger = tf.lite.experimental.QuantizationDebugger(converter=converter, debug_dataset=dataset)
    times = []
    for kinds in (["ADD"], ["MEAN"], ["ADD", "MEAN"]):
        debugger.options = tf.lite.experimental.QuantizationDebugOptions(denylisted_ops=kinds)
        start = time.perf_counter()
        debugger.get_nondebug_quantized_model()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def latency(name: str) -> dict[str, Any]:
    """Time the tuned model next to all-int8 and fp32, interleaved."""
    from quaver.adapters.litert.adapter import LiteRTAdapter

    model, data = make(name)
    with tempfile.TemporaryDirectory() as folder:
        result = quaver.fit(
            model, calib_dataloader=data, eval_func=Agreement(data), strategy="auto", threads=1, absolute=0.1,
            workspace=Path(folder) / "run", max_trials=30,
        )  # fmt: skip
        assert result.best is not None
        float_model = quaver.recover(model, result.history_path, 0).SerializeToString()
        adapter = LiteRTAdapter.load(float_model, AdapterOptions(threads=1))
        adapter.calibrate(data)
        space = quaver.TuningSpace(adapter.ops())
        built = {
            "fp32": adapter.build(None),
            "every op int8": adapter.build(
                space.configure(lambda op: op.choices[0] if op.choices[0] != FLOAT else op.choices[1])
            ),
            "default int8": adapter.build(space.default_config()),
            "tuned": quaver.recover(float_model, result.history_path, result.best.number, threads=1),
        }
        sample = {name: array[:1] for name, array in adapter.probe_samples[0].items()}
        seconds = _in_turns(built, sample)
    fp32 = seconds.pop("fp32")
    return {
        "model": name,
        "ops": len(space),
        "fp32 ms": 1e3 * fp32,
        **{f"{what} / fp32": taken / fp32 for what, taken in seconds.items()},
        "tuned int8 ops": len(result.best.config.int8_ops),
        "evaluations": result.evaluations,
    }


def _in_turns(models: dict[str, Any], feed: dict[str, Any]) -> dict[str, float]:
    """Seconds of one inference; the quickest tenth of the runs counts, so that a busy machine disturbs little."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(RUNS):
        for name, model in models.items():
            start = time.perf_counter()
            model.run(feed)
            times[name].append(time.perf_counter() - start)
    return {name: float(np.quantile(taken, 0.1)) for name, taken in times.items()}


def run() -> list[dict[str, Any]]:
    """All models; one row that says so where TensorFlow is not installed."""
    if find_spec("tensorflow") is None or find_spec("ai_edge_quantizer") is None:
        return [{"model": "none", "why": "TensorFlow is not installed: pip install quaver[tensorflow]"}]
    return [*(overhead(name) for name in MODELS), *(latency(name) for name in MODELS)]
