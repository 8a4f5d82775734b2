"""ResNet-8 as in MLPerf Tiny, trained here on CIFAR-10: the easy case."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import onnx
from keras import layers

from benchmarks.models.bench import Array, accuracy, write
from benchmarks.models.cifar import to_judge, to_train
from benchmarks.models.heads import run
from benchmarks.models.resnet_graph import EPSILON, STAGES, resnet8
from benchmarks.models.training import scaled, seeded, train

TRAINING, CALIBRATION, EVALUATION = 49_900, 100, 4000
EPOCHS, RATE, SHIFT = 5, 0.005, 2
TOLERANCE = 1e-4


def resnet8_cifar10(folder: Path) -> None:
    """Which of ten things is on the picture?"""
    pictures, classes = to_train(TRAINING + CALIBRATION)
    judged, labels = to_judge(EVALUATION)
    seeded()
    network = keras_resnet8()
    train(network, pictures[:TRAINING], classes[:TRAINING], EPOCHS, RATE, SHIFT)
    calib, samples = scaled(pictures[TRAINING:]), scaled(judged)
    model = resnet8(weights(network))
    onnx.checker.check_model(model, full_check=True)
    outputs = run(model, {"image": channel_first(samples)})
    differ = float(np.abs(outputs - network.predict(samples, verbose=0)).max())
    if differ > TOLERANCE:
        raise RuntimeError(f"the ONNX graph and the Keras network differ by {differ}")
    print(f"  fp32 accuracy {accuracy(outputs, labels):.4f}; ONNX differs from Keras by {differ:.1e}", flush=True)
    onnx.save(model, folder / "model.onnx")
    write(folder, {"image": channel_first(calib)}, {"image": channel_first(samples)}, labels)


def keras_resnet8() -> keras.Model:
    """The network to train; its layers are called as the nodes of the graph."""

    def conv(x: keras.KerasTensor, scope: str, number: str, channels: int, stride: int = 1) -> keras.KerasTensor:
        x = layers.Conv2D(channels, 3, stride, "same", use_bias=False, name=f"{scope}_conv{number}")(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=EPSILON, name=f"{scope}_norm{number}")(x)

    image = keras.Input((32, 32, 3), name="image")
    x = layers.ReLU()(conv(image, "stem", "", STAGES[0][0]))
    for number, (channels, stride) in enumerate(STAGES, 1):
        scope = f"stage{number}"
        y = layers.ReLU()(conv(x, scope, "1", channels, stride))
        y = conv(y, scope, "2", channels)
        if stride > 1:
            x = layers.Conv2D(channels, 1, stride, "same", use_bias=False, name=f"{scope}_shortcut")(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(image, layers.Dense(10, name="classes")(layers.GlobalAveragePooling2D()(x)))


def weights(network: keras.Model) -> dict[str, Array]:
    """All weights of a network in the layout and by the names of ONNX graphs; Keras gives them in this order."""
    found: dict[str, Array] = {}
    for layer in network.layers:
        values = layer.get_weights()
        for part, value in zip(("weight", "bias", "running_mean", "running_var"), values, strict=False):
            ordered = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
            found[f"{layer.name}.{part}"] = np.ascontiguousarray(ordered)
    return found


def channel_first(images: Array) -> Array:
    """From Keras's order of axes to that of ONNX."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
