"""Faces on the sample pictures, found by BlazeFace and put upright at a given size."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import onnxruntime as ort
from PIL import Image

from benchmarks.models.bench import Array
from benchmarks.unseen.detections import CELLS, FACE
from benchmarks.unseen.faces import FACES
from benchmarks.unseen.pictures import pictures

ROUNDS = 8
# As a score before the sigmoid; and the least width of a face in pixels.
SURE, SMALLEST = 1.5, 40


def portraits(count: int, side: int, eyes: tuple[float, float, float], seed: int) -> list[Image.Image]:
    """Draw faces; `eyes` are the columns of the left and the right eye and their row, as shares of the side.

    Picture by picture, then once more with other cuts: faces near each other in the list differ.
    """
    found = [image for image, _ in zip(_faces(side, eyes, seed), range(count), strict=False)]
    if len(found) < count:
        raise ValueError(f"there are {len(found)} faces of {count}: ask for fewer")
    return found


def _faces(side: int, eyes: tuple[float, float, float], seed: int) -> Iterator[Image.Image]:
    model = FACES.fetch() / "face_lib" / "face_detection_front_128x128.onnx"
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    chance = random.Random(seed)
    chosen = pictures(seed)
    for _ in range(ROUNDS):
        for picture in chosen:
            size = int(min(picture.size) * chance.uniform(0.33, 1))
            left, top = chance.randint(0, picture.width - size), chance.randint(0, picture.height - size)
            cut = picture.crop((left, top, left + size, top + size))
            places = _eyes(session, cut)
            if places is not None:
                yield _upright(cut, places, side, eyes)


def _eyes(session: ort.InferenceSession, cut: Image.Image) -> Array | None:
    """Column and row of the eyes of the clearest face, the one to the left first; None if it is not clear or small."""
    small = np.asarray(cut.resize((FACE, FACE), Image.Resampling.BILINEAR), np.float32)[None] / 127.5 - 1
    outputs = session.run(None, {"input:0": small})
    scores = np.concatenate([outputs[0][0, :, 0], outputs[1][0, :, 0]])
    best = int(scores.argmax())
    values = np.concatenate([outputs[2][0], outputs[3][0]])[best]
    scale = cut.width / FACE
    if scores[best] < SURE or values[2] * scale < SMALLEST:
        return None
    return np.asarray((values[4:8].reshape(2, 2) + CELLS[best]) * scale)


def _upright(cut: Image.Image, places: Array, side: int, eyes: tuple[float, float, float]) -> Image.Image:
    """Turned and scaled so that the eyes lie where they should."""
    left, right, row = (side * share for share in eyes)
    (x, y), step = places[0], (places[1] - places[0]) / (right - left)
    a, b = float(step[0]), float(step[1])
    matrix = (a, -b, x - a * left + b * row, b, a, y - b * left - a * row)
    return cut.transform((side, side), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
