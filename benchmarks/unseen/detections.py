"""What detectors put out, as rows of left, top, right, bottom and kind, the best first."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.bench import Array
from benchmarks.unseen.boxes import grid, suppress

FACE, CAPTCHA = 128, 416
PAGE_WIDE, PAGE_HIGH = 608, 800
# The grid of a face's first 512 boxes and of its last 384, each cell with several.
CELLS = np.concatenate([(grid(FACE, 8, 2) + 0.5) * 8, (grid(FACE, 16, 6) + 0.5) * 16])


def yolo_boxes(outputs: Any) -> Array:
    """What is left after non-maximum suppression in the graph: boxes by middle and size, scores and kinds."""
    boxes, scores, kinds = outputs
    order = np.argsort(-scores, kind="stable")
    return _corners(boxes[order], kinds[order])


def joined_boxes(outputs: Array) -> Array:
    """Return the boxes of a YOLOv8 whose one output has middle, size and the scores of the kinds in rows."""
    values = np.asarray(outputs)[0].T
    scores = values[:, 4:]
    return suppress(_corners(values[:, :4], scores.argmax(axis=1)), scores.max(axis=1), 0.25, overlap=0.45)


def face_boxes(outputs: Any, least: float = 0.5) -> Array:
    """BlazeFace: scores and boxes of two grids, relative to their cells; a crude middle of each heap is enough."""
    scores = 1 / (1 + np.exp(-np.clip(np.concatenate([outputs[0][0, :, 0], outputs[1][0, :, 0]]), -80, 80)))
    boxes = np.concatenate([outputs[2][0], outputs[3][0]])[:, :4]
    placed = np.concatenate([boxes[:, :2] + CELLS, boxes[:, 2:]], axis=1)
    return suppress(_corners(placed, np.zeros(len(placed))), scores, least, overlap=0.3)


def character_boxes(outputs: Array) -> Array:
    """YOLOX: center and logarithm of the size in cells, confidence, and the score of the only kind."""
    cells = np.concatenate([grid(CAPTCHA, stride) for stride in (8, 16, 32)])
    strides = np.repeat([8, 16, 32], [(CAPTCHA // stride) ** 2 for stride in (8, 16, 32)])[:, None]
    values = outputs[0]
    middle, size = (values[:, :2] + cells) * strides, np.exp(np.clip(values[:, 2:4], -20, 8)) * strides
    placed = np.concatenate([middle, size], axis=1)
    return suppress(_corners(placed, np.zeros(len(placed))), values[:, 4] * values[:, 5], 0.1, overlap=0.45)


def page_parts(outputs: Any) -> Array:
    """PicoDet: for grids of four sizes the scores of the kinds, then how likely each side is 0 to 7 cells away."""
    rows: list[Array] = []
    scores: list[Array] = []
    for stride, kinds, sides in zip((8, 16, 32, 64), outputs[:4], outputs[4:], strict=True):
        row, column = np.divmod(np.arange(len(kinds[0])), -(-PAGE_WIDE // stride))
        likely = np.exp(np.clip(sides[0], -40, 40)).reshape(-1, 4, 8)
        away = (likely * np.arange(8)).sum(axis=-1) / likely.sum(axis=-1)
        middle = np.stack([column, row], axis=1) + 0.5
        corners = np.concatenate([middle - away[:, :2], middle + away[:, 2:]], axis=1) * stride
        rows.append(np.concatenate([corners, kinds[0].argmax(axis=1)[:, None]], axis=1))
        scores.append(kinds[0].max(axis=1))
    return suppress(np.concatenate(rows), np.concatenate(scores), least=0.4, overlap=0.5)


def _corners(boxes: Array, kinds: Array) -> Array:
    middle, half = boxes[:, :2], boxes[:, 2:4] / 2
    return np.concatenate([middle - half, middle + half, np.asarray(kinds)[:, None]], axis=1)
