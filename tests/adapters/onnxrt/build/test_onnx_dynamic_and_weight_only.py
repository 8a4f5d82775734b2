"""Ops of 8 bits that read float and write float: with dynamic ranges, or with their weight alone in 8 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_graphs import attention, residual
from onnx_models import Array, Net, data, deviation, kernels, opened, space, weight

from quaver.adapters.abilities import weight_errors
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.profile.kernels import optimised
from quaver.errors import BuildError
from quaver.ops import FLOAT, INT8, OpConfig, QuantConfig

DYNAMIC, WEIGHTS = OpConfig(INT8, mode="dynamic"), OpConfig(INT8, mode="weight_only")
PRODUCTS: dict[str, Any] = {
    "MatMul": lambda net, x: net.MatMul(x, weight(16, 8), name="op"),
    "Gemm": lambda net, x: net.Gemm(x, weight(16, 8), weight(8), name="op"),
    "Gemm with transB": lambda net, x: net.Gemm(x, weight(8, 16), weight(8), transB=1, name="op"),
}


def product(which: str) -> onnx.ModelProto:
    net = Net()
    return net.model(PRODUCTS[which](net, net.input(None, 16)))


def lstm(directions: int = 1, states: bool = False, **attributes: Any) -> onnx.ModelProto:
    """An LSTM of 16 inputs and 12 units."""
    rng = np.random.default_rng(0)
    inputs, units = 16, 12
    shapes = {"W": (directions, 4 * units, inputs), "R": (directions, 4 * units, units), "B": (directions, 8 * units)}
    constants = {name: rng.normal(size=shape).astype(np.float32) / 3 for name, shape in shapes.items()}
    names = ["x", *constants]
    if states:
        constants |= {name: rng.normal(size=(directions, 2, units)).astype(np.float32) for name in ("h", "c")}
        names += ["", "h", "c"]
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(
        "LSTM", names, ["y", "last", ""], "op", hidden_size=units, direction=direction, **attributes
    )
    graph = helper.make_graph(
        [node],
        "lstm",
        [helper.make_tensor_value_info("x", 1, ["steps", 2, inputs])],
        [helper.make_tensor_value_info(name, 1, None) for name in ("y", "last")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def as_dynamic(x: Array) -> Array:
    """What the standard says of DynamicQuantizeLinear, and back."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = np.float32((high - low) / 255)
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


@pytest.mark.parametrize("which", PRODUCTS)
def test_a_dynamic_product_quantizes_what_it_reads_by_the_range_of_the_moment(which: str) -> None:
    with opened(product(which), calibrate=False) as adapter:
        (op,) = adapter.ops()
        model = adapter.build(QuantConfig({op.name: DYNAMIC}))
        matrix = next(adapter.inspect_quantized(QuantConfig({op.name: DYNAMIC})).weights()).optimized.dequantized()  # type: ignore[union-attr]
        matrix = matrix.T if which == "Gemm with transB" else matrix
        for size in (1.0, 1000.0):
            x = size * np.random.default_rng(1).normal(size=(5, 16)).astype(np.float32)
            expected = as_dynamic(x) @ matrix + (weight(8) if "Gemm" in which else 0)
            assert np.abs(model(x) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("which", PRODUCTS)
def test_a_product_with_its_weight_alone_in_8_bits_is_nearer_to_float(which: str) -> None:
    with opened(product(which), calibrate=False) as adapter:
        (op,) = adapter.ops()
        x = np.random.default_rng(1).normal(size=(5, 16)).astype(np.float32)
        x[0] *= 1000  # an outlier among the rows
        expected = adapter.build(None)(x)[1:]
        errors = [
            float(np.square(adapter.build(QuantConfig({op.name: choice}))(x)[1:] - expected).sum())
            for choice in (DYNAMIC, WEIGHTS)
        ]
        assert errors[1] < 0.01 * errors[0]


def test_a_tensor_that_only_dynamic_ops_read_is_quantized_once_for_all_of_them() -> None:
    net = Net()
    x = net.input(None, 16)
    model = net.model(net.Add(net.MatMul(x, weight(16, 8)), net.MatMul(x, weight(16, 8, seed=1))))
    with opened(model) as adapter:
        config = space(adapter).float_config()
        config = config.replace({op.name: DYNAMIC for op in adapter.ops() if op.kind == "MatMul"})
        kinds = [node.op_type for node in optimised(adapter.assemble(config).SerializeToString()).graph.node]
        assert kinds.count("DynamicQuantizeLinear") == 1
        assert kinds.count("MatMulIntegerToFloat") == 2
        assert "QuantizeLinear" not in kinds


@pytest.mark.parametrize(
    "shape",
    [{}, {"directions": 2}, {"states": True}, {"directions": 2, "states": True, "clip": 3.0}, {"layout": 0}],
    ids=str,
)
@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
def test_an_lstm_runs_in_8_bits_with_dynamic_ranges(shape: dict[str, Any], granularity: str) -> None:
    model = lstm(**shape)
    with opened(model) as adapter:
        (op,) = adapter.ops()
        assert op.kind == "LSTM" and op.choices[-1] == FLOAT
        config = QuantConfig({op.name: OpConfig(INT8, mode="dynamic", granularity=granularity)})
        assert kernels(adapter, config) == {op.name: "DynamicQuantizeLSTM"}
        assert 0 < deviation(model, adapter, config) < 0.1
        assert kernels(adapter, QuantConfig({op.name: FLOAT})) == {}
        assert deviation(model, adapter, QuantConfig({op.name: FLOAT})) < 1e-6
        assert adapter.assemble(config).size < 0.6 * adapter.assemble(None).size
        assert list(adapter.local_errors(config)) == [op.name]
        assert adapter.op_seconds(config)[op.name] > 0
        assert list(adapter.unquantizable()) == []


def test_only_a_model_with_ops_of_onnx_runtime_says_that_it_needs_them() -> None:
    with opened(lstm()) as adapter:
        (op,) = adapter.ops()
        domains = [
            [entry.domain for entry in adapter.assemble(config).model.opset_import]
            for config in (None, QuantConfig({op.name: FLOAT}), QuantConfig({op.name: DYNAMIC}))
        ]
    assert domains == [[""], [""], ["", "com.microsoft"]]


def test_an_lstm_whose_batch_comes_first_or_whose_weights_are_computed_stays_in_float() -> None:
    model = lstm(layout=1)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [2, "steps", 16]))
    net = Net()
    net.Relu(net.MatMul(net.input(None, 4), weight(4, 4)))
    model.graph.node.append(helper.make_node("Gemm", ["z", "g"], ["w"], "other"))
    model.graph.input.append(helper.make_tensor_value_info("z", 1, [None, 4]))
    model.graph.initializer.append(numpy_helper.from_array(weight(4, 3), "g"))
    model.graph.output.append(helper.make_tensor_value_info("w", 1, None))
    with opened(model, calibrate=False) as adapter:
        assert [op.kind for op in adapter.ops()] == ["Gemm"]
        assert [one.kind for one in adapter.unquantizable()] == ["LSTM"]


