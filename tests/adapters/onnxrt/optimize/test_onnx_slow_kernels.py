"""Ops with slow kernels are computed by faster ones, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import Net, as_given, opened, space, tensor, weight
from rewriting import Part, applied, between_convs, f32, kernels_are_right, kinds

EXTREMES = np.array([-np.inf, -1e30, -100, -20, -1e-3, -0.0, 0.0, 1e-30, 0.5, 17, 31, 80, 1e30, np.inf], np.float32)


def alone(part: Part, *shape: int | None, opset: int = 20) -> onnx.ModelProto:
    """A MatMul, so that something can be quantized, and the op on another input of the model."""
    net = Net()
    hidden = net.MatMul(net.input(2, 4), weight(4, 3))
    return net.model(hidden, part(net, net.input(*shape, name="z")), opset=opset)


def results(model: onnx.ModelProto, z: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What the optimized float model and the model as given say."""
    feed = {"x": np.ones((2, 4), np.float32), "z": z}
    with opened(model, calibrate=False) as adapter, np.errstate(all="ignore"):
        return np.asarray(adapter.assemble(None).run(feed)[1]), np.asarray(as_given(model, feed)[1])


FORMS: dict[str, tuple[Part, str, str]] = {
    "Elu": (lambda net, x: net.Elu(x), "Elu", "Min Exp Add Max"),
    "small alpha": (lambda net, x: net.Elu(x, alpha=0.3), "Elu", "Min Exp Add Mul Max"),
    "large alpha": (lambda net, x: net.Elu(x, alpha=2.5), "Elu", "Min Exp Sub Mul Relu Sub"),
    "negative alpha": (lambda net, x: net.Elu(x, alpha=-0.5), "Elu", "Min Exp Sub Mul Relu Sub"),
    "Softplus": (lambda net, x: net.Softplus(x), "Softplus and Mish", "Min Exp Add Log Max"),
    "Mish": (lambda net, x: net.Mish(x), "Softplus and Mish", "Min Exp Add Pow Add Div Sub Mul"),
    "Mish in pieces": (
        lambda net, x: net.Mul(x, net.Tanh(net.Softplus(x))), "Softplus and Mish", "Min Exp Add Pow Add Div Sub Mul",
    ),
    "square root": (lambda net, x: net.Pow(x, f32(0.5)), "powers", "Sqrt"),
    "one over the root": (lambda net, x: net.Pow(x, f32(-0.5)), "powers", "Sqrt Reciprocal"),
    "one over x": (lambda net, x: net.Pow(x, np.int64(-1)), "powers", "Reciprocal"),
    "fourth power": (lambda net, x: net.Pow(x, f32(4)), "powers", "Pow Pow"),
    "one over the square": (lambda net, x: net.Pow(x, f32(-2)), "powers", "Pow Reciprocal"),
    "fourth root": (lambda net, x: net.Pow(x, f32(0.25)), "powers", "Sqrt Sqrt"),
}  # fmt: skip


@pytest.mark.parametrize(("part", "name", "expected"), FORMS.values(), ids=FORMS)
def test_each_form_computes_what_the_op_does_on_random_and_extreme_numbers(
    part: Part, name: str, expected: str
) -> None:
    model = alone(part, None, 3)
    assert name in applied(model)
    with opened(model, calibrate=False) as adapter:
        assert [node.op_type for node in adapter._builder.graph.nodes][1:] == expected.split()
        with opened(model, calibrate=False, left_out=(name,)) as without:
            kept, before = ([(op.name, op.kind) for op in one.ops()] for one in (adapter, without))
        assert kept == before, "no new op is there to quantize"
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(400, 3)) * 10).astype(np.float32)
    made, expected_values = results(model, z)
    np.testing.assert_allclose(made, expected_values, rtol=1e-5, atol=1e-5, equal_nan=True)
    if name != "powers":  # a root of minus infinity is no number, where a power is infinite
        made, expected_values = results(model, np.stack([EXTREMES] * 3, 1))
        finite = np.isfinite(expected_values)
        np.testing.assert_allclose(made[finite], expected_values[finite], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["Elu", "Softplus", "Mish"])
def test_int8_neighbours_run_as_they_are_said_to(kind: str) -> None:
    kernels_are_right(between_convs(lambda net, x: net.add(kind, x), opset=20))


