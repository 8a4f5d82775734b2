"""ResNet-8 as an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from benchmarks.models.bench import Array
from benchmarks.models.graphs import Network

# Channels and stride of each stage.
STAGES = ((16, 1), (32, 2), (64, 2))
EPSILON = 1e-3


def resnet8(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The graph with these weights, from pictures with the channel first to one value per class."""
    network = Network(weights)
    x = network.add("Relu", [_conv(network, "image", "stem", "", 1)], "stem_relu")
    for number, (_, stride) in enumerate(STAGES, 1):
        scope = f"stage{number}"
        y = network.add("Relu", [_conv(network, x, scope, "1", stride)], f"{scope}_relu1")
        y = _conv(network, y, scope, "2", 1)
        if stride > 1:
            shortcut = {"kernel_shape": [1, 1], "strides": [stride] * 2}
            x = network.add("Conv", [x, f"{scope}_shortcut.weight"], f"{scope}_shortcut", **shortcut)
        x = network.add("Relu", [network.add("Add", [x, y], f"{scope}_add")], f"{scope}_relu2")
    x = network.add("Flatten", [network.add("GlobalAveragePool", [x], "pool")], "features")
    x = network.add("Gemm", [x, "classes.weight", "classes.bias"], "classes", transB=1)
    return network.model("resnet8", (3, 32, 32), x, 10)


def _conv(network: Network, x: str, scope: str, number: str, stride: int) -> str:
    """Convolution and BatchNorm; with a stride, TensorFlow pads an even side at its end alone."""
    pads = [1, 1, 1, 1] if stride == 1 else [0, 0, 1, 1]
    sizes = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": pads}
    conv = f"{scope}_conv{number}"
    x = network.add("Conv", [x, f"{conv}.weight"], conv, **sizes)
    return network.norm(x, f"{scope}_norm{number}", EPSILON)
