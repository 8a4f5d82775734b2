"""How well points and bits are found."""

from __future__ import annotations

import numpy as np

from benchmarks.models.bench import Array

# A point may be off by this share of half the picture.
NEAR = 0.02


def places_near(found: Array, labels: Array) -> float:
    """The share of points that are near where they should be; columns and rows in turn, from -1 to 1."""
    off = (found - labels).reshape(len(labels), -1, 2)
    return float((np.hypot(off[..., 0], off[..., 1]) < NEAR).mean())


def bits_right(found: Array, labels: Array) -> float:
    """The share of bits that are read right."""
    return float(((found > 0.5) == labels).mean())
