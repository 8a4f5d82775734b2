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
