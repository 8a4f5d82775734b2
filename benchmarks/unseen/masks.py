"""How well areas are found."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.bench import Array

TEXT, THING = 0.3, 0.5


def text_area(outputs: Array) -> Array:
    """Where the detector sees text."""
    return np.asarray(outputs[:, 0] > TEXT)


def thing_area(outputs: Any) -> Array:
    """Where the first of several outputs, the finest one, sees the thing."""
    return np.asarray(outputs[0][:, 0] > THING)


def person_area(outputs: Any) -> Array:
    """Where the second output, after the colours in front, is more person than background."""
    return np.asarray(outputs[1][:, 0] > THING)


def overlap(found: Any, labels: Any) -> float:
    """Mean over the pictures of intersection over union."""
    return float(np.mean([_share(np.squeeze(area), label) for area, label in zip(found, labels, strict=True)]))


def f1(found: Any, labels: Any) -> float:
    """F1 over all points of all pictures."""
    right = np.logical_and(found, labels).sum()
    return float(2 * right / max(1, np.count_nonzero(found) + np.count_nonzero(labels)))


def between(found: Any, labels: Any) -> float:
    """F1 where all of a core must be found, and nothing beyond the whole; labels are pairs of the two."""
    core, whole = labels[:, 0], labels[:, 1]
    complete = np.logical_and(found, core).sum() / max(1, np.count_nonzero(core))
    clean = np.logical_and(found, whole).sum() / max(1, np.count_nonzero(found))
    return float(2 * complete * clean / max(complete + clean, 1e-9))


def _share(area: Array, label: Array) -> float:
    union = np.logical_or(area, label).sum()
    return float(np.logical_and(area, label).sum() / union) if union else 1.0
