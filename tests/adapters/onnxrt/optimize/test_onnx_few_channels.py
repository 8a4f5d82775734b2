"""Convolutions with few output channels are computed with more of them, and the first ones are cut out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import Net, opened, weight
from rewriting import SAME, applied, f32, kernels_are_right, kinds


def network(
    outputs: int = 3, inputs: int = 16, kernel: int = 3, activation: str = "", **attributes: Any
) -> onnx.ModelProto:
    net = Net()
    x = net.Relu(net.Conv(net.input(2, 4, 8, 8), weight(inputs, 4, 1, 1), weight(inputs)))
    y = net.Conv(
        x, weight(outputs, inputs // attributes.get("group", 1), kernel, kernel), weight(outputs), **attributes
    )
    y = net.Clip(y, f32(0), f32(1)) if activation == "Clip" else net.add(activation, y) if activation else y
    return net.model(net.Conv(y, weight(16, outputs, 1, 1)))


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("", "Conv Relu Conv Slice Conv"), ("Relu", "Conv Relu Conv Relu Slice Conv"),
     ("Clip", "Conv Relu Conv Clip Slice Conv"), ("Sigmoid", "Conv Relu Conv Slice Sigmoid Conv")],
)  # fmt: skip
def test_the_channels_are_repeated_and_cut_behind_the_activation(activation: str, expected: str) -> None:
    model = network(activation=activation, **SAME)
    assert kinds(model) == expected
    assert "few channels" in applied(model)
    kernels_are_right(model, count=2)


@pytest.mark.parametrize(("outputs", "computed"), [(1, 16), (12, 16), (17, 20), (31, 32)])
def test_the_number_is_one_that_the_fast_kernel_takes(outputs: int, computed: int) -> None:
    with opened(network(outputs, **SAME), calibrate=False) as adapter:
        assert adapter.compare().left_out == ()
        graph = adapter._builder.graph
        assert [len(graph.constants[node.input[1]]) for node in graph.nodes if node.op_type == "Conv"][1] == computed


def test_a_layer_that_is_an_output_of_the_model_keeps_its_name() -> None:
    net = Net()
    y = net.Conv(net.input(None, 16, 8, 8), weight(1, 16, 3, 3))
    model = net.model(y, net.Sigmoid(y))
    with opened(model) as adapter:
        assert adapter.compare().left_out == () and dict(adapter.rewrites)["few channels"] == 1
    kernels_are_right(model, count=1)


def test_repeated_channels_change_no_range() -> None:
    model = network(outputs=2, **SAME)
    with opened(model) as filled, opened(model, left_out=("few channels",)) as plain:
        made, before = (
            next(ranges for name, ranges in one._builder.ranges.items() if name.startswith("Conv_2.out"))
            for one in (filled, plain)
        )
    for method, (low, high) in before.items():
        np.testing.assert_allclose(made[method], (low, high), rtol=1e-2, err_msg=method)


@pytest.mark.parametrize(
    "model",
    [network(16), network(20), network(3, inputs=18), network(3, kernel=1), network(4, group=4)],
    ids=["enough", "a multiple of 4", "inputs that the kernel does not take", "few products", "groups"],
)
def test_other_convolutions_stay(model: onnx.ModelProto) -> None:
    assert "few channels" not in applied(model)
