"""Models made int8 by others: ONNX Runtime's own tool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static


class Batches(CalibrationDataReader):
    """Calibration data as ONNX Runtime's tool wants it."""

    def __init__(self, name: str, images: np.ndarray) -> None:
        self._feeds = iter([{name: images[first : first + 32]} for first in range(0, len(images), 32)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def by_ort(model: Path, output: Path, images: np.ndarray) -> Path:
    """What `quantize_static` makes of a model, calibrated on these images."""
    name = onnx.load(model).graph.input[0].name
    quantize_static(model, output, Batches(name, images), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return output
