"""Mask values: stand-ins for infinity, as in attention masks. A range over them leaves the real values no steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The steps of a range in 8 bits.
STEPS = 255
# A mask value is large in itself and in steps of the range that holds it. Judgement: masks use 1e4 and more...
MIN_MASK_VALUE, MIN_MASK_STEPS = 1e3, 64
# ... and they have few different values. Outliers, which are values like others, have many.
MAX_MASK_VALUES = 4
# At least this many different real values, and this part of all, must be lost in one step. Judgement.
MIN_LOST_VALUES, MIN_LOST_PART = 3, 0.01


def has_mask_values(
    values: NDArray[np.float64], counts: NDArray[np.int64], low: float, high: float, steps: int = STEPS
) -> bool:
    """Return True if a range from `low` to `high` leaves the real values among these no step of their own.

    `counts` holds how often each value occurred. Zeros do not count: they have a step in any range.
    """
    step = (high - low) / steps
    occurs = counts > 0
    if max(-low, high) < MIN_MASK_VALUE or not step > 0 or not occurs.any():
        return False
    values, counts = np.clip(values[occurs], low, high), counts[occurs]
    places = np.rint(values / step)
    lost = (places == 0) & (values != 0)
    far = np.unique(places[places != 0])
    return bool(
        lost.sum() >= MIN_LOST_VALUES
        and counts[lost].sum() >= MIN_LOST_PART * counts.sum()
        and 0 < far.size <= MAX_MASK_VALUES
        and np.abs(far).min() >= MIN_MASK_STEPS
    )
