"""A Pad before a pooling op stays a Pad where ONNX Runtime would fuse it wrongly, and is fused where it would not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import Net, data, opened, space, weight

from quaver.adapters.onnxrt.load.model_file import load_model

PADS = np.array([0, 0, 0, 0, 0, 0, 1, 1])
# Each of these is another function, or does not load, when the runtime makes one op of the Pad and the pooling op.
FUSED_WRONGLY: dict[str, tuple[str, dict[str, Any]]] = {
    "windows round up": ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    "windows of the largest round up": ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    "negative values": ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "padding as wide as the window": ("AveragePool", {"kernel_shape": [1, 1], "strides": [2, 2]}),
    "padding of its own": ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
}


def pooled(op: str, attributes: dict[str, Any], positive: bool = False, size: int = 7) -> onnx.ModelProto:
    net = Net()
    x = net.Conv(net.input(None, 4, size, size), weight(6, 4, 1, 1), np.full(6, -2.0, np.float32), name="conv")
    x = net.Relu(x) if positive else x
    return net.model(net.Neg(net.add(op, net.Pad(x, PADS, name="pad"), **attributes)))


def as_written(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def kinds_of(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in load_model(model).graph.nodes]


@pytest.mark.parametrize("op, attributes", FUSED_WRONGLY.values(), ids=list(FUSED_WRONGLY))
def test_the_float_model_as_it_runs_computes_what_the_given_model_does(op: str, attributes: dict[str, Any]) -> None:
    model = pooled(op, attributes)
    assert "Pad" in kinds_of(model)
    with opened(model) as adapter:
        feed = data(adapter)[0]
        comparison = adapter.compare([feed])
        assert not comparison.left_out and not comparison.when_optimized
        (expected,), (actual,) = as_written(model, feed), adapter.build(None).session.run(None, feed)
        assert actual.shape == expected.shape
        assert np.allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_padding_that_is_fused_rightly_is_fused(op: str) -> None:
    assert "Pad" not in kinds_of(pooled(op, {"kernel_shape": [2, 2], "strides": [2, 2]}, positive=True))


def test_a_pad_without_a_fill_gets_one() -> None:
    op, attributes = FUSED_WRONGLY["windows round up"]
    model = pooled(op, attributes)
    graph = load_model(model).graph
    pad = next(node for node in graph.nodes if node.op_type == "Pad")
    assert str(graph.constants[pad.input[2]].reshape(())) == "-0.0"


def test_another_fill_is_kept() -> None:
    net = Net()
    x = net.Pad(net.Conv(net.input(None, 4, 7, 7), weight(6, 4, 1, 1)), PADS, np.float32(3.0))
    model = net.model(net.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1))
    graph = load_model(model).graph
    assert float(graph.constants[graph.nodes[1].input[2]].reshape(())) == 3.0


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("axes", [[2, 3], [-2, -1]])
def test_a_pad_with_axes_between_convolutions_runs_in_int8(axes: list[int], computed: bool) -> None:
    """ONNX Runtime moves the Transpose of a convolution through it and reads amounts of all axes."""
    net = Net()
    x = net.Conv(net.input(None, 4, 6, 6), weight(8, 4, 1, 1))
    amounts = net.Slice(net.Shape(x), np.array([1]), np.array([3])) if computed else None  # 8 and 6
    pads = np.array([1, 2, 0, 3]) if amounts is None else net.Concat(amounts, amounts, axis=0)
    x = net.Pad(x, pads, np.float32(0.5), np.array(axes))
    model = net.model(net.Conv(x, weight(4, 8, 3, 3)), opset=18)
    assert len(next(node for node in load_model(model).graph.nodes if node.op_type == "Pad").input) == 3
    with opened(model) as adapter:
        feed = data(adapter)[0]
        built = adapter.build(space(adapter).default_config())
        (expected,), (actual,) = as_written(model, feed), built.session.run(None, feed)
        assert np.abs(actual - expected).max() < 0.1 * np.abs(expected).max()


def test_a_pad_in_a_body_is_kept_as_well() -> None:
    def body(name: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Pad", ["h", "pads", f"{name} zero"], [f"{name} padded"]),
            helper.make_node("MaxPool", [f"{name} padded"], [name], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        zero = numpy_helper.from_array(np.zeros((), np.float32), f"{name} zero")
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)], [zero]
        )

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "conv"),
        helper.make_node("If", ["flag"], ["y"], "if", then_branch=body("then"), else_branch=body("else")),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 7, 7]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(weight(6, 4, 1, 1), "w"), numpy_helper.from_array(PADS, "pads")]
    graph = helper.make_graph(nodes, "graph", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = -np.abs(np.random.default_rng(0).normal(size=(2, 4, 7, 7))).astype(np.float32)
    feed = {"x": x, "flag": np.array(True)}
    with opened(model, calibrate=False) as adapter:
        adapter.calibrate([feed])
        (expected,), (actual,) = as_written(model, feed), adapter.build(None).session.run(None, feed)
        assert np.allclose(actual, expected, atol=1e-4)


def test_amounts_are_written_for_all_axes_although_an_input_is_an_output_too() -> None:
    net = Net()
    x = net.input(2, 4, 7, 7)
    wide = net.Pad(net.Conv(x, weight(6, 4, 1, 1)), np.array([3, 1, 3, 1]), np.float32(0), np.array([-2, -1]))
    model = net.model(net.Conv(wide, weight(4, 6, 3, 3)), opset=21, ir=10)
    model.graph.output.append(model.graph.input[0])
    graph = load_model(model, optimise_float=False).graph
    pad = next(node for node in graph.nodes if node.op_type == "Pad")
    assert graph.constants[pad.input[1]].tolist() == [0, 0, 3, 1, 0, 0, 3, 1]
    assert graph.shapes[pad.output[0]] == (2, 6, 13, 9)
