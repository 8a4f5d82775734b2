"""The digits of scikit-learn, split as they were when the demo's network was trained."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quaver.types import ModelLike

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


def digits() -> tuple[Images, Labels, Images, Labels]:
    """1,078 training and 719 test images, [n, 1, 8, 8] in 0..1, as (images, labels, test images, test labels)."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.4, random_state=0, stratify=labels)
    return x, y, x_test, y_test


class Accuracy:
    """The share of test images that a model gets right: the demo's `eval_func`."""

    def __init__(self, images: Images, labels: Labels) -> None:
        self._images, self._labels = images, labels

    def __call__(self, model: ModelLike) -> float:
        """Score a model."""
        return float((model(self._images).argmax(axis=1) == self._labels).mean())
