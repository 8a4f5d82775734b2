"""Multiply-adds are counted from the shapes that tensors really have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx_models import Net, data, opened, weight

from quaver.adapters import abilities
from quaver.adapters.onnxrt.adapter import OnnxAdapter


def convolution(net: Net) -> onnx.ModelProto:
    return net.model(net.Conv(net.input(None, 4, 8, 8), weight(6, 4, 3, 3)))


def grouped(net: Net) -> onnx.ModelProto:
    return net.model(net.Conv(net.input(None, 4, 8, 8), weight(4, 1, 3, 3), group=4))


def product(net: Net) -> onnx.ModelProto:
    return net.model(net.MatMul(net.input(None, None, 16), weight(16, 6)))


def behind_a_reshape(net: Net) -> onnx.ModelProto:
    rows = net.Reshape(net.input(None, 4, 8), np.array([-1, 16]))
    return net.model(net.Gemm(rows, weight(16, 5), weight(5)))


def transposed(net: Net) -> onnx.ModelProto:
    return net.model(net.ConvTranspose(net.input(None, 4, 8, 8), weight(4, 6, 2, 2), strides=[2, 2]))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (convolution, 2 * 6 * 36 * 36),
        (grouped, 2 * 4 * 36 * 9),
        (product, 4 * 6 * 16),
        (behind_a_reshape, 4 * 5 * 16),
        (transposed, 2 * 4 * 64 * 6 * 4),
    ],
)
def test_products_are_counted_by_their_shapes(build: Callable[[Net], onnx.ModelProto], expected: int) -> None:
    """In a feed of two samples."""
    with opened(build(Net()), calibrate=False) as adapter:
        (feed,) = data(adapter, count=1, batch=2)
        assert adapter.workload(feed)[0] == expected


def test_a_model_whose_arithmetic_cannot_be_counted_counts_as_a_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(convolution(Net()), calibrate=False) as adapter:
        (feed,) = data(adapter, count=1, batch=2)
        counted = abilities.expected_seconds(adapter, feed)
        monkeypatch.setattr(OnnxAdapter, "workload", lambda *_: 1 / 0)
        assert abilities.expected_seconds(adapter, feed) == abilities.USUAL_SECONDS > counted > 0
