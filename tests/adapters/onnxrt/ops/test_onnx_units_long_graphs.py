"""Graphs of thousands of nodes one behind the other: the work grows with their number, and no faster."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import Net, opened, space, weight

KINDS = {"Relu": [], "Clip": [-9, 9], "Transpose": [], "Sigmoid": [], "Mul": [0.999]}


def a_chain(kind: str, length: int) -> onnx.ModelProto:
    """A chain of nodes of a kind between two products."""
    net = Net()
    x = net.MatMul(net.input(4, 4), weight(4, 4))
    numbers = [net.constant(np.float32(value)) for value in KINDS[kind]]
    for _ in range(length):
        x = net.add(kind, x, *numbers)
    return net.model(net.MatMul(x, weight(4, 4)))


def calls(model: onnx.ModelProto) -> int:
    """Count the calls that load, inspect and calibrate a model, and build it in three mixed-precision configs."""
    count = 0

    def counting(frame: Any, event: str, value: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        with opened(model) as adapter:
            ops = space(adapter)
            for config in (None, ops.default_config(), ops.only_int8(ops.quantizable[0])):
                adapter.build(config)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_four_times_the_nodes_are_four_times_the_work(kind: str) -> None:
    calls(a_chain(kind, 10))  # imports, and caches that are filled once
    short, long = (calls(a_chain(kind, length)) for length in (300, 1200))
    assert long < 5 * short


def test_a_chain_of_four_thousand_relus_is_built_and_runs() -> None:
    with opened(a_chain("Relu", 4000)) as adapter:
        sample = np.ones((4, 4), np.float32)
        model = adapter.build(space(adapter).default_config())
        assert np.allclose(model(sample), adapter.build(None)(sample), atol=0.2)
