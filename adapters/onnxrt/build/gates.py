"""HardSigmoid, clip(slope x + shift, 0, 1), on integers: no arithmetic, only other words for the same integers.

The integers of x are the result if they are cut off where that is 0 and where it is 1, and are read by another scale
about another zero: one fast kernel. The two ends are whole numbers, which moves the result by half a step of x at most.
Where the zero lies beyond the integers, or the ends lie too near to each other, a table of 256 does it: x is quantized
anew by a scale of 1 / (255 slope) about 255 shift, which clips and shifts it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.quantization import QuantizationParameters

# With fewer steps between the ends, half a step would be felt.
STEPS = 32


class Gated(NamedTuple):
    """Integers that are cut off: from `low` to `high`, and what they stand for then."""

    low: NDArray[np.uint8]
    high: NDArray[np.uint8]
    parameters: QuantizationParameters


def cut_off(reads: QuantizationParameters, slope: float, shift: float) -> Gated | None:
    """What becomes of integers with these parameters; None if they cannot stand for the result."""
    step, zero = float(reads.scale), int(reads.zero_point)
    low, high = round(zero - shift / (slope * step)), round(zero + (1 - shift) / (slope * step))
    if not 0 <= low <= 255 or high - low < STEPS:
        return None
    level = np.asarray(low, np.uint8)
    parameters = QuantizationParameters(np.asarray(1 / (high - low), np.float32), level)
    return Gated(level, np.asarray(min(high, 255), np.uint8), parameters)


def by_table(slope: float, shift: float) -> QuantizationParameters:
    """By what x is quantized so that its integers are the result in steps of 1/255."""
    return QuantizationParameters(np.asarray(1 / (255 * slope), np.float32), np.asarray(round(255 * shift), np.uint8))
