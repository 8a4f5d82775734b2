"""How often an interval of 95 % holds the loss: on scores of real models, resampled.

    python -m benchmarks.run coverage

A network for digits in fp32 and in int8 (plain, and with planted outliers that cost much accuracy) scores 1,797 images:
right or wrong, and the probability of the right class. These are taken for all data there are, so the loss is known.
Each of 4,000 sets drawn from them gives an interval; the share that holds the known loss should be 0.95. Where fewer
than ten samples differ, no interval meets its level closely, and this one holds the loss more often. `plain interval`
is the usual one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.planted import MODEL, Case, plant
from quaver.demo.data import digits
from quaver.statistics import paired_interval

LEVEL = 0.95
DRAWS = 4000
# The factors by how much a channel's weights are too large. They set the cost of the outlier.
OUTLIERS = (40, 60, 80, 100, 150)
SIZES = (200, 500, 1000, 2000)
Scores = NDArray[np.float64]


def run() -> list[dict[str, Any]]:
    """A row for each model, score and size."""
    rows = []
    for model, score, fp32, int8 in scored():
        for relative in (True, False):
            rows += [_row(f"{model}, {score}", fp32, int8, count, relative) for count in SIZES]
    return rows


def _row(name: str, fp32: Scores, int8: Scores, count: int, relative: bool) -> dict[str, Any]:
    loss = float((fp32 - int8).mean()) / (abs(float(fp32.mean())) if relative else 1.0)
    rng = np.random.default_rng(count)
    held = plain = 0
    for _ in range(DRAWS):
        drawn = rng.integers(0, fp32.size, count)
        one, other = fp32[drawn], int8[drawn]
        low, high = paired_interval(one, other, LEVEL, relative)
        held += low <= loss <= high
        lost = one - other
        scale = abs(one.mean()) if relative else 1.0
        plain += abs(lost.mean() / scale - loss) <= 1.96 * lost.std() / np.sqrt(count) / scale
    return {
        "scores": name,
        "N": count,
        "loss": "relative" if relative else "absolute",
        "true loss": loss,
        "samples that differ": count * float(np.mean(fp32 != int8)),
        "coverage": held / DRAWS,
        "plain interval": plain / DRAWS,
    }


def scored() -> Iterator[tuple[str, str, Scores, Scores]]:
    """Per-sample scores of a float and an int8 model, by both kinds of score."""
    images, labels, more, their_labels = digits()
    everything, truth = np.concatenate([images, more]), np.concatenate([labels, their_labels])
    model = onnx.load(MODEL)
    given = {"int8": model, **{f"int8, outlier of {factor}": plant(model, Case(factor, (1,))) for factor in OUTLIERS}}
    for name, float_model in given.items():
        before = _outputs(float_model, everything)
        after = _outputs(_quantized(float_model, images[:256]), everything)
        yield name, "right or wrong", _right(before, truth), _right(after, truth)
        yield name, "probability", _probability(before, truth), _probability(after, truth)


def _right(outputs: Scores, truth: NDArray[np.int64]) -> Scores:
    return (outputs.argmax(axis=1) == truth).astype(float)


def _probability(outputs: Scores, truth: NDArray[np.int64]) -> Scores:
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    probabilities: Scores = (shifted / shifted.sum(axis=1, keepdims=True))[np.arange(truth.size), truth]
    return probabilities


def _outputs(model: onnx.ModelProto, images: NDArray[np.float32]) -> Scores:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: Scores = session.run(None, {session.get_inputs()[0].name: images})[0].astype(float)
    return outputs


def _quantized(model: onnx.ModelProto, images: NDArray[np.float32]) -> onnx.ModelProto:
    """What ONNX Runtime's own tool makes of it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            name = model.graph.input[0].name
            self._feeds = iter([{name: images[first : first + 32]} for first in range(0, len(images), 32)])

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            return next(self._feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        quantize_static(model, path, Reader(), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        return onnx.load(path)
