"""Small graphs with the ops that OpenVINO runs in int8, and steps that tests of its adapter take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import Net, data, weight

from quaver.adapters.openvino.adapter import OpenVinoAdapter
from quaver.adapters.options import AdapterOptions
from quaver.ops import Op, OpConfig, QuantConfig
from quaver.processors import has_bf16
from quaver.space import TuningSpace

needs_bf16 = pytest.mark.skipif(not has_bf16(), reason="the processor has neither AVX512-BF16 nor AMX")


def residual_cnn() -> onnx.ModelProto:
    net = Net()
    x = net.input("n", 8, 8, 8)
    a = net.Conv(x, weight(16, 8, 3, 3), weight(16, 1)[:, 0], pads=[1, 1, 1, 1])
    b = net.Conv(net.Relu(a), weight(16, 16, 3, 3), pads=[1, 1, 1, 1])
    c = net.Relu(net.Add(b, a))
    d = net.Conv(net.MaxPool(c, kernel_shape=[2, 2], strides=[2, 2]), weight(16, 1, 3, 3), pads=[1, 1, 1, 1], group=16)
    e = net.AveragePool(net.Concat(net.Relu(d), net.Sigmoid(d), axis=1), kernel_shape=[2, 2], strides=[2, 2])
    f = net.Flatten(net.GlobalAveragePool(net.Relu(net.Conv(e, weight(16, 32, 1, 1)))))
    return net.model(net.Softmax(net.Gemm(f, weight(16, 10))))


def attention() -> onnx.ModelProto:
    net = Net()
    x = net.input("n", 8, 32)
    a = net.Add(net.MatMul(x, weight(32, 32)), weight(32, 1)[:, 0])
    shares = net.Softmax(net.MatMul(a, net.Transpose(a, perm=[0, 2, 1])))
    b = net.Add(net.MatMul(net.MatMul(shares, a), weight(32, 32)), a)
    c = net.LayerNormalization(b, weight(32, 1)[:, 0], weight(32, 1)[:, 0])
    d = net.MatMul(net.Relu(net.MatMul(c, weight(32, 64))), weight(64, 32))
    return net.model(net.Add(d, c))


def decoder() -> onnx.ModelProto:
    net = Net()
    x = net.input("n", 4, 8, 8)
    a = net.HardSwish(net.Conv(x, weight(16, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    b = net.Relu(net.ConvTranspose(a, weight(16, 8, 2, 2), strides=[2, 2]))
    c = net.Elu(net.Conv(net.Concat(x, b, axis=1), weight(8, 12, 3, 3), pads=[1, 1, 1, 1]))
    d = net.GlobalAveragePool(c)
    return net.model(net.Add(net.Conv(d, weight(8, 8, 1, 1)), d))


def recurrent() -> onnx.ModelProto:
    net = Net()
    x = net.input("n", 12, 16)
    a = net.Relu(net.MatMul(x, weight(16, 24)))
    hidden, weights, recurrence = 8, weight(1, 32, 24), weight(1, 32, 8)
    sequence = net.LSTM(net.Transpose(a, perm=[1, 0, 2]), weights, recurrence, hidden_size=hidden)
    last = net.Transpose(net.Squeeze(sequence, np.array([1])), perm=[1, 0, 2])
    return net.model(net.MatMul(net.MatMul(last, weight(8, 16)), weight(16, 4)))


def random_config(ops: TuningSpace, rng: np.random.Generator, precisions: set[str]) -> QuantConfig:
    """Each op in a random one of these precisions that it offers, and in a random choice of that."""

    def choose(op: Op) -> OpConfig:
        offered = sorted({choice.precision for choice in op.choices} & precisions)
        precision = offered[rng.integers(len(offered))]
        choices = [choice for choice in op.choices if choice.precision == precision]
        return choices[rng.integers(len(choices))]

    return ops.configure(choose)


@contextmanager
def opened(model: onnx.ModelProto, **options: Any) -> Iterator[OpenVinoAdapter]:
    """Yield a calibrated adapter."""
    adapter = OpenVinoAdapter.load(model.SerializeToString(), AdapterOptions(threads=1, **options))
    assert isinstance(adapter, OpenVinoAdapter)
    try:
        adapter.calibrate(data(adapter))
        yield adapter
    finally:
        adapter.close()


def relative_error(expected: np.ndarray, actual: np.ndarray) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))
