"""Models of old opsets compute what they did, or are refused with the op named; declared shapes are not believed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import Net, as_given, data, opened, weight

from quaver.adapters.onnxrt.load import old_opsets as conversion
from quaver.errors import ModelError


def segmentation(middle: onnx.NodeProto, opset: int, *constants: Any, image: int = 12) -> onnx.ModelProto:
    """Convolution, the operator in question, convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["a"], "relu"),
        middle,
        helper.make_node("Conv", ["u", "w2"], ["y"], "conv2"),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants]
    weights = [numpy_helper.from_array(weight(8, 3, 3, 3), "w1"), numpy_helper.from_array(weight(4, 8, 1, 1), "w2")]
    graph = helper.make_graph(
        nodes,
        "segmentation",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, image, image])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, "H", "W"])],
        [*weights, *tensors],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def assert_float_model_equals(model: onnx.ModelProto) -> None:
    with opened(model) as adapter:
        comparison = adapter.compare(data(adapter))
        assert comparison.batches == (1, 2) and comparison.difference < 1e-5 and not comparison.left_out
        feed = data(adapter)[0]
        for expected, actual in zip(as_given(model, feed), adapter.build(None).session.run(None, feed), strict=True):
            assert expected.shape == actual.shape
            assert np.allclose(expected, actual, atol=1e-5)


SCALES = {
    "twice": [1, 1, 2, 2], "three times": [1, 1, 3, 3], "odd": [1, 1, 1.5, 2.5], "half": [1, 1, 0.5, 0.5],
    "a quarter": [1, 1, 0.25, 0.25], "both ways": [1, 1, 2.5, 0.4],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", SCALES.values(), ids=list(SCALES))
def test_a_resize_of_opset_10_keeps_its_coordinates(scales: list[float], mode: str) -> None:
    node = helper.make_node("Resize", ["a", "s"], ["u"], "up", mode=mode)
    assert_float_model_equals(segmentation(node, 10, ("s", np.array(scales, np.float32))))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [7, 8, 9])
@pytest.mark.parametrize("scales", [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 3.0, 1.5]], ids=str)
def test_an_upsample_keeps_its_coordinates(scales: list[float], opset: int, mode: str) -> None:
    if opset < 9:
        model = segmentation(helper.make_node("Upsample", ["a"], ["u"], "up", mode=mode, scales=scales), opset)
    else:
        node = helper.make_node("Upsample", ["a", "s"], ["u"], "up", mode=mode)
        model = segmentation(node, opset, ("s", np.array(scales, np.float32)))
    assert_float_model_equals(model)


@pytest.mark.parametrize("opset, axis", [*itertools.product([7, 11, 12], [None, 0, 1, 2, 3]), (11, -1), (12, -2)])
@pytest.mark.parametrize("kind", ["Hardmax", "Softmax", "LogSoftmax"])
def test_an_old_softmax_still_takes_all_later_axes_as_one(kind: str, opset: int, axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    assert_float_model_equals(segmentation(helper.make_node(kind, ["a"], ["u"], "flat", **attributes), opset))


@pytest.mark.parametrize("kind", ["Hardmax", "Softmax", "LogSoftmax"])
def test_an_old_softmax_that_a_body_reads_takes_all_later_axes_as_one(kind: str) -> None:
    model = in_a_branch(helper.make_node("Identity", ["s"], ["t"], "same"), 11)
    model.graph.node.insert(1, helper.make_node(kind, ["c"], ["s"], "flat", axis=1))
    with opened(model, calibrate=False) as adapter:
        feed = {"x": np.random.default_rng(0).normal(size=(2, 3, 10, 10)).astype(np.float32)}
        adapter.calibrate([feed])
        (expected,), (actual,) = as_given(model, feed), adapter.build(None).session.run(None, feed)
        assert np.allclose(expected, actual, atol=1e-5)


def in_a_branch(node: onnx.NodeProto, opset: int, *constants: Any) -> onnx.ModelProto:
    """A convolution, and an operator in the branch of an If that is always taken."""
    then = helper.make_graph([node], "then", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
    other = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("ReduceMean", ["c"], ["m"], "mean", keepdims=0),
        helper.make_node("Greater", ["m", "low"], ["b"], "greater"),
        helper.make_node("If", ["b"], ["y"], "if", then_branch=then, else_branch=other),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in (("low", np.float32(-1e9)), *constants)]
    graph = helper.make_graph(
        nodes,
        "branch",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight(8, 3, 3, 3), "w"), *tensors],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


