"""Small graphs and trained networks that several tests quantize."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx_models import Net, weight

f32 = np.float32

ROOT = Path(__file__).parents[3]
NETWORKS = {
    "depthwise": ROOT / "tuner" / "demo" / "digits_dscnn.onnx",
    "residual": ROOT / "tests" / "data" / "digits_resnet.onnx",
    "transformer": ROOT / "tests" / "data" / "digits_encoder.onnx",
}

IMAGE = (None, 4, 8, 8)
ROWS = (None, 3, 8)
SAME: dict[str, Any] = {"pads": [1, 1, 1, 1]}


def conv(net: Net, x: str, seed: int = 0, inputs: int = 4, outputs: int = 4) -> str:
    """A 1x1 convolution with a bias: what stands before and after the op in question."""
    return str(net.Conv(x, weight(outputs, inputs, 1, 1, seed=seed), weight(outputs, seed=seed)))


def residual(net: Net) -> str:
    x = net.Relu(net.Conv(net.input(*IMAGE), weight(4, 4, 3, 3), weight(4), **SAME))
    y = net.Relu(net.Add(net.Conv(net.Relu(conv(net, x)), weight(4, 4, 3, 3, seed=2), **SAME), x))
    return str(net.Gemm(net.Flatten(net.GlobalAveragePool(net.Add(conv(net, y), y))), weight(4, 3), weight(3)))


def attention(net: Net, batch: int | None = None) -> str:
    def heads(seed: int) -> str:
        rows = net.Add(net.MatMul(x, weight(8, 8, seed=seed)), weight(8, seed=seed))
        return str(net.Transpose(net.Reshape(rows, np.array([0, 0, 2, 4])), perm=[0, 2, 1, 3]))

    x, mask = net.input(batch, *ROWS[1:]), net.input(batch, 1, 1, 3, name="mask")
    query, key, value = heads(0), heads(1), heads(2)
    scores = net.Div(net.MatMul(query, net.Transpose(key, perm=[0, 1, 3, 2])), f32(2))
    mixed = net.MatMul(net.Softmax(net.Add(scores, mask)), value)
    rows = net.MatMul(net.Reshape(net.Transpose(mixed, perm=[0, 2, 1, 3]), np.array([0, 0, 8])), weight(8, 8, seed=3))
    y = net.LayerNormalization(net.Add(x, net.Add(rows, weight(8))), weight(8), weight(8))
    return str(net.Add(net.MatMul(y, weight(8, 4)), weight(4)))
