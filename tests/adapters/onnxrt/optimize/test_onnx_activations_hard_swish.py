"""Hard-sigmoid and hard-swish are recognised however they are written, and nothing that only looks like them."""

from __future__ import annotations

import pytest
from onnx_models import Net, opened, weight
from rewriting import Part, between_convs, f32, kernels_are_right, kinds, numbers


def clipped(net: Net, x: str, shift: float = 3, low: float = 0, high: float = 6) -> str:
    return str(net.Clip(net.Add(x, f32(shift)), f32(low), f32(high)))


HARD_SWISH: dict[str, Part] = {
    "x * clip / 6": lambda net, x: net.Div(net.Mul(x, clipped(net, x)), f32(6)),
    "clip * x * 1/6": lambda net, x: net.Mul(net.Mul(clipped(net, x), x), f32(1 / 6)),
    "x * (clip / 6)": lambda net, x: net.Mul(x, net.Div(clipped(net, x), f32(6))),
    "(1/6 * clip) * x": lambda net, x: net.Mul(net.Mul(f32(1 / 6), clipped(net, x)), x),
    "3 + x, constants of one axis": lambda net, x: net.Div(
        net.Mul(x, net.Clip(net.Add(numbers(3), x), f32(0), f32(6))), numbers(6)
    ),
    "another height": lambda net, x: net.Div(net.Mul(x, clipped(net, x, 1, 0, 4)), f32(4)),
}


@pytest.mark.parametrize("which", HARD_SWISH)
def test_hard_swish_is_x_times_hard_sigmoid(which: str) -> None:
    model = between_convs(HARD_SWISH[which])
    assert kinds(model) == "Conv HardSigmoid Mul Conv"
    assert kinds(model, optimise_float=False) != "Conv HardSigmoid Mul Conv"


def test_hard_sigmoid_is_one_node() -> None:
    model = between_convs(lambda net, x: net.Div(clipped(net, net.Atan(x)), f32(6)))
    assert kinds(model) == "Conv Atan HardSigmoid Conv"


def test_names_of_replaced_nodes_are_listed() -> None:
    with opened(between_convs(HARD_SWISH["x * clip / 6"]), calibrate=False) as adapter:
        op = next(op for op in adapter.ops() if op.kind == "Mul")
        assert op.name == "Mul_3" and set(op.nodes) == {"Mul_3", "Add_1", "Div_4"}


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Div(net.Mul(x, clipped(net, x)), f32(5)),
        lambda net, x: net.Div(net.Mul(x, clipped(net, x, low=-1)), f32(6)),
        lambda net, x: net.Div(net.Mul(net.Relu(x), clipped(net, x)), f32(6)),
        lambda net, x: net.Div(net.Mul(x, net.Clip(net.Add(x, weight(1, 1, 8)), f32(0), f32(6))), f32(6)),
        lambda net, x: net.Div(f32(6), net.Add(net.Mul(x, clipped(net, x)), f32(9))),
        lambda net, x: net.Mul(x, clipped(net, x)),
    ],
    ids=["divided by 5", "from -1", "another x", "a vector", "six over it", "not divided"],
)
def test_a_chain_similar_to_hard_swish_stays(part: Part) -> None:
    assert "HardSigmoid" not in kinds(between_convs(part))


@pytest.mark.parametrize("kind", ["Add", "Clip", "Mul"])
def test_a_node_that_is_read_elsewhere_stays(kind: str) -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    y = net.Conv(HARD_SWISH["x * clip / 6"](net, x), weight(4, 4, 1, 1))
    step = next(node.output[0] for node in net.nodes if node.op_type == kind)
    assert "HardSigmoid" not in kinds(net.model(y, step))
    assert "HardSigmoid" not in kinds(net.model(net.Add(y, net.Relu(step))))


def test_kernels_behind_hard_swish_match_the_configuration() -> None:
    kernels_are_right(between_convs(HARD_SWISH["x * clip / 6"]))