@pytest.mark.parametrize(
    "node, opset",
    [
        (helper.make_node("Upsample", ["c", "s"], ["t"], "up", mode="linear"), 9),
        (helper.make_node("Resize", ["c", "s"], ["t"], "up", mode="linear"), 10),
        (helper.make_node("Resize", ["c", "s"], ["t"], "up", mode="nearest"), 10),
        (helper.make_node("Hardmax", ["c"], ["t"], "hard", axis=1), 12),
    ],
    ids=["Upsample", "Resize", "nearest", "Hardmax"],
)
def test_an_old_operator_in_a_body_computes_the_same(node: onnx.NodeProto, opset: int) -> None:
    constants = [("s", np.array([1, 1, 2, 0.5], np.float32))] if len(node.input) > 1 else []
    if node.op_type == "Upsample":
        constants = [("s", np.array([1, 1, 2, 2], np.float32))]
    model = in_a_branch(node, opset, *constants)
    with opened(model, calibrate=False) as adapter:
        feed = {"x": np.random.default_rng(0).normal(size=(2, 3, 10, 10)).astype(np.float32)}
        adapter.calibrate([feed])
        (expected,), (actual,) = as_given(model, feed), adapter.build(None).session.run(None, feed)
        assert np.allclose(expected, actual, atol=1e-5)


def test_functions_of_an_old_model_are_inlined_because_the_converter_drops_them() -> None:
    opsets = [helper.make_opsetid("", 12), helper.make_opsetid("mine", 1)]
    gate = [helper.make_node("Sigmoid", ["v"], ["g"]), helper.make_node("Mul", ["v", "g"], ["r"])]
    function = helper.make_function("mine", "Gated", ["v"], ["r"], gate, opsets[:1])
    model = segmentation(helper.make_node("Gated", ["a"], ["u"], "gated", domain="mine"), 12)
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    model.functions.append(function)
    assert_float_model_equals(model)


def test_the_domain_may_be_spelled_out() -> None:
    model = segmentation(helper.make_node("Upsample", ["a", "s"], ["u"], "up"), 9, ("s", np.array([1, 1, 2, 2.0], "f")))
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert_float_model_equals(model)


def test_a_conversion_that_changes_the_model_is_refused_with_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_restore_old_resize", lambda model: None)
    node = helper.make_node("Resize", ["a", "s"], ["u"], "enlarge", mode="linear")
    model = segmentation(node, 10, ("s", np.array([1, 1, 2, 2], np.float32)))
    with opened(model, calibrate=False) as adapter, pytest.raises(ModelError) as error:
        adapter.calibrate(data(adapter))
    message = str(error.value)
    assert "converting it from opset 10 to 17 changes what it computes: 'y' differs by" in message
    assert "The first op whose result differs is Resize 'enlarge'" in message


# --- shapes that a model declares ---


def product(shape: list[Any], declared: list[Any]) -> onnx.ModelProto:
    """Two biased products of rank three; the output declares a shape."""
    net = Net()
    x = net.Add(net.MatMul(net.input(*shape), weight(8, 8)), weight(8))
    y = net.Add(net.MatMul(net.Relu(x), weight(8, 4)), weight(4), outputs=["y"])
    model = net.model(y)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, declared))
    return model


@pytest.mark.parametrize(
    "shape, declared", [(["N", 3, 8], [1, 3, 4]), ([-1, -1, 8], [-1, -1, 4]), (["N", "T", 8], [1, 1, 4])], ids=str
)
def test_a_declared_shape_is_not_built_in(shape: list[Any], declared: list[Any]) -> None:
    model = product(shape, declared)
    with opened(model, calibrate=False) as adapter:
        for batch in (1, 2):
            adapter.calibrate([{"x": np.random.default_rng(0).normal(size=(batch, 3, 8)).astype(np.float32)}])
        for batch in (1, 5):
            feed = {"x": np.ones((batch, 3, 8), np.float32)}
            (expected,), (actual,) = as_given(model, feed), adapter.build(None).session.run(None, feed)
            assert actual.shape == expected.shape and np.allclose(expected, actual, atol=1e-5)


def test_products_behind_a_biased_product_of_rank_three_get_names_of_their_own() -> None:
    net = Net()
    h = net.Add(net.MatMul(net.input(1, 5, 8), weight(8, 8)), weight(8))
    q, k, v = (net.Add(net.MatMul(h, weight(8, 8, seed=seed)), weight(8, seed=seed)) for seed in (1, 2, 3))
    model = net.model(net.Mul(net.Mul(q, k), v))
    with opened(model) as adapter:
        onnx.checker.check_model(adapter.assemble(None).SerializeToString(), full_check=True)
        assert adapter.compare(data(adapter)).difference < 1e-5
        assert sum(node.op_type == "Gemm" for node in adapter._builder.graph.nodes) == 4


def test_a_normalization_before_a_padded_average_and_a_product_stays() -> None:
    net = Net()
    rng = np.random.default_rng(0)
    x = net.Relu(net.Conv(net.input("N", 3, 8, 8), weight(20, 3, 3, 3), pads=[1] * 4))
    x = net.BatchNormalization(x, *(rng.uniform(0.5, 2, 20).astype(np.float32) for _ in range(4)))
    x = net.AveragePool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1)
    model = net.model(net.Gemm(net.Flatten(x), weight(320, 10)))
    with opened(model) as adapter:
        assert adapter.compare(data(adapter)).difference < 1e-5 and not adapter.options.left_out
