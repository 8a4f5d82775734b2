"""Runs to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES

# Another network that was trained on the same digits.
RESNET = Path(__file__).parents[1] / "data" / "digits_resnet.onnx"


def tune(folder: Path | None, model: Path = MODEL, **settings: Any) -> quaver.TuneResult:
    """Tune the demo's network, with one weight scale for each layer."""
    train, _, images, labels = digits()
    wanted: dict[str, Any] = {"threads": 1, "op_type_dict": RULES, "strategy": "mse_v2", "max_trials": 12, **settings}
    if folder is not None:
        wanted["workspace"] = folder
    return quaver.fit(model, calib_dataloader=train[:64], eval_func=Accuracy(images, labels), **wanted)


def tune_keras(folder: Path) -> quaver.TuneResult:
    """Tune a small Keras network until its outputs stay close to those it had."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((8, 8, 1)), layers.Conv2D(8, 3, activation="relu"), layers.DepthwiseConv2D(3), layers.Flatten(),
         layers.Dense(10)]
    )  # fmt: skip
    images = digits()[0][:32].reshape(-1, 8, 8, 1)
    wanted = np.asarray(model(images))

    def closeness(candidate: Any) -> float:
        return 1.0 - float(np.abs(np.asarray(candidate(images)) - wanted).mean() / np.abs(wanted).mean())

    return quaver.fit(
        model, calib_dataloader=images, eval_func=closeness, workspace=folder, strategy="mse_v2", max_trials=6,
        relative=0.2, threads=1,
    )  # fmt: skip