def test_a_weight_that_two_ops_read_is_not_offered_alone_in_8_bits() -> None:
    net = Net()
    shared = weight(8, 8)
    x = net.input(None, 8)
    model = net.model(net.MatMul(net.Tanh(net.MatMul(x, shared)), shared))
    for initializer in model.graph.initializer[1:]:
        if initializer.raw_data == model.graph.initializer[0].raw_data:
            for node in model.graph.node:
                for slot, name in enumerate(node.input):
                    if name == initializer.name:
                        node.input[slot] = model.graph.initializer[0].name
    with opened(model, calibrate=False) as adapter:
        assert [{choice.mode for choice in op.quantized_choices} for op in adapter.ops()] == [{"static", "dynamic"}] * 2


@pytest.mark.parametrize("mode", ["dynamic", "weight_only"])
@pytest.mark.parametrize("make", [attention, residual])
def test_every_mode_works_in_the_operator_format_too(make: Any, mode: str) -> None:
    net = Net()
    model = net.model(make(net))
    with opened(model) as plain, opened(model, quant_format="qoperator") as operators:
        config = space(plain).default_config(mode=mode)
        assert set(kernels(operators, config)) == set(config.int8_ops)
        feed = data(plain)[0]
        one, other = (adapter.build(config).session.run(None, feed)[0] for adapter in (plain, operators))
        assert np.abs(one - other).max() < 1e-3 * np.abs(one).max()


def test_a_repair_of_an_op_without_calibrated_ranges_is_refused() -> None:
    with opened(product("Gemm")) as adapter, pytest.raises(BuildError, match="needs calibrated activations"):
        adapter.assemble(QuantConfig({"op": replace(DYNAMIC, repairs=("any",))}))


def test_the_error_of_weights_needs_no_samples_and_tells_bad_ones() -> None:
    net = Net()
    bad = weight(16, 8, seed=1).copy()
    bad[0] *= 1000
    x = net.MatMul(net.input(None, 16), weight(16, 16), name="good")
    model = net.model(net.MatMul(x, bad.astype(np.float32), name="bad"))
    with opened(model, calibrate=False) as adapter:
        assert not adapter.probe_samples
        per_tensor = OpConfig(INT8, mode="dynamic", granularity="per_tensor")
        errors = weight_errors(adapter, QuantConfig({"good": DYNAMIC, "bad": FLOAT}))
        assert set(errors) == {"good"} and 0 < errors["good"] < 1e-3
        both = weight_errors(adapter, QuantConfig({"good": DYNAMIC, "bad": DYNAMIC}))
        assert both["good"] == errors["good"]
        assert weight_errors(adapter, QuantConfig({"good": DYNAMIC, "bad": per_tensor}))["bad"] >= both["bad"]


def test_a_model_is_the_same_when_it_is_restored_without_any_ranges() -> None:
    model = product("Gemm with transB")
    with opened(model) as calibrated, opened(model, calibrate=False) as bare:
        bare.restore({"ranges": {}})
        for choice in (DYNAMIC, WEIGHTS):
            config = QuantConfig({"op": choice})
            assert calibrated.assemble(config).sha256 == bare.assemble(config).sha256
        assert isinstance(bare, OnnxAdapter)
        with pytest.raises(BuildError, match="no minmax range"):
            bare.assemble(QuantConfig({"op": OpConfig(INT8)}))
