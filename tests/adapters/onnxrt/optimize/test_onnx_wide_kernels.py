"""Convolutions over one axis run on images of one row, and compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_models import Net, opened, weight
from rewriting import applied, kernels_are_right, kinds, norm_constants


def column(*, last: int = 1, batch: int | None = None, residual: bool = False) -> onnx.ModelProto:
    """Tall kernels, a normalization, a pool and a sum of two branches on images of one column."""
    net = Net()
    x = net.input(batch, 2, 40, last)
    x = net.Conv(x, weight(4, 2, 9, last), weight(4), strides=[2, 1], pads=[3, 0, 1, 0])
    y = net.Relu(net.BatchNormalization(net.Relu(x), *norm_constants(4, negative=True)))
    y = net.Mul(y, np.abs(weight(4, 1, 1)) + 1) if residual else y
    y = net.MaxPool(net.LeakyRelu(y), kernel_shape=[3, 1], strides=[1, 1], pads=[1, 0, 1, 0])
    z = net.Conv(y, weight(4, 4, 3, 1, seed=1), dilations=[2, 1], pads=[2, 0, 2, 0])
    z = net.PRelu(net.Add(z, y), weight(4, 1, 1)) if residual else z
    return net.model(net.Conv(net.Relu(z), weight(3, 4, 1, 1)))


def signal(batch: int | None = 2) -> onnx.ModelProto:
    net = Net()
    x = net.Conv(net.input(batch, 2, 40), weight(4, 2, 5), weight(4), strides=[2], pads=[3, 1])
    y = net.AveragePool(net.Relu(net.Add(x, weight(4, 1))), kernel_shape=[3], pads=[1, 1], count_include_pad=1)
    y = net.Add(net.Conv(y, weight(4, 1, 3, seed=1), group=4, pads=[1, 1]), y)
    return net.model(net.Transpose(net.Mul(y, weight(20)), perm=[0, 2, 1]), y)


def test_images_of_one_column_are_turned_together() -> None:
    assert kinds(column(), left_out=("through Relu",)) == (
        "Transpose Conv Relu BatchNormalization Relu LeakyRelu MaxPool Conv Relu Conv Transpose"
    )
    with opened(column(residual=True, batch=2), calibrate=False) as adapter:
        kinds_of = [node.op_type for node in adapter._builder.graph.nodes]
        assert kinds_of.count("Transpose") == 2 and kinds_of[0] == kinds_of[-1] == "Transpose"
        assert all(list(w.shape[2:3]) == [1] for w in adapter._builder.graph.constants.values() if w.ndim == 4)
        assert adapter.compare().left_out == ()
    kernels_are_right(column(residual=True), count=2)


@pytest.mark.parametrize("batch", [2, None])
def test_signals_become_images_of_one_row(batch: int | None) -> None:
    found = kinds(signal(batch))
    assert found.startswith("Unsqueeze Conv") and found.count("Squeeze") == 2 and found.endswith("Transpose")
    kernels_are_right(signal(batch), count=2)


def test_short_kernels_and_wider_images_stay() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 40, 1), weight(4, 4, 7, 1))
    assert "tall kernels" not in applied(net.model(net.Conv(x, weight(4, 4, 1, 1))))
    assert "tall kernels" not in applied(column(last=3))
    net = Net()
    assert "signals as images" not in applied(net.model(net.Conv(net.input(2, 4, 40), weight(4, 4, 1))))


def test_ops_that_work_along_an_axis_stay_outside() -> None:
    net = Net()
    x = net.Softmax(net.Conv(net.input(2, 4, 40, 1), weight(4, 4, 9, 1)), axis=1)
    y = net.Sigmoid(net.Conv(net.ReduceMean(x, axes=[1], keepdims=1), weight(4, 1, 9, 1)))
    assert kinds(net.model(y, x), left_out=("Softmax of channels",)) == (
        "Transpose Conv Transpose Softmax ReduceMean Transpose Conv Sigmoid Transpose"
    )


@pytest.mark.parametrize("name", ["tall kernels", "signals as images"])
def test_it_can_be_left_out(name: str) -> None:
    model = column() if name == "tall kernels" else signal()
    assert name in applied(model)
    with opened(model, calibrate=False, left_out=(name,)) as adapter:
        assert name not in dict(adapter.rewrites)
