"""PRelu goes into kernels that are fast, and that are there in 8 bits."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_models import Net, as_given, kernels, opened, space, weight
from rewriting import SAME, applied, kernels_are_right, kinds


def net_of(slopes: np.ndarray) -> onnx.ModelProto:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 3, 3), weight(4), name="before", **SAME)
    return net.model(net.Conv(net.PRelu(x, slopes, name="prelu"), weight(4, 4, 1, 1), name="behind"))


def slopes_of(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(-1, 1, 1)


def wide() -> onnx.ModelProto:
    """One slope is ten thousand times as steep as others."""
    net = Net()
    x = net.Conv(net.input(1, 4, 8, 8), weight(256, 4, 1, 1), name="before")
    slopes = slopes_of(100.0, *[0.01] * 255)
    return net.model(net.Conv(net.PRelu(x, slopes, name="prelu"), weight(4, 256, 1, 1), name="behind"))


@pytest.mark.parametrize("values", [(0.25, 0.1, 0.3, 0.2), (-0.5, 1.5, 0.0, 0.2)])
def test_a_prelu_with_a_slope_for_each_channel_is_spelled_out_exactly(values: tuple[float, ...]) -> None:
    model = net_of(slopes_of(*values))
    assert kinds(model) == "Conv Relu Clip Mul Add Conv"
    assert kinds(model, optimise_float=False) == "Conv PRelu Conv"
    with opened(model) as adapter:
        feed = dict(adapter.probe_samples[0])
        assert np.array_equal(adapter.build(None)(feed), as_given(model, feed)[0])
    kernels_are_right(model)


def test_all_nodes_of_a_prelu_run_in_8_bits() -> None:
    with opened(net_of(slopes_of(0.25, 0.1, 0.3, 0.2))) as adapter:
        ran = kernels(adapter, space(adapter).default_config())
        assert [ran[f"prelu{part}"] for part in (".above", ".below", ".scaled", "")] == [
            "Clip", "Clip", "QLinearMul", "QLinearAdd",
        ]  # fmt: skip
        assert not any(kind in ("QuantizeLinear", "DequantizeLinear") for kind in ran.values())


def test_a_prelu_with_one_slope_becomes_a_leaky_relu() -> None:
    model = net_of(slopes_of(0.25))
    assert kinds(model) == "Conv LeakyRelu Conv"
    kernels_are_right(model)


def test_slopes_that_are_computed_or_not_finite_stay() -> None:
    net = Net()
    x, slopes = net.input(2, 4, 8, 8), net.Sigmoid(net.input(4, 1, 1, name="slopes"))
    assert "PRelu" in kinds(net.model(net.PRelu(net.Conv(x, weight(4, 4, 1, 1)), slopes)))
    assert "PRelu" not in applied(net_of(slopes_of(0.1, np.inf, 0.1, 0.1)))


def test_factors_too_far_apart_for_8_bits_are_left_in_float() -> None:
    with opened(wide()) as adapter:
        assert "prelu.scaled" not in {op.name for op in space(adapter).ops}
