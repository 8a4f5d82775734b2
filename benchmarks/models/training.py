"""Trains small Keras networks on pictures in minutes, on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models.bench import Array

BATCH = 64


def seeded() -> None:
    """Fix all chance. What remains is the order of sums, which differs between machines."""
    keras.utils.set_random_seed(0)
    with suppress(RuntimeError):  # once TensorFlow runs, it keeps its threads
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def train(model: keras.Model, pictures: Array, labels: Array, epochs: int, rate: float, shift: int) -> None:
    """Train a model that gives one value per class; the rate rises to its peak and falls to zero along a cosine."""
    steps = epochs * (len(labels) // BATCH)
    warm = steps // 10
    rates = keras.optimizers.schedules.CosineDecay(rate / 10, steps - warm, warmup_target=rate, warmup_steps=warm)
    logits = model.layers[-1].activation is keras.activations.linear
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
    model.compile(keras.optimizers.Adam(rates), loss, metrics=["accuracy"])
    chance = np.random.default_rng(0)
    for epoch in range(1, epochs + 1):
        batches = _batches(varied(pictures, shift, chance), labels, chance)
        right = [float(model.train_on_batch(images, classes)[1]) for images, classes in batches]
        print(f"  epoch {epoch} of {epochs}: {np.mean(right):.3f} of the training pictures right", flush=True)


def varied(pictures: Array, shift: int, chance: np.random.Generator) -> Array:
    """Return each picture shifted by a few pixels at most, and about half of them mirrored."""
    count, height, width = pictures.shape[:3]
    padded = np.pad(pictures, ((0, 0), (shift, shift), (shift, shift), (0, 0)))
    moved = np.empty_like(pictures)
    steps = chance.integers(0, 2 * shift + 1, (count, 2))
    for down, right in product(range(2 * shift + 1), repeat=2):
        chosen = np.flatnonzero((steps == (down, right)).all(axis=1))
        moved[chosen] = padded[chosen, down : down + height, right : right + width]
    mirrored = np.flatnonzero(chance.random(count) < 0.5)
    moved[mirrored] = moved[mirrored, :, ::-1]
    return moved


def scaled(pictures: Array) -> Array:
    """Bytes as values in -1..1."""
    return pictures.astype(np.float32) / np.float32(127.5) - np.float32(1)


def _batches(pictures: Array, labels: Array, chance: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    order = chance.permutation(len(labels))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield scaled(pictures[chosen]), labels[chosen]
