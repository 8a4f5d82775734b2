"""Scaling and shifting beyond moves and pools goes into weights, and padding into convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import Net, opened, weight
from rewriting import (
    SAME,
    Part,
    applied,
    between_convs,
    between_products,
    f32,
    kernels_are_right,
    kinds,
    norm_constants,
)


def factors(*shape: int) -> Any:
    return np.abs(weight(*shape)) + f32(0.5)


def around(part: Part, *before: int, **attributes: Any) -> Part:
    """The part on another shape of the same numbers."""
    return lambda net, x: net.Reshape(part(net, net.Reshape(x, np.array(before))), np.array([0, 4, 8, 8]), **attributes)


BETWEEN_CONVOLUTIONS: dict[str, tuple[Part, str]] = {
    "Reshape": (around(lambda net, x: net.Mul(x, factors(4, 1)), 0, 4, 64), "Conv Reshape Reshape Conv"),
    "Reshape that splits channels": (
        around(lambda net, x: net.Mul(x, factors(2, 2, 1)), 0, 2, 2, 64),
        "Conv Reshape Reshape Conv",
    ),
    "Squeeze": (
        around(
            lambda net, x: net.Unsqueeze(net.Add(net.Squeeze(x, np.array([2])), weight(4, 1)), np.array([-2])),
            0,
            4,
            1,
            64,
        ),
        "Conv Reshape Unsqueeze Reshape Conv",
    ),
    "Flatten": (
        lambda net, x: net.Reshape(net.Div(net.Flatten(x), np.repeat(factors(4), 64)), np.array([0, 4, 8, 8])),
        "Conv Flatten Reshape Conv",
    ),
    "Transpose": (
        lambda net, x: net.Transpose(net.Sub(f32(1), net.Transpose(x, perm=[1, 0, 2, 3])), perm=[1, 0, 2, 3]),
        "Conv Conv",
    ),
    "MaxPool": (
        lambda net, x: net.BatchNormalization(
            net.Relu(net.Mul(net.MaxPool(x, kernel_shape=[2, 2]), factors(4, 1, 1))), *norm_constants(4)
        ),
        "Conv MaxPool Relu Conv",
    ),
    "AveragePool": (
        lambda net, x: net.Relu(
            net.BatchNormalization(net.AveragePool(x, kernel_shape=[2, 2], pads=[1, 1, 0, 0]), *norm_constants(4))
        ),
        "Conv AveragePool Relu Conv",
    ),
    "Pad with copies": (
        lambda net, x: net.Relu(net.Add(net.Pad(x, np.array([0, 0, 1, 1, 0, 0, 2, 0]), mode="edge"), weight(4, 1, 1))),
        "Conv Pad Relu Conv",
    ),
    "Pad with zeros": (
        lambda net, x: net.Sigmoid(net.Mul(net.Pad(x, np.array([0, 0, 1, 1, 0, 0, 2, 0])), factors(1, 4, 1, 1))),
        "Conv Pad Sigmoid Conv",
    ),
    "forward, behind a Relu": (
        lambda net, x: around(lambda net, y: net.Add(net.Mul(net.Relu(y), factors(4, 1)), weight(4, 1)), 0, 4, 64)(
            net, x
        ),
        "Conv Reshape Relu Reshape Conv",
    ),
}


@pytest.mark.parametrize(("part", "expected"), BETWEEN_CONVOLUTIONS.values(), ids=BETWEEN_CONVOLUTIONS)
def test_a_constant_is_followed_through_moves_to_a_convolution(part: Part, expected: str) -> None:
    assert kinds(between_convs(part)) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (lambda net, x: net.Relu(net.Mul(x, factors(8))), "Reshape Gemm Relu Gemm Reshape"),
        (
            lambda net, x: net.Reshape(
                net.Relu(net.Mul(net.Reshape(x, np.array([0, 0, 2, 4])), f32(0.3))), np.array([0, 0, 8])
            ),
            "MatMul Add Reshape Relu Reshape MatMul Add",
        ),
    ],
    ids=["each feature", "one number for heads"],
)
def test_products_with_a_bias_take_factors(part: Part, expected: str) -> None:
    found = kinds(between_products(part))
    assert "Mul" not in found.replace("MatMul", "")
    assert found.count("Reshape") <= expected.count("Reshape")


def test_a_normalization_behind_a_gemm_goes_into_it() -> None:
    net = Net()
    x = net.BatchNormalization(net.Gemm(net.input(None, 8), weight(6, 8), weight(6), transB=1), *norm_constants(6))
    model = net.model(net.Gemm(net.Relu(x), weight(6, 3)))
    assert kinds(model) == "Gemm Relu Gemm"
    kernels_are_right(model)


def test_open_axes_are_followed_by_their_names() -> None:
    net = Net()
    x = net.Squeeze(net.Conv(net.input("batch", 4, 1, "time"), weight(6, 4, 1, 1), weight(6)), np.array([2]))
    y = net.Relu(net.Mul(net.Transpose(x, perm=[2, 0, 1]), factors(6)))
    model = net.model(net.MatMul(net.Mul(y, f32(3)), weight(6, 2)))
    assert kinds(model) == "Conv Squeeze Transpose Relu MatMul"


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Mul(net.Reshape(x, np.array([0, 4, 64])), factors(64)),
        lambda net, x: net.MaxPool(
            net.BatchNormalization(net.MaxPool(net.Relu(x), kernel_shape=[2, 2]), *norm_constants(4, negative=True)),
            kernel_shape=[2, 2],
        ),
        lambda net, x: net.Relu(
            net.Add(net.AveragePool(x, kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1), weight(4, 1, 1))
        ),
        lambda net, x: net.Relu(net.Add(net.Pad(x, np.array([0, 0, 1, 1, 0, 0, 2, 0])), weight(4, 1, 1))),
        lambda net, x: net.Relu(net.Mul(net.Pad(x, np.array([0, 1, 0, 0, 0, 1, 0, 0])), factors(6, 1, 1))),
        lambda net, x: net.Softmax(net.Mul(net.Reshape(x, np.array([0, 4, 64])), factors(4, 64))),
    ],
    ids=["each place", "a maximum turned round", "an average of zeros", "a shift of zeros", "padded channels", "all"],
)
def test_what_does_not_arrive_as_one_number_for_each_channel_stays(part: Part) -> None:
    net = Net()
    x = part(net, net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 3, 3), weight(4), **SAME))
    assert "past moves" not in applied(net.model(x))


def test_a_layer_whose_result_or_weight_is_read_elsewhere_stays() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    model = net.model(net.Mul(net.MaxPool(x, kernel_shape=[2, 2]), factors(4, 1, 1)), x)
    assert "past moves" not in applied(model)
    net = Net()
    table = net.constant(weight(8, 8), "table")
    x = net.Relu(net.Mul(net.MatMul(net.input(None, 8), table), f32(0.5)))
    assert "past moves" not in applied(net.model(net.MatMul(x, table)))


PADS = np.array([0, 0, 1, 2, 0, 0, 0, 1])


@pytest.mark.parametrize(
    ("part", "second", "expected"),
    [
        (lambda net, x: net.Relu(net.Pad(x, PADS)), {"pads": [0, 1, 0, 0]}, "Conv Relu Conv"),
        (
            lambda net, x: net.LeakyRelu(net.Mul(net.Pad(x, PADS), f32(-2))),
            {"auto_pad": "VALID"},
            "Conv LeakyRelu Conv",
        ),
        (
            lambda net, x: net.Transpose(
                net.Pad(net.Transpose(x, perm=[0, 2, 3, 1]), np.array([0, 1, 0, 0, 0, 2, 1, 0])), perm=[0, 3, 2, 1]
            ),
            {"group": 1},
            "Conv Transpose Conv",
        ),
        (
            lambda net, x: net.Unsqueeze(
                net.Pad(
                    net.Squeeze(net.Reshape(x, np.array([0, 4, 1, 64])), np.array([2])), np.array([0, 0, 3, 0, 0, 5])
                ),
                np.array([2]),
            ),
            {"pads": [1, 1, 1, 1]},
            "Conv Reshape Unsqueeze Conv",
        ),
    ],
    ids=["activation", "factor", "Transpose", "Squeeze"],
)
def test_padding_moves_into_the_convolution(part: Part, second: dict[str, Any], expected: str) -> None:
    model = between_convs(part, **second)
    assert kinds(model) == expected
    assert "Pad" in kinds(model, left_out=("padding", "runtime's basic level"))


def test_all_convolutions_that_read_a_pad_take_its_padding() -> None:
    net = Net()
    x = net.Pad(net.Relu(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))), PADS)
    total = net.Add(net.Conv(x, weight(4, 4, 2, 2)), net.Conv(x, weight(4, 2, 2, 2, seed=3), group=2))
    model = net.model(total)
    assert kinds(model) == "Conv Relu Conv Conv Add"
    kernels_are_right(model)


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Pad(x, PADS, f32(1)),
        lambda net, x: net.Pad(x, PADS, mode="reflect"),
        lambda net, x: net.Sigmoid(net.Pad(x, PADS)),
        lambda net, x: net.Add(net.Pad(x, PADS), f32(1)),
        lambda net, x: net.Mul(net.Pad(x, PADS), factors(9, 11)),
        lambda net, x: net.Mul(net.Pad(x, PADS), f32(np.inf)),
        lambda net, x: net.Pad(
            net.Slice(x, np.array([0]), np.array([2]), np.array([1])), np.array([0, 1, 0, 0, 0, 1, 0, 0])
        ),
        lambda net, x: net.Pad(x, np.array([0, 0, -1, 1, 0, 0, 0, 0])),
    ],
    ids=[
        "another number",
        "copies",
        "not zero any more",
        "shifted",
        "a factor for each place",
        "no number",
        "channels",
        "cut",
    ],
)
def test_other_padding_stays(part: Part) -> None:
    with opened(between_convs(part), calibrate=False, left_out=("runtime's basic level",)) as adapter:
        adapter.compare()
        assert "padding" not in dict(adapter.rewrites)


def test_the_runtime_loads_what_is_left() -> None:
    """It would fuse Pads and the pooling op behind them, and would use the name of a joined shape twice."""

    def padded(net: Net, x: str) -> str:
        y = net.Mul(net.Pad(net.Relu(x), np.array([0, 0, 2, 0, 0, 0, 0, 0])), factors(4, 1, 1))
        return str(net.AveragePool(y, kernel_shape=[2, 2]))

    def padded_twice(net: Net, x: str) -> str:
        y = net.Pad(net.Pad(net.Relu(x), np.array([0, 0, 1, 0, 0, 0, 0, 0])), np.array([0, 0, 1, 0, 0, 0, 0, 0]))
        return str(net.AveragePool(net.Mul(y, factors(4, 1, 1)), kernel_shape=[2, 2]))

    def reshaped(net: Net, x: str) -> str:
        y = net.Add(net.Squeeze(net.Reshape(x, np.array([0, 4, 1, 64])), np.array([2])), weight(4, 1))
        return str(net.Reshape(net.Unsqueeze(y, np.array([2])), np.array([0, 4, 8, 8])))

    for part in (padded, padded_twice, reshaped):
        with opened(between_convs(part), calibrate=False) as adapter:
            assert adapter.compare().when_optimized == ""
            assert dict(adapter.rewrites)["past moves"] == 1


def random_chain(seed: int) -> onnx.ModelProto:
    """A layer, a few moves, pools, paddings and constants, and another layer."""
    rng = np.random.default_rng(seed)
    net = Net()
    channels = int(rng.choice([3, 4, 6]))
    batch = None if rng.random() < 0.5 else 2
    x = net.Conv(net.input(batch, 4, 8, 6), weight(channels, 4, 1, 1), weight(channels))
    shape: list[int] = [0, channels, 8, 6]
    for _ in range(int(rng.integers(2, 9))):
        match rng.integers(0, 9):
            case 0 if len(shape) > 2:
                order = [0, *(1 + rng.permutation(len(shape) - 1)).tolist()]
                x, shape = net.Transpose(x, perm=order), [shape[axis] for axis in order]
            case 1:
                sizes = [shape[1] * int(np.prod(shape[2:]))] if rng.random() < 0.3 else [shape[1], -1]
                x = net.Reshape(x, np.array([0, *sizes]))
                shape = [0, *sizes] if len(sizes) == 1 else [0, shape[1], int(np.prod(shape[2:]))]
            case 2:
                axis = int(rng.integers(1, len(shape) + 1))
                x = net.Unsqueeze(x, np.array([axis]))
                shape.insert(axis, 1)
            case 3 if 1 in shape[1:]:
                axis = shape.index(1, 1)
                x = net.Squeeze(x, np.array([axis]))
                shape.pop(axis)
            case 4 if len(shape) == 4 and min(shape[2:]) > 1:
                kind = str(rng.choice(["MaxPool", "AveragePool"]))
                pads = [1, 0, 0, 1] if rng.random() < 0.5 else [0, 0, 0, 0]
                more = {"count_include_pad": int(rng.integers(0, 2))} if kind == "AveragePool" else {}
                x = net.add(kind, x, kernel_shape=[2, 2], pads=pads, **more)
                shape[2:] = [
                    size - 1 + added
                    for size, added in zip(shape[2:], (pads[0] + pads[2], pads[1] + pads[3]), strict=True)
                ]
            case 5 if len(shape) > 2:
                pads = [0] * (2 * len(shape))
                pads[2], pads[-1] = int(rng.integers(0, 2)), int(rng.integers(0, 3))
                x = net.Pad(x, np.array(pads), mode=str(rng.choice(["constant", "edge"])))
                shape[2] += pads[2]
                shape[-1] += pads[-1]
            case 6:
                x = net.add(str(rng.choice(["Relu", "Tanh", "Elu"])), x)
            case _:
                along = [size if rng.random() < 0.4 else 1 for size in shape[1:]]
                x = net.add(
                    str(rng.choice(["Mul", "Add", "Sub", "Div"])), x, factors(*along) * f32(rng.choice([-1, 1]))
                )
    if len(shape) > 3 and rng.random() < 0.7:
        return net.model(
            net.Conv(
                x, weight(3, shape[1], *[1] * (len(shape) - 2)), pads=[int(rng.integers(0, 2))] * 2 * (len(shape) - 2)
            )
        )
    return net.model(net.MatMul(x, weight(shape[-1], 3)))


@pytest.mark.parametrize("seed", range(8))
def test_random_chains_compute_the_same(seed: int) -> None:
    with opened(random_chain(seed), calibrate=False) as adapter:
        comparison = adapter.compare()
        assert (comparison.left_out, comparison.obstacle, comparison.when_optimized) == ((), "", "")
