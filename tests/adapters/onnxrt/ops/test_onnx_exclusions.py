"""What joins shares between 0 and 1 with other numbers stays in fp32: one scale would leave nothing of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx_models import Net, opened, space, weight

from quaver.ops import FLOAT

Part = Callable[[Net, str], str]
SHARES: dict[str, Part] = {
    "Sigmoid": lambda net, x: net.Sigmoid(x),
    "Softmax that is moved about": lambda net, x: net.Reshape(net.Softmax(x, axis=1), np.array([0, 4, 8, 8])),
    "a product of shares": lambda net, x: net.Mul(net.Sigmoid(x), net.HardSigmoid(net.Tanh(x))),
}
OTHERS: dict[str, Part] = {
    "a layer": lambda net, x: x,
    "a product with something else": lambda net, x: net.Mul(net.Sigmoid(x), x),
}


def default(one: Part, other: Part) -> bool:
    """Whether a Concat of two such tensors is in fp32 by default."""
    net = Net()
    x, y = (net.Conv(net.input(1, 4, 8, 8, name=name), weight(4, 4, 1, 1)) for name in "xy")
    joined = net.Concat(one(net, x), other(net, y), axis=1, name="joined")
    with opened(net.model(net.Conv(joined, weight(4, 8, 1, 1)))) as adapter:
        op = next(op for op in space(adapter).ops if op.name == "joined")
        assert op.quantized_choices  # a rule may still ask for it
        return op.choices[0] == FLOAT


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("other", OTHERS)
def test_probabilities_beside_other_numbers_stay_fp32(share: str, other: str) -> None:
    assert default(SHARES[share], OTHERS[other]) and default(OTHERS[other], SHARES[share])


@pytest.mark.parametrize("share", SHARES)
def test_a_concat_of_probabilities_is_int8(share: str) -> None:
    assert not default(SHARES[share], SHARES["Sigmoid"])


@pytest.mark.parametrize("other", OTHERS)
def test_a_concat_without_probabilities_is_int8(other: str) -> None:
    assert not default(OTHERS[other], OTHERS["a layer"])


def _variance_of_means(net: Net, x: str) -> str:
    mean = net.ReduceMean(x, axes=[2, 3])
    difference = net.Sub(net.ReduceMean(net.Mul(x, x, name="square"), axes=[2, 3]), net.Mul(mean, mean, name="mean"))
    return net.Div(x, net.Sqrt(net.Add(difference, np.float32(1e-5), name="above zero")))


def _log_of_a_gate(net: Net, x: str) -> str:
    return net.Log(net.Sigmoid(x, name="gate"))


def _quotient_of_gates(net: Net, x: str) -> str:
    return net.Div(x, net.Mul(net.Sigmoid(x, name="gate"), np.float32(2.0), name="divisor"))


def _root_of_squares(net: Net, x: str) -> str:
    total = net.Add(x, net.Conv(x, weight(4, 4, 1, 1)), name="residual")
    squares = net.Mul(total, total, name="square")
    return net.Div(total, net.Sqrt(net.Add(net.ReduceMean(squares, axes=[2, 3]), np.float32(1e-5), name="above zero")))


@pytest.mark.parametrize(
    ("part", "floats", "quantized"),
    [
        (_variance_of_means, {"square", "mean"}, set()),
        (_log_of_a_gate, {"gate"}, set()),
        (_quotient_of_gates, {"gate"}, set()),
        (_root_of_squares, {"square"}, {"residual"}),
    ],
)
def test_arithmetic_before_a_root_or_a_quotient_stays_fp32(part: Part, floats: set[str], quantized: set[str]) -> None:
    net = Net()
    x = net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1))
    with opened(net.model(net.Conv(part(net, x), weight(4, 4, 1, 1)))) as adapter:
        names = {op.name for op in space(adapter).ops if op.quantized_choices}
    assert not names & floats
    assert quantized <= names and len(names) >= 2