def test_a_mish_of_which_a_part_is_read_elsewhere_keeps_it() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    gate = net.Tanh(net.Softplus(x))
    assert kinds(net.model(net.Mul(x, gate), gate)).endswith("Log Max Tanh Mul")


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Pow(x, f32(0.7)),
        lambda net, x: net.Pow(x, f32(2)),
        lambda net, x: net.Pow(x, np.full((1, 1, 1), 0.5, np.float32)),
        lambda net, x: net.Pow(f32(2), x),
        lambda net, x: net.Elu(net.Cast(x, to=TensorProto.DOUBLE)),
    ],
    ids=["another exponent", "a square", "an axis more", "a power of two", "in double"],
)
def test_other_powers_and_types_stay(part: Part) -> None:
    net = Net()
    hidden = net.MatMul(net.input(2, 4), weight(4, 3))
    output = part(net, net.input(None, 3, name="z"))
    kind = TensorProto.DOUBLE if net.nodes[-1].op_type == "Elu" else TensorProto.FLOAT
    rank = 3 if "c" in net.nodes[-1].input[-1] and net.initializers[-1].dims else 2
    model = net.model(hidden, tensor(output, *[None] * rank, dtype=kind), opset=20)
    assert applied(model) == {}


@pytest.mark.parametrize("opset", [13, 17, 18, 22])
@pytest.mark.parametrize(("axis", "shape"), [(1, (2, 5, 6, 7)), (-3, (2, 5, 6, 7)), (0, (5, 40)), (1, (None, 5, 6, 7))])
def test_a_softmax_over_channels_is_written_as_exponentials(
    axis: int, shape: tuple[int | None, ...], opset: int
) -> None:
    model = alone(lambda net, x: net.Softmax(x, axis=axis), *shape, opset=opset)
    with opened(model, calibrate=False) as adapter:
        found = [node.op_type for node in adapter._builder.graph.nodes][1:]
        assert found == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]
    z = (np.random.default_rng(0).normal(size=[size or 3 for size in shape]) * 30).astype(np.float32)
    made, expected = results(model, z)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-7)


def test_a_log_softmax_over_channels_is_a_difference() -> None:
    model = alone(lambda net, x: net.LogSoftmax(x, axis=1), 2, 5, 6, 7)
    with opened(model, calibrate=False) as adapter:
        found = [node.op_type for node in adapter._builder.graph.nodes][1:]
        assert found == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Log", "Sub"]
    made, expected = results(model, (np.random.default_rng(0).normal(size=(2, 5, 6, 7)) * 30).astype(np.float32))
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("part", "shape"),
    [
        (lambda net, x: net.Softmax(x, axis=-1), (2, 5, 6)),
        (lambda net, x: net.Softmax(x, axis=1), (2, 500, 1, 1)),
        (lambda net, x: net.Softmax(net.Add(x, f32(-1e4)), axis=1), (2, 5, 6, 7)),
        (lambda net, x: net.Softmax(net.Transpose(net.Where(np.eye(6, 7) > 0, x, f32(-1e9))), axis=1), (2, 5, 6, 7)),
    ],
    ids=["last axis", "few places", "masked by a sum", "masked by a selection"],
)
def test_a_softmax_over_the_last_axis_or_behind_a_mask_stays(part: Part, shape: tuple[int, ...]) -> None:
    assert "Softmax of channels" not in applied(alone(part, *shape))


PLACES: list[dict[str, Any]] = [
    {},
    {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
    {"coordinate_transformation_mode": "pytorch_half_pixel"},
]


@pytest.mark.parametrize("attributes", PLACES, ids=["default", "ceil", "PyTorch"])
@pytest.mark.parametrize("factors", [(1, 1, 2, 2), (1, 1, 3, 1), (1, 2, 1, 7), (1, 1, 1, 64)])
def test_a_nearest_resize_by_whole_factors_is_the_same_to_the_bit(
    factors: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    scales = np.array(factors, np.float32)
    model = alone(lambda net, x: net.Resize(x, "", scales, mode="nearest", **attributes), None, 2, 5, 3)
    assert applied(model) == {"nearest Resize": 1}
    z = np.random.default_rng(0).normal(size=(2, 2, 5, 3)).astype(np.float32)
    assert np.array_equal(*results(model, z))


def test_a_nearest_resize_to_a_whole_multiple_of_a_fixed_size_is_the_same_to_the_bit() -> None:
    sizes = np.array([2, 2, 15, 3])
    model = alone(lambda net, x: net.Resize(x, "", "", sizes, mode="nearest"), 2, 2, 5, 3)
    assert applied(model) == {"nearest Resize": 1}
    z = np.random.default_rng(0).normal(size=(2, 2, 5, 3)).astype(np.float32)
    assert np.array_equal(*results(model, z))


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "linear"},
        {"mode": "nearest", "nearest_mode": "floor"},
        {"mode": "nearest", "coordinate_transformation_mode": "align_corners"},
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"},
    ],
    ids=["linear", "floor", "corners", "asymmetric"],
)
def test_another_resize_stays(attributes: dict[str, Any]) -> None:
    by_two, by_part = np.array([1, 1, 2, 2], np.float32), np.array([1, 1, 2.5, 2], np.float32)
    assert applied(alone(lambda net, x: net.Resize(x, "", by_two, **attributes), 2, 2, 5, 3)) == {}
    assert applied(alone(lambda net, x: net.Resize(x, "", by_part, mode="nearest"), 2, 2, 5, 3)) == {}


