"""Values that stand for infinity among real ones, as attention masks put them: a range over both leaves no steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A range in 8 bits has so many steps.
STEPS = 255
# What stands for infinity is far away, both in itself and in steps of the range that holds it...
FAR, FAR_STEPS = 1e3, 64
# ... and lies in a few places. An outlier, which is a value like others, lies in many.
PLACES = 4
# So many different values, and such a part of all, are real ones that all get lost in one step.
REAL_VALUES, REAL_PART = 3, 0.01


def has_mask_values(
    values: NDArray[np.float64], counts: NDArray[np.int64], low: float, high: float, steps: int = STEPS
) -> bool:
    """Whether a range from `low` to `high` leaves the real values among these no step of their own.

    `counts` says how often each value was seen. Zeros do not count: they have a step in any range.
    """
    step = (high - low) / steps
    seen = counts > 0
    if max(-low, high) < FAR or not step > 0 or not seen.any():
        return False
    values, counts = np.clip(values[seen], low, high), counts[seen]
    places = np.rint(values / step)
    lost = (places == 0) & (values != 0)
    far = np.unique(places[places != 0])
    return bool(
        lost.sum() >= REAL_VALUES
        and counts[lost].sum() >= REAL_PART * counts.sum()
        and 0 < far.size <= PLACES
        and np.abs(far).min() >= FAR_STEPS
    )
