"""Elementwise ops between Transposes of an export with channels last are done with channels first."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import Net, opened, weight
from rewriting import Part, between_convs, f32, kernels_are_right, kinds

TO_THE_END, BACK = [0, 2, 3, 1], [0, 3, 1, 2]


def last(*parts: Part) -> Part:
    """Parts of a network that see channels last."""

    def built(net: Net, x: str) -> str:
        y = str(net.Transpose(x, perm=TO_THE_END))
        for part in parts:
            y = str(part(net, y))
        return str(net.Transpose(y, perm=BACK))

    return built


NORM: list[Part] = [
    lambda net, x: net.Add(x, weight(4)),
    lambda net, x: net.Sub(x, weight(1, 1, 1, 4)),
    lambda net, x: net.Mul(x, np.abs(weight(1, 4)) + 1),
]


def test_a_normalization_in_pieces_goes_into_the_convolution_before_the_transpose() -> None:
    model = between_convs(last(*NORM, lambda net, x: net.Relu(x)))
    assert kinds(model) == "Conv Relu Conv"
    assert "Transpose" in kinds(model, optimise_float=False)
    kernels_are_right(model)


def test_sums_of_two_branches_need_no_transpose_either() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(8, 4, 1, 1))
    one = net.Add(net.Transpose(x, perm=TO_THE_END), weight(8))
    other = net.Add(net.Transpose(net.Conv(x, weight(8, 8, 1, 1)), perm=TO_THE_END), weight(8))
    total = net.Transpose(net.Relu(net.Add(one, other)), perm=BACK)
    assert "Transpose" not in kinds(net.model(net.Conv(total, weight(4, 8, 1, 1))))


def test_a_transpose_without_a_counterpart_remains_once() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(8, 4, 1, 1))
    y = net.Relu(net.Add(net.Transpose(x, perm=TO_THE_END), weight(8)))
    assert kinds(net.model(net.Softmax(y))) == "Conv Relu Transpose Softmax"


def test_names_of_removed_nodes_are_listed() -> None:
    with opened(between_convs(last(*NORM)), calibrate=False) as adapter:
        first = next(op for op in adapter.ops() if op.kind == "Conv")
        assert {"Add_2", "Sub_3", "Mul_4"} <= set(first.nodes)


def test_two_transposes_of_any_order_cancel_around_elementwise_ops() -> None:
    def part(net: Net, x: str) -> str:
        y = net.Mul(net.Transpose(x, perm=[0, 3, 2, 1]), np.abs(weight(8, 1, 4)) + 1)
        y = net.Sub(np.ones((1, 8, 1, 1), np.float32), net.Relu(net.Add(y, weight(4))))
        return str(net.Transpose(y, perm=[0, 3, 2, 1]))

    assert kinds(between_convs(part)) == "Conv Mul Add Relu Sub Conv"
    assert kinds(between_convs(part), left_out=("Transpose pairs",)).count("Transpose") == 2
    kernels_are_right(between_convs(part))


def test_transposes_that_follow_each_other_are_one() -> None:
    part: Part = lambda net, x: net.Transpose(net.Transpose(x, perm=[0, 3, 1, 2]), perm=[0, 2, 1, 3])  # noqa: E731
    assert kinds(between_convs(part)) == "Conv Transpose Conv"


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Transpose(net.Relu(net.Transpose(x, perm=[0, 3, 1, 2])), perm=[0, 2, 1, 3]),
        last(lambda net, x: net.Softmax(x)),
        last(lambda net, x: net.Add(x, net.Relu(x)), lambda net, x: net.Softmax(x)),
    ],
    ids=["another order", "along the channels", "then along the channels"],
)
def test_other_transposes_stay(part: Part) -> None:
    assert kinds(between_convs(part)).count("Transpose") == 2


def test_a_result_that_is_an_output_keeps_its_place() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(8, 4, 1, 1))
    y = net.Mul(net.Transpose(x, perm=TO_THE_END), f32(2))
    model = net.model(net.Conv(net.Transpose(y, perm=BACK), weight(4, 8, 1, 1)), y)
    with opened(model, calibrate=False) as adapter:
        feed = {adapter.inputs[0].name: np.random.default_rng(0).standard_normal((2, 4, 8, 8)).astype(np.float32)}
        for made, given in zip(adapter.build(None).run(feed), adapter.build_unmodified().run(feed), strict=True):
            np.testing.assert_allclose(made, given, rtol=1e-4, atol=1e-5)
