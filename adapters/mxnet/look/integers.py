"""What the integers of MXNet stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quaver.quantization import Array, QuantizationParameters, QuantizedTensor

Seen = Array | QuantizedTensor

# The largest integer that is used. All are symmetric: of int8 -128 is left out.
_STEPS = {"int8": 127, "uint8": 255, "int32": 2**31 - 1}


def seen(values: Sequence[Array]) -> Seen:
    """A tensor as a node gave it: in float, or in integers followed by the ends of the range they stand for."""
    if len(values) == 1 or values[0].dtype.kind == "f":
        return values[0]
    tensor, low, high = values
    return QuantizedTensor(tensor, parameters(tensor.dtype, float(low.min()), float(high.max())))


def parameters(dtype: Any, low: float, high: float) -> QuantizationParameters:
    """Scale and zero point: zero is 0, and the larger end of the range is the largest integer."""
    scale = max(abs(low), abs(high)) / _STEPS[np.dtype(dtype).name]
    return QuantizationParameters(np.asarray(scale, np.float32), np.asarray(0, dtype))
