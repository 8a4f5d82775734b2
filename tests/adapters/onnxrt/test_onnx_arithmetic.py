"""The arithmetic of 8 bits, against numpy and against what ONNX Runtime computes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_models import Array, Net, opened, space, weight

from quaver.adapters.onnxrt.build.affine import (
    BIAS_LIMIT,
    activation_parameters,
    bias_steps,
    quantize_weight,
    scale_for_bias,
    weight_scale,
    widened,
)
from quaver.ops import INT8, OpConfig

f32 = np.float32
RANGES = [
    (0.0, 6.0),
    (-1.0, 1.0),
    (-0.3, 2.7),
    (-5.0, 0.0),
    (-1e-30, 1e-30),
    (0.0, 3e38),
    (-3.4e38, 3.4e38),
    (-1e-44, 0),
]


def levels(values: Array, low: float, high: float, scheme: str) -> tuple[Array, Array]:
    """A tensor as uint8, and back."""
    found = activation_parameters(low, high, scheme)
    scale, zero = found.scale, found.zero_point
    steps = np.clip(np.rint(values.astype(np.float64) / scale) + zero, 0, 255)
    return steps, (steps - zero) * np.float64(scale)


@pytest.mark.parametrize("scheme", ["asym", "sym"])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_a_range_is_covered_to_half_a_step_and_zero_is_exact(low: float, high: float, scheme: str) -> None:
    found = activation_parameters(low, high, scheme)
    scale, zero = found.scale, found.zero_point
    assert scale.dtype == np.float32 and zero.dtype == np.uint8
    assert np.isfinite(scale) and scale >= np.finfo(f32).tiny
    values = np.linspace(low, high, 1001)
    _, back = levels(values, low, high, scheme)
    assert np.abs(back - values).max() <= 0.51 * scale
    assert levels(np.zeros(1), low, high, scheme)[1] == 0


@given(st.floats(-(2.0**100), 2.0**100), st.floats(-(2.0**100), 2.0**100), st.sampled_from(["asym", "sym"]))
def test_any_two_numbers_make_a_range(one: float, other: float, scheme: str) -> None:
    low, high = min(one, other), max(one, other)
    found = activation_parameters(low, high, scheme)
    scale, zero = found.scale, found.zero_point
    assert 0 < scale < np.inf and 0 <= zero <= 255
    _, back = levels(np.array([low, high]), min(low, 0), max(high, 0), scheme)
    assert np.abs(back - [low, high]).max() <= 0.51 * scale


def test_a_symmetric_scheme_fixes_the_zero_point() -> None:
    assert activation_parameters(-1.0, 3.0, "sym").zero_point == 128
    assert levels(np.array([3.0]), -1.0, 3.0, "sym") == (255, pytest.approx(3.0))
    assert levels(np.array([-3.0]), -3.0, 1.0, "sym") == (0, pytest.approx(-3.0))
    assert activation_parameters(0.0, 3.0, "sym") == activation_parameters(0.0, 3.0, "asym")
    assert activation_parameters(0.0, 3.0, "sym").zero_point == 0


def test_a_range_of_zero_keeps_the_next_bias_fine() -> None:
    found = activation_parameters(0.0, 0.0, "asym")
    assert (found.scale, found.zero_point) == (f32(1 / 255), 0) and found == activation_parameters(0.0, 0.0, "sym")


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights_are_rounded_to_the_nearest_step(axis: int | None) -> None:
    values = weight(6, 5, 3, 3)
    scale = weight_scale(values, axis)
    assert scale.shape == (() if axis is None else (values.shape[axis],))
    quantized = quantize_weight(values, axis, scale)
    assert quantized.values.dtype == np.int8 and np.abs(quantized.values.astype(int)).max() == 127
    shape = [1] * 4
    if axis is not None:
        shape[axis] = -1
    wide = scale.reshape(shape).astype(np.float64)
    assert np.abs(quantized.values * wide - values).max() <= 0.5001 * scale.max()
    assert np.abs((quantized.values * wide - values) / wide).max() <= 0.5001


def test_each_channel_has_a_scale_of_its_own() -> None:
    values = np.stack([np.full((4, 1, 1), peak, f32) for peak in (127, 1.27, -12.7)])
    assert weight_scale(values, 0) == pytest.approx([1, 0.01, 0.1])
    assert weight_scale(values, None) == pytest.approx(1)
    assert quantize_weight(values, 0, weight_scale(values, 0)).values[:, 0, 0, 0].tolist() == [127, 127, -127]


def test_a_channel_of_zeros_takes_the_largest_scale() -> None:
    values = np.zeros((3, 2), f32)
    values[0], values[2] = 12.7, 1.27
    assert weight_scale(values, 0) == pytest.approx([0.1, 0.1, 0.01])
    assert np.isfinite(weight_scale(np.zeros((3, 2), f32), 0)).all()
    assert not quantize_weight(np.zeros((3, 2), f32), 0, weight_scale(np.zeros((3, 2), f32), 0)).values.any()


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_bias_is_stored_in_steps_of_input_times_weight(per_channel: bool) -> None:
    bias, scale = weight(8), weight_scale(weight(8, 4), 0 if per_channel else None)
    steps, step = bias_steps(bias, f32(0.02), scale)
    assert steps.dtype == np.int32
    assert step == pytest.approx(0.02 * scale)
    assert np.abs(steps * step.astype(np.float64) - bias).max() <= 0.5001 * step.max()


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_scale_is_widened_for_a_bias_only_where_it_must_be(per_channel: bool) -> None:
    scale = np.array([0.01, 1e-12, 0.02], f32) if per_channel else np.asarray(1e-12, f32)
    bias, activation = np.array([1.0, -40.0, 0.5], f32), f32(0.05)
    wider = scale_for_bias(bias, activation, scale)
    assert wider is not None and wider.dtype == np.float32 and wider.shape == scale.shape
    if per_channel:
        assert wider[[0, 2]].tolist() == scale[[0, 2]].tolist()
    steps, step = bias_steps(bias, activation, wider)
    assert np.abs(steps.astype(np.int64)).max() < BIAS_LIMIT
    assert steps * step.astype(np.float64) == pytest.approx(bias, rel=1e-6)
    assert scale_for_bias(bias, activation, wider) is None


# --- what ONNX Runtime computes ---

CHOICES = [
    pytest.param(OpConfig(INT8, "minmax", granularity, scheme), id=f"{granularity} {scheme}")
    for granularity, scheme in itertools.product(("per_channel", "per_tensor"), ("asym", "sym"))
]


def quantized(values: Array, ranges: dict[str, Any], name: str, scheme: str) -> tuple[Array, np.float64, int]:
    """A tensor as integers around zero, with its scale and zero point."""
    low, high = ranges[name]["minmax"]
    found = activation_parameters(low, high, scheme)
    scale, zero = found.scale, found.zero_point
    return np.clip(np.rint(values / scale) + zero, 0, 255).astype(np.int64) - int(zero), np.float64(scale), int(zero)


def simulated(x: Array, matrix: Array, bias: Array, ranges: dict[str, Any], output: str, choice: OpConfig) -> Array:
    """A matrix product [rows, in] x [in, out] in integers, its result rounded to uint8 and back."""
    axis = 1 if choice.granularity == "per_channel" else None
    steps, scale, _ = quantized(x, ranges, "x", choice.scheme)
    by = weight_scale(matrix, axis)
    total = steps @ quantize_weight(matrix, axis, by).values.astype(np.int64) + bias_steps(bias, f32(scale), by)[0]
    real = total * (scale * by.astype(np.float64))
    if output not in ranges:  # a kernel that writes float
        return real
    rounded, step, _ = quantized(real, ranges, output, choice.scheme)
    return rounded * step


@pytest.mark.parametrize("choice", CHOICES)
def test_a_convolution_is_what_numpy_makes_of_it(choice: OpConfig) -> None:
    net = Net()
    kernel, bias = weight(8, 4, 1, 1), weight(8)
    model = net.model(net.Conv(net.input(None, 4, 6, 6), kernel, bias, outputs=["y"]))
    x = np.random.default_rng(1).normal(size=(3, 4, 6, 6)).astype(f32)
    with opened(model, calibrate=False) as adapter:
        ranges = adapter.calibrate(x)["ranges"]
        got = adapter.build(space(adapter).all_fp32().replace({"Conv_0": choice}))(x)
    rows = x.transpose(0, 2, 3, 1).reshape(-1, 4)
    expected = simulated(rows, np.ascontiguousarray(kernel[:, :, 0, 0].T), bias, ranges, "y", choice)
    difference = np.abs(got.transpose(0, 2, 3, 1).reshape(-1, 8) - expected)
    step = activation_parameters(*ranges["y"]["minmax"], choice.scheme).scale
    assert difference.max() < 1.01 * step, "more than one level off"
    assert (difference > 0.5 * step).mean() < 0.005, "a level off at more than the rare tie"


@pytest.mark.parametrize("choice", CHOICES)
def test_a_gemm_is_what_numpy_makes_of_it(choice: OpConfig) -> None:
    net = Net()
    matrix, bias = weight(16, 5), weight(5)
    model = net.model(net.Gemm(net.input(None, 16), matrix, bias))
    x = np.random.default_rng(1).normal(size=(40, 16)).astype(f32)
    with opened(model, calibrate=False) as adapter:
        ranges = adapter.calibrate(x)["ranges"]
        got = adapter.build(space(adapter).all_fp32().replace({"Gemm_0": choice}))(x)
    expected = simulated(x, matrix, bias, ranges, "none", choice)
    assert np.abs(got - expected).max() < 1e-5
    assert np.abs(got - (x @ matrix + bias)).max() > 1e-4


def test_percentile_and_entropy_clip_what_minmax_keeps() -> None:
    net = Net()
    model = net.model(net.Gemm(net.input(None, 16), weight(16, 5)))
    x = np.random.default_rng(1).normal(size=(4000, 16)).astype(f32)
    x[0, 0] = 1000
    with opened(model, calibrate=False) as adapter:
        adapter.calibrate(x)
        error = {
            method: np.abs(adapter.build(space(adapter).all_int8(calibration=method))(x) - x @ weight(16, 5))[1:].mean()
            for method in ("minmax", "percentile", "entropy")
        }
    assert max(error["percentile"], error["entropy"]) < 0.1 * error["minmax"]


@pytest.mark.parametrize(
    ("low", "high", "width", "expected"),
    [
        (-1.0, 3.0, 2.0, (-1.0, 3.0)),
        (-1.0, 3.0, 8.0, (-2.0, 6.0)),
        (0.0, 0.0, 5.0, (0.0, 5.0)),
        (1.0, 2.0, 4.0, (0.0, 4.0)),
        (-2.0, -1.0, 4.0, (-4.0, 0.0)),
    ],
)
def test_a_range_is_widened_around_zero(low: float, high: float, width: float, expected: tuple[float, float]) -> None:
    assert widened(low, high, width) == expected


@pytest.mark.parametrize("offset", [0.0, 1e-6, -1e-3])
@pytest.mark.parametrize("peak", [1e-20, 1.0, 1e5])
def test_the_mean_of_an_image_that_is_about_zero_has_a_scale_that_the_kernel_takes(peak: float, offset: float) -> None:
    image = np.tile(np.array([1, -1], np.float32), 32).reshape(1, 1, 8, 8)
    net = Net()
    model = net.model(net.GlobalAveragePool(net.input(1, 1, 8, 8), name="pool"))
    feeds = [{model.graph.input[0].name: np.float32(peak) * (image + np.float32(offset))}]
    with opened(model, calibrate=False) as adapter:
        adapter.calibrate(feeds)
        config = space(adapter).all_int8()
        assert "pool" in config.int8_ops
        (mean,) = adapter.rebuild(config).run(feeds[0])
        assert abs(float(mean.item()) - peak * offset) <= 0.02 * peak
