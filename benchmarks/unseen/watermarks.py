"""RivaGAN's decoder, which reads 32 bits that were hidden in a picture."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from PIL import Image

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.unseen.pictures import pictures, planes, worse

WATERMARK = Package(
    "pypi", "invisible-watermark", "0.2.0", "644311beed9cfe4a9a5a4a46c740f47800cef184fe2e1297f3f4542e2d992f8b"
)
SIDE, BITS = 128, 32
CALIBRATION, TO_JUDGE = 64, 400


def rivagan(folder: Path) -> None:
    """Which bits were hidden before the picture became worse?"""
    home = WATERMARK.fetch() / "imwatermark"
    onnx.save(onnx.load(home / "rivagan_decoder.onnx"), folder / "model.onnx")
    hide = ort.InferenceSession(home / "rivagan_encoder.onnx", providers=["CPUExecutionProvider"])
    chance = random.Random(34)
    chosen = pictures(seed=34)
    bits = np.array([[chance.randrange(2) for _ in range(BITS)] for _ in range(CALIBRATION + TO_JUDGE)])
    inputs = np.stack([_hidden(hide, chosen[index % len(chosen)], row, chance) for index, row in enumerate(bits)])
    write(folder, {"frame": inputs[:CALIBRATION]}, {"frame": inputs[CALIBRATION:]}, bits[CALIBRATION:].astype(bool))


def _hidden(hide: ort.InferenceSession, picture: Image.Image, bits: Array, chance: random.Random) -> Array:
    """A square of the picture with the bits in it, as bytes that were then spoilt."""
    side = int(min(picture.size) * chance.uniform(0.4, 1))
    left, top = chance.randint(0, picture.width - side), chance.randint(0, picture.height - side)
    cut = picture.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    (marked,) = hide.run(None, {"frame": _frame(cut)[None], "data": bits[None].astype(np.float32)})
    values = (np.clip(marked[0, :, 0].transpose(1, 2, 0), -1, 1) + 1) * 127.5
    return _frame(worse(Image.fromarray(values.astype(np.uint8)), chance))


def _frame(image: Image.Image) -> Array:
    """A film of one picture, within -1 and 1."""
    return planes(image)[:, None] / 127.5 - 1
