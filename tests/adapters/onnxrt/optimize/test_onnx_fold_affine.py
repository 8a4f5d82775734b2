"""What scales and shifts channels goes into the layer before or behind it, wherever that is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import Net, deviation, opened, space, weight
from rewriting import SAME, Part, applied, between_convs, f32, kernels_are_right, kinds, norm_constants

# --- into the convolution before ---


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Mul(x, f32(0.3)),
        lambda net, x: net.Add(f32(0.3), x),
        lambda net, x: net.Div(x, weight(1, 4, 1, 1) + f32(2)),
        lambda net, x: net.Sub(x, weight(4, 1, 1)),
        lambda net, x: net.Sub(weight(4, 1, 1), x),
        lambda net, x: net.Div(net.Sub(net.Mul(x, f32(2)), f32(1)), f32(3)),
    ],
    ids=["one factor", "one shift", "Div", "Sub", "minus x", "a chain"],
)
def test_numbers_behind_a_convolution_go_into_it(part: Part) -> None:
    model = between_convs(lambda net, x: net.Relu(part(net, x)))
    assert kinds(model) == "Conv Relu Conv"
    with opened(model, calibrate=False) as adapter:
        assert {node.name for node in onnx.load_from_string(model.SerializeToString()).graph.node} == {
            name for op in adapter.ops() for name in op.nodes
        }
    kernels_are_right(model)


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Div(f32(1), net.Add(net.Relu(x), f32(1))),
        lambda net, x: net.Sub(x, weight(8)),
        lambda net, x: net.Mul(x, weight(2, 1, 1, 1)),
        lambda net, x: net.Div(x, f32(0)),
    ],
    ids=["one over x", "along the width", "along the batch", "by zero"],
)
def test_a_node_that_does_more_than_scale_and_shift_stays(part: Part) -> None:
    net = Net()
    model = net.model(net.Tanh(part(net, net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)))))
    with opened(model, calibrate=False) as adapter:
        assert adapter.rewrites == ()


def test_a_convolution_that_is_read_elsewhere_stays() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    assert kinds(net.model(net.Relu(net.Mul(x, f32(2))), net.Tanh(x))) == "Conv Mul Relu Tanh"


# --- into the next layer ---


def before_layer(part: Part, layer: Part, *shape: int | None) -> onnx.ModelProto:
    net = Net()
    return net.model(layer(net, part(net, net.Atan(net.input(*shape)))))


CONV: Part = lambda net, x: net.Conv(x, weight(5, 4, 3, 3), weight(5))  # noqa: E731
PADDED: Part = lambda net, x: net.Conv(x, weight(5, 4, 3, 3), weight(5), **SAME)  # noqa: E731
GROUPED: Part = lambda net, x: net.Conv(x, weight(6, 2, 3, 3), group=2)  # noqa: E731
GEMM: Part = lambda net, x: net.Gemm(x, weight(8, 5), weight(5))  # noqa: E731
TURNED: Part = lambda net, x: net.Gemm(x, weight(5, 8), transB=1)  # noqa: E731
PRODUCT: Part = lambda net, x: net.Add(net.MatMul(x, weight(8, 5)), weight(5))  # noqa: E731
IMAGE, ROWS, MATRIX = (2, 4, 8, 8), (None, 3, 8), (2, 8)


@pytest.mark.parametrize(
    ("part", "layer", "shape", "expected"),
    [
        (lambda net, x: net.Mul(x, weight(4, 1, 1) + f32(2)), CONV, IMAGE, "Atan Conv"),
        (lambda net, x: net.Add(x, weight(1, 4, 1, 1)), CONV, IMAGE, "Atan Conv"),
        (lambda net, x: net.BatchNormalization(x, *norm_constants(4)), CONV, IMAGE, "Atan Conv"),
        (lambda net, x: net.Div(net.Sub(x, f32(0.5)), f32(0.2)), GROUPED, IMAGE, "Atan Conv"),
        (lambda net, x: net.Div(net.Sub(x, f32(0.5)), f32(0.2)), PADDED, IMAGE, "Atan Sub Conv"),
        (lambda net, x: net.Add(net.Mul(x, f32(0.2)), f32(0.5)), PADDED, IMAGE, "Atan Add Conv"),
        (
            lambda net, x: net.Sub(net.Div(x, weight(4, 1, 1) + f32(2)), weight(4, 1, 1)),
            PADDED,
            IMAGE,
            "Atan Sub Conv",
        ),
        (lambda net, x: net.Mul(x, weight(8) + f32(2)), GEMM, MATRIX, "Atan Gemm"),
        (lambda net, x: net.Sub(x, weight(1, 8)), TURNED, MATRIX, "Atan Gemm"),
        (lambda net, x: net.BatchNormalization(x, *norm_constants(8)), GEMM, MATRIX, "Atan Gemm"),
        (lambda net, x: net.Add(net.Mul(x, f32(2)), weight(8)), PRODUCT, ROWS, "Atan MatMul Add"),
    ],
    ids=[
        "Mul, Conv", "Add, Conv", "BatchNormalization, Conv", "Sub and Div, grouped", "Sub and Div, padded",
        "Mul and Add, padded", "Div and Sub of channels, padded", "Mul, Gemm",
        "Sub, transposed Gemm", "BatchNormalization, Gemm", "Mul and Add, MatMul",
    ],
)  # fmt: skip
def test_numbers_before_a_layer_go_into_it(part: Part, layer: Part, shape: Any, expected: str) -> None:
    model = before_layer(part, layer, *shape)
    assert kinds(model) == expected
    assert kinds(model, optimise_float=False) != expected
    kernels_are_right(model)


@pytest.mark.parametrize(
    ("part", "layer", "shape"),
    [
        (lambda net, x: net.Add(x, weight(4, 1, 1)), PADDED, IMAGE),
        (lambda net, x: net.Add(net.Mul(x, f32(1e-6)), f32(0.5)), PADDED, IMAGE),
        (lambda net, x: net.Sub(f32(0.5), net.Mul(x, f32(2))), PADDED, IMAGE),
        (lambda net, x: net.Mul(x, weight(8)), CONV, IMAGE),
        (lambda net, x: net.Mul(x, weight(3, 1)), PRODUCT, ROWS),
        (lambda net, x: net.BatchNormalization(x, *norm_constants(3)), PRODUCT, ROWS),
        (lambda net, x: net.Add(x, weight(8)), lambda net, x: net.MatMul(x, weight(8, 5)), ROWS),
        (lambda net, x: net.Mul(x, np.array([1, 100, 1, 1], f32).reshape(4, 1, 1)), CONV, IMAGE),
        (lambda net, x: net.Add(np.ones((2, 3, 8), f32), x), PRODUCT, ROWS),
    ],
    ids=[
        "a shift before padding", "a factor near zero", "a number less x",
        "along the width", "along the rows", "BatchNormalization of rows", "no bias",
        "factors far apart", "a whole map",
    ],
)  # fmt: skip
def test_a_shift_that_the_layer_cannot_take_exactly_stays(part: Part, layer: Part, shape: Any) -> None:
    assert applied(before_layer(part, layer, *shape)) == {}


def test_numbers_that_others_read_stay() -> None:
    net = Net()
    x = net.Mul(net.Atan(net.input(*IMAGE)), f32(2))
    y = CONV(net, x)
    assert kinds(net.model(y, x)) == "Atan Mul Conv"
    assert kinds(net.model(y, net.Tanh(x))) == "Atan Mul Conv Tanh"


def test_a_weight_that_two_layers_share_is_changed_for_one() -> None:
    net = Net()
    kernel, x = net.constant(weight(4, 4, 1, 1)), net.Atan(net.input(*IMAGE))
    model = net.model(net.Conv(net.Mul(x, f32(3)), kernel), net.Conv(x, kernel))
    assert kinds(model) == "Atan Conv Conv"


# --- through a Relu ---


def normed(
    *steps: Part, negative: bool = False, relu: str = "Relu", first: Any = None, **second: Any
) -> onnx.ModelProto:
    """Conv, Relu, BatchNormalization, some steps, Conv."""
    net = Net()
    kernel = weight(6, 4, 3, 3) if first is None else first
    x = net.Conv(net.input(2, 4, 12, 12), kernel, weight(6), **SAME, group=4 // kernel.shape[1])
    x = net.BatchNormalization(net.add(relu, x), *norm_constants(6, negative=negative))
    for step in steps:
        x = step(net, x)
    groups = second.get("group", 1)
    return net.model(net.Conv(x, weight(6, 6 // groups, 3, 3, seed=1), weight(6), **second))


MAX: Part = lambda net, x: net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], **SAME)  # noqa: E731
AVERAGE: Part = lambda net, x: net.AveragePool(x, kernel_shape=[2, 2], strides=[2, 2])  # noqa: E731
COUNTING: Part = lambda net, x: net.AveragePool(x, kernel_shape=[3, 3], count_include_pad=1, **SAME)  # noqa: E731


@pytest.mark.parametrize("pads", [{}, SAME, {"auto_pad": "SAME_UPPER"}], ids=["plain", "padded", "auto_pad"])
@pytest.mark.parametrize(
    "steps", [(), (MAX,), (AVERAGE,), (COUNTING,), (MAX, AVERAGE)], ids=["none", "max", "average", "counting", "both"]
)
def test_a_norm_behind_a_relu_goes_through_it_and_into_the_next(steps: tuple[Part, ...], pads: dict[str, Any]) -> None:
    model = normed(*steps, **pads)
    assert "BatchNormalization" not in kinds(model)
    assert "BatchNormalization" in kinds(model, optimise_float=False)
    assert applied(model)["through Relu"] == 1


@pytest.mark.parametrize("relu", ["Relu", "LeakyRelu"])
@pytest.mark.parametrize("pads", [{}, SAME], ids=["plain", "padded"])
def test_negative_factors_keep_their_signs(relu: str, pads: dict[str, Any]) -> None:
    assert "BatchNormalization" not in kinds(normed(negative=True, relu=relu, **pads))


def test_a_norm_goes_through_flatten_into_a_gemm() -> None:
    net = Net()
    x = net.Relu(net.Conv(net.input(2, 4, 8, 8), weight(6, 4, 3, 3), **SAME))
    x = net.Flatten(MAX(net, net.BatchNormalization(x, *norm_constants(6))))
    model = net.model(net.Gemm(x, weight(3, 96), weight(3), transB=1))
    assert kinds(model) == "Conv Relu MaxPool Flatten Gemm"
    kernels_are_right(model)


@pytest.mark.parametrize(
    "model",
    [
        normed(MAX, negative=True),
        normed(group=2, **SAME),
        normed(first=weight(6, 2, 3, 3), **SAME),
        normed(lambda net, x: net.Relu(x)),
        normed(relu="Tanh", **SAME),
    ],
    ids=["negative before MaxPool", "the next is grouped", "the one before is grouped", "another Relu", "no Relu"],
)
def test_a_norm_that_cannot_move_exactly_stays(model: onnx.ModelProto) -> None:
    assert "BatchNormalization" in kinds(model)


def test_a_norm_that_is_read_twice_stays() -> None:
    net = Net()
    x = net.Relu(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 3, 3), **SAME))
    x = net.BatchNormalization(x, *norm_constants(4))
    branches = [net.Conv(x, weight(4, 4, 3, 3, seed=seed), **SAME) for seed in (1, 2)]
    assert "BatchNormalization" in kinds(net.model(net.Add(*branches)))
    assert "BatchNormalization" in kinds(net.model(branches[0], x))


@pytest.mark.parametrize("pads", [{}, SAME], ids=["plain", "padded"])
def test_int8_is_no_worse_for_it(pads: dict[str, Any]) -> None:
    model = normed(MAX, **pads)
    kernels_are_right(model)
    errors = []
    for on in (True, False):
        with opened(model, optimise_float=on) as adapter:
            errors.append(deviation(model, adapter, space(adapter).default_config()))
    assert errors[0] < 1.5 * errors[1]