@pytest.mark.parametrize(("window", "pads"), [((5, 5), [2, 2, 2, 2]), ((9, 6), [4, 0, 1, 5]), ((13, 13), None)])
def test_a_large_pool_is_two_narrow_ones_to_the_bit(window: tuple[int, int], pads: list[int] | None) -> None:
    around = {} if pads is None else {"pads": pads}
    model = alone(lambda net, x: net.MaxPool(x, kernel_shape=window, **around), None, 3, 17, 19)
    assert applied(model) == {"large MaxPool": 1}
    z = np.random.default_rng(0).normal(size=(2, 3, 17, 19)).astype(np.float32) - 5
    assert np.array_equal(*results(model, z))


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2]},
        {"dilations": [2, 2]},
        {"ceil_mode": 1},
        {"auto_pad": "SAME_UPPER"},
        {"kernel_shape": [3, 3]},
    ],
    ids=str,
)
def test_another_pool_stays(attributes: dict[str, Any]) -> None:
    whole = {"kernel_shape": [5, 5], **attributes}
    assert applied(alone(lambda net, x: net.MaxPool(x, **whole), None, 3, 17, 19)) == {}


def test_a_pool_whose_places_are_read_stays() -> None:
    net = Net()
    values, places = net.MaxPool(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)), kernel_shape=[5, 5], outputs=2)
    model = net.model(values, tensor(places, None, None, None, None, dtype=TensorProto.INT64))
    assert "large MaxPool" not in applied(model)


def test_pools_and_resizes_between_int8_ops_stay_in_int8() -> None:
    def part(net: Net, x: str) -> str:
        y = net.MaxPool(x, kernel_shape=[5, 5], pads=[2, 2, 2, 2])
        return str(net.Resize(y, "", np.array([1, 1, 2, 2], np.float32), mode="nearest"))

    model = between_convs(part)
    assert kinds(model) == "Conv MaxPool MaxPool Resize Conv"
    kernels_are_right(model)


def test_an_op_in_a_body_stays_and_one_that_a_body_reads_is_replaced() -> None:
    inner = helper.make_graph(
        [helper.make_node("Elu", ["hidden"], ["a"]), helper.make_node("Softplus", ["a"], ["inside"])],
        "then", [], [helper.make_tensor_value_info("inside", TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Neg", ["hidden"], ["outside"])],
        "else", [], [helper.make_tensor_value_info("outside", TensorProto.FLOAT, None)],
    )  # fmt: skip
    net = Net()
    net.nodes.append(helper.make_node("MatMul", [net.input(2, 4), net.constant(weight(4, 3))], ["product"], "product"))
    net.nodes.append(helper.make_node("Elu", ["product"], ["hidden"], "hidden"))
    condition = net.Less(net.ReduceMax("hidden", keepdims=0), f32(1e9))
    chosen = net.If(condition, then_branch=inner, else_branch=other)
    model = net.model(tensor(chosen, None, None), opset=17)
    assert applied(model) == {"Elu": 1}
    with opened(model) as adapter:
        feed = dict(adapter.probe_samples[0])
        np.testing.assert_allclose(adapter.build(None)(feed), as_given(model, feed)[0], rtol=1e-5, atol=1e-6)
        assert space(adapter).default_config().int8_ops == ("product",)


def test_runs_with_earlier_ops_are_rebuilt_without_these_rewrites() -> None:
    model = between_convs(lambda net, x: net.Elu(x))
    with opened(model, calibrate=False, ops_version=2) as adapter:
        assert "Elu" in [node.op_type for node in adapter._builder.graph.nodes]
        adapter.compare()
        assert "Elu" in [node.op_type for node in adapter._builder.graph.nodes]
