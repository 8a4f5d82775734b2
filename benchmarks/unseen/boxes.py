"""How well boxes are found: what detectors put out, and the F1 score at an overlap of one half."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.bench import Array

OVERLAP = 0.5


def f1(found: Any, labels: Any) -> float:
    """F1 over all pictures; rows are left, top, right, bottom and a kind that must be the same."""
    right = sum(_matches(boxes, truth) for boxes, truth in zip(found, labels, strict=True))
    count = sum(len(boxes) for boxes in found) + sum(len(truth) for truth in labels)
    return 2 * right / max(count, 1)


def _matches(boxes: Array, truth: Array) -> int:
    """How many boxes find a partner of their own, best score first."""
    free = np.ones(len(truth), bool)
    count = 0
    for box in boxes:
        fits = np.where(free & (truth[:, 4] == box[4]), overlaps(box, truth), 0.0)
        if len(fits) and fits.max() >= OVERLAP:
            free[fits.argmax()] = False
            count += 1
    return count


def overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with each of the others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:4], others[:, 2:4])
    common = np.prod(np.clip(high - low, 0, None), axis=1)
    sizes = [np.prod(np.clip(each[..., 2:4] - each[..., :2], 0, None), axis=-1) for each in (box, others)]
    return np.asarray(common / np.maximum(sizes[0] + sizes[1] - common, 1e-9))


def suppress(boxes: Array, scores: Array, least: float, overlap: float) -> Array:
    """Boxes of at least this score, best first, none of which overlaps a better one by more than so much."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= least]
    kept: list[int] = []
    for index in order:
        if not len(kept) or overlaps(boxes[index], boxes[kept]).max() <= overlap:
            kept.append(int(index))
    return boxes[kept].reshape(-1, boxes.shape[1])


def grid(side: int, stride: int, repeat: int = 1) -> Array:
    """Column and row of the cells of a square picture, row by row."""
    row, column = np.mgrid[: side // stride, : side // stride]
    return np.repeat(np.stack([column, row], axis=-1).reshape(-1, 2), repeat, axis=0)
