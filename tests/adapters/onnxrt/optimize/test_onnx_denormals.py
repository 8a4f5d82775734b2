"""Weights below 1e-30 become zero where they are summed up with others, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import Array, Net, as_given, data, opened, weight
from rewriting import SAME, applied, f32


def with_tiny(*shape: int, count: int = 5) -> Array:
    values = weight(*shape)
    values.reshape(-1)[:count] = f32(1e-38)
    values.reshape(-1)[count : 2 * count] = 0
    return values


def test_tiny_weights_are_flushed_and_counted() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), with_tiny(4, 4, 3, 3), with_tiny(4, count=1), **SAME)
    rows = net.Reshape(x, np.array([2, -1]))
    model = net.model(net.Gemm(rows, with_tiny(256, 3)))
    assert applied(model) == {"denormal weights": 11}
    with opened(model, calibrate=False) as adapter:
        constants = [array for array in adapter._builder.graph.constants.values() if array.dtype == np.float32]
        assert all(np.all((array == 0) | (np.abs(array) >= 1e-30)) for array in constants)
        feed = data(adapter)[0]
        assert np.array_equal(adapter.build(None)(feed), as_given(model, feed)[0])
    with opened(model, calibrate=False, optimise_float=False) as adapter:
        assert adapter.rewrites == ()


def test_weights_that_folding_makes_tiny_are_flushed_too() -> None:
    net = Net()
    scale = np.array([1, 1e-37, 1, 1], f32).reshape(4, 1, 1)
    model = net.model(net.Mul(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)), scale))
    assert applied(model)["denormal weights"] == 4


@pytest.mark.parametrize("reader", ["Log", "Div"])
def test_a_tiny_number_that_keeps_from_zero_stays(reader: str) -> None:
    net = Net()
    x = net.Add(net.Relu(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))), np.full((8, 8), 1e-35, f32))
    model = net.model(net.Log(x) if reader == "Log" else net.Div(f32(1), x))
    assert applied(model) == {}


def test_a_tensor_that_is_small_all_over_stays() -> None:
    net = Net()
    model = net.model(net.Mul(net.MatMul(net.input(2, 4), weight(4, 3) * f32(1e-35)), np.full((2, 3), 1e35, f32)))
    assert applied(model) == {}


def test_a_weight_that_is_read_or_given_out_elsewhere_stays() -> None:
    net = Net()
    kernel = net.constant(with_tiny(4, 4))
    x = net.MatMul(net.input(4, 4), kernel)
    assert applied(net.model(x, net.Log(net.Add(net.Relu(x), kernel)))) == {}
    assert applied(net.model(x, kernel)) == {}
