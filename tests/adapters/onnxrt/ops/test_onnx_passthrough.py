"""Ops that hand on what they read do so in integers between int8 ops, with the scale they found, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnx_models import Array, Net, data, deviation, kernels, opened, space, tensor, weight

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.profile.kernels import optimised
from quaver.adapters.options import TimingOptions
from quaver.affine import as_float
from quaver.errors import BuildError
from quaver.ops import FLOAT, INT8, OpConfig, QuantConfig

f32 = np.float32
AROUND = np.array([0, 0, 1, 2, 0, 0, 0, 1])

CARRIERS: dict[str, tuple[Callable[[Net, str], str], str]] = {
    "Relu": (lambda net, x: net.Relu(x, name="op"), "Clip"),
    "Clip": (lambda net, x: net.Clip(x, f32(0.2), f32(0.7), name="op"), "Clip"),
    "Clip without maximum": (lambda net, x: net.Clip(x, f32(0.3), name="op"), "Clip"),
    "Clip without minimum": (lambda net, x: net.Clip(x, "", f32(0.3), name="op"), "Clip"),
    "Clip at what no number reaches": (lambda net, x: net.Clip(x, f32(0.2), f32(1e30), name="op"), "Clip"),
    "Max": (lambda net, x: net.Max(x, f32(0.4), name="op"), "Clip"),
    "Max, the number first": (lambda net, x: net.Max(np.full((1, 1), 0.4, f32), x, name="op"), "Clip"),
    "Min": (lambda net, x: net.Min(x, f32(0.4), name="op"), "Clip"),
    "Pad": (lambda net, x: net.Pad(x, AROUND, name="op"), "Pad"),
    "Pad, zero said": (lambda net, x: net.Pad(x, AROUND, f32(0), name="op"), "Pad"),
    "Pad by the edge": (lambda net, x: net.Pad(x, AROUND, mode="edge", name="op"), "Pad"),
    "Pad by reflection": (lambda net, x: net.Pad(x, AROUND, mode="reflect", name="op"), "Pad"),
    "GlobalMaxPool": (lambda net, x: net.GlobalMaxPool(x, name="op"), "ReduceMax"),
    "ReduceMax": (lambda net, x: net.ReduceMax(x, axes=[3], keepdims=1, name="op"), "ReduceMax"),
    "ReduceMin": (lambda net, x: net.ReduceMin(x, axes=[1, 2], name="op"), "ReduceMin"),
    "SpaceToDepth": (lambda net, x: net.SpaceToDepth(x, blocksize=2, name="op"), "SpaceToDepth"),
}


def between(make: Callable[[Net, str], str], opset: int = 17) -> onnx.ModelProto:
    """An op that reads what an int8 op wrote, and that an int8 op reads. Nothing can be folded into either."""
    net = Net()
    x = net.LeakyRelu(net.input(None, 4, 6, 6), alpha=0.3, name="before")
    return net.model(net.Sigmoid(make(net, x), name="after"), x, opset=opset)


def definition(model: onnx.ModelProto, x: Array) -> Array:
    """What the float op makes of the dequantized tensor."""
    node = next(node for node in model.graph.node if node.name == "op")
    read = next(name for name in node.input if name.startswith("before"))
    inputs = [onnx.helper.make_tensor_value_info(read, TensorProto.FLOAT, x.shape)]
    outputs = [onnx.helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph([node], "one", inputs, outputs, list(model.graph.initializer))
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    return onnxruntime.InferenceSession(alone.SerializeToString()).run(None, {read: x})[0]


@pytest.mark.parametrize("which", CARRIERS)
def test_integers_are_those_of_the_definition(which: str) -> None:
    """By QuantizeLinear(op(DequantizeLinear(x))) with one scale."""
    make, kernel = CARRIERS[which]
    model = between(make)
    with opened(model) as adapter:
        for scheme in ("asym", "sym"):
            config = space(adapter).default_config(scheme=scheme)
            assert kernels(adapter, config)["op"] == kernel
            given = data(adapter)[0]
            seen = adapter.inspect_quantized(config).quantized(["before", "op"])(given).ops
            parameters = seen["before"].parameters
            assert seen["op"].parameters == parameters
            real = definition(model, as_float(seen["before"]))
            expected = np.rint(real / parameters.scale) + parameters.zero_point
            assert np.array_equal(seen["op"].values, np.clip(expected, 0, 255))


@pytest.mark.parametrize("which", CARRIERS)
def test_a_passthrough_op_in_fp32_is_the_original_node(which: str) -> None:
    make, _ = CARRIERS[which]
    with opened(between(make)) as adapter:
        ops = space(adapter)
        config = ops.default_config().fallback("op")
        assert set(kernels(adapter, config)) == {"before", "after"}
        kinds = [node.op_type for node in optimised(adapter.assemble(config).SerializeToString()).graph.node]
        assert kinds.count("QuantizeLinear") == 2  # the input, and what comes out of the op
        assert [op.name for op in ops.ops] == ["before", "op", "after"]


@pytest.mark.parametrize("which", CARRIERS)
def test_no_conversion_remains_around_a_passthrough_op(which: str) -> None:
    make, _ = CARRIERS[which]
    with opened(between(make)) as adapter:
        config = space(adapter).default_config()
        kinds = [node.op_type for node in optimised(adapter.assemble(config).SerializeToString()).graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (1, 2)  # the input, the two outputs


@pytest.mark.parametrize("opset", [13, 18, 20])
def test_the_largest_of_all_places_is_found_in_any_opset(opset: int) -> None:
    with opened(between(CARRIERS["GlobalMaxPool"][0], opset)) as adapter:
        config = space(adapter).default_config()
        assert kernels(adapter, config)["op"] == "ReduceMax"
        model = adapter.assemble(config)
        onnx.checker.check_model(model.SerializeToString(), full_check=True)


def test_consecutive_passthrough_ops_share_one_scale() -> None:
    net = Net()
    x = net.LeakyRelu(net.input(None, 4, 6, 6), name="before")
    x = net.Pad(net.Max(net.Transpose(x, perm=[0, 1, 3, 2]), f32(-0.2), name="max"), AROUND, name="pad")
    model = net.model(net.Sigmoid(net.Relu(net.Reshape(x, np.array([0, -1])), name="relu"), name="after"))
    with opened(model) as adapter:
        ops = space(adapter)
        rng = np.random.default_rng(0)
        for _ in range(8):
            names = [op.name for op in ops.ops if rng.random() < 0.7]
            config = ops.only_int8(*names)
            assert set(kernels(adapter, config)) == set(names)
            adapter.build(config).close()
        seen = (
            adapter.inspect_quantized(ops.default_config())
            .quantized(["before", "max", "pad", "relu"])(data(adapter)[0])
            .ops
        )
        assert len({found.parameters for found in seen.values()}) == 1


def test_passthrough_ops_are_offered_only_between_int8_ops() -> None:
    net = Net()
    x = net.Sigmoid(net.Relu(net.Tanh(net.input(None, 4, 6, 6)), name="float before"))
    model = net.model(net.Tanh(net.Relu(x, name="float behind")))
    with opened(model) as adapter:
        assert [op.kind for op in adapter.ops()] == ["Sigmoid"]


def test_version_1_of_the_ops_has_only_those_of_0_1_0() -> None:
    with opened(between(CARRIERS["Pad"][0]), ops_version=1) as adapter:
        assert [op.name for op in adapter.ops()] == ["before", "after"]


def test_which_ops_there_are_does_not_depend_on_rewrites() -> None:
    with opened(between(CARRIERS["Pad"][0]), optimise_float=False) as adapter:
        assert len(adapter.ops()) == 3


@pytest.mark.parametrize(
    ("kind", "number"), [("Add", 0.3), ("Add", -7.5), ("Mul", 0.8), ("Mul", -2.5), ("Add", 1e-30), ("Mul", 1e3)]
)
def test_a_constant_number_operand_is_exact(kind: str, number: float) -> None:
    def make(net: Net, x: str) -> str:
        return str(net.add(kind, *((x, f32(number)) if number < 1 else (np.array([number], f32), x)), name="op"))

    model = between(make)
    with opened(model) as adapter:
        config = space(adapter).default_config()
        assert kernels(adapter, config)["op"] == f"QLinear{kind}"
        assert set(kernels(adapter, config.fallback("op"))) == {"before", "after"}
        seen = adapter.inspect_quantized(config).quantized(["before", "op"])(data(adapter)[0]).ops
        parameters = seen["op"].parameters
        real = definition(model, as_float(seen["before"]))
        expected = np.clip(np.rint(real / parameters.scale) + parameters.zero_point, 0, 255)
        assert np.abs(seen["op"].values.astype(int) - expected).max() <= 1  # halves are rounded either way


def test_a_choice_of_two_activations_is_exact() -> None:
    net = Net()
    x = net.LeakyRelu(net.input(None, 4, 6, 6), alpha=0.3, name="before")
    mask = np.random.default_rng(0).random((4, 6, 6)) > 0.5
    net.Where(mask, x, net.Sigmoid(x, name="other"), name="op", outputs=["chosen"])
    model = net.model(net.Sigmoid("chosen", name="after"))
    with opened(model) as adapter:
        config = space(adapter).default_config()
        assert kernels(adapter, config)["op"] == "QLinearWhere"
        assert set(kernels(adapter, config.fallback("op"))) == {"before", "other", "after"}
        seen = adapter.inspect_quantized(config).quantized(["before", "other", "op"])(data(adapter)[0]).ops
        parameters = seen["op"].parameters
        real = np.where(mask, as_float(seen["before"]), as_float(seen["other"]))
        expected = np.clip(np.rint(real / parameters.scale) + parameters.zero_point, 0, 255)
        assert np.abs(seen["op"].values.astype(int) - expected).max() <= 1


def test_an_op_before_a_softmax_stays_float() -> None:
    net = Net()
    x = net.Sigmoid(net.input(None, 4, 6, 6))
    chosen = net.Where(np.ones((6, 6), bool), x, net.LeakyRelu(x))
    net.Softmax(chosen, outputs=["p"])
    model = net.model(net.Sigmoid(net.Add(chosen, "p")))
    with opened(model) as adapter:
        assert "Where" not in [op.kind for op in adapter.ops()]


@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_mean_of_an_image_is_a_pooling(keepdims: int) -> None:
    model = between(lambda net, x: net.ReduceMean(x, axes=[2, 3], keepdims=keepdims, name="op"))
    with opened(model) as adapter:
        config = space(adapter).default_config()
        assert kernels(adapter, config)["op"] == "QLinearGlobalAveragePool"
        assert set(kernels(adapter, config.fallback("op"))) == {"before", "after"}
        seen = adapter.inspect_quantized(config).quantized(["before", "op"])(data(adapter)[0]).ops
        parameters = seen["op"].parameters
        real = definition(model, as_float(seen["before"]))
        expected = np.clip(np.rint(real / parameters.scale) + parameters.zero_point, 0, 255)
        assert seen["op"].values.shape == real.shape
        assert np.abs(seen["op"].values.astype(int) - expected).max() <= 1


def test_passthrough_ops_cannot_be_repaired() -> None:
    with opened(between(CARRIERS["Pad"][0])) as adapter:
        config = space(adapter).all_fp32().replace({"op": OpConfig(INT8, repairs=("bias_correction",))})
        with pytest.raises(BuildError, match="cannot be applied to op 'op', which is a Pad"):
            adapter.build(config)


@pytest.mark.parametrize("which", ["Max", "Pad", "GlobalMaxPool", "SpaceToDepth"])
def test_diagnosis_sees_passthrough_ops(which: str, tmp_path: Path) -> None:
    model = between(CARRIERS[which][0])
    with opened(model) as adapter:
        config = space(adapter).default_config()
        assert set(adapter.local_errors(config)) == {"before", "op", "after"}
        path = adapter.assemble(config).save(tmp_path / "int8.onnx")
        by_config, by_file = adapter.inspect_quantized(config), adapter.inspect_quantized(path)
        assert dict(by_file.precisions) == dict.fromkeys(config, "int8")
        given = data(adapter)[0]
        for view in (by_config, by_file):
            assert view.contexts()["op"].writes is not None
        for ask in (lambda view: view.quantized(["op"])(given).ops["op"], _local(given)):
            assert np.array_equal(as_float(ask(by_config)), as_float(ask(by_file)))
        timing = OnnxAdapter.profile(path, None, TimingOptions(1, 1, warmup=1, runs=3), adapter)
        assert timing.precisions["op"] == "int8"


def _local(given: dict[str, Array]) -> Callable[[Any], Any]:
    return lambda view: view.local(["op"], [])(given).ops["op"][1]


def test_the_qoperator_format_has_passthrough_ops() -> None:
    with opened(between(CARRIERS["Pad"][0]), quant_format="qoperator") as adapter:
        model = adapter.build(QuantConfig({"before": FLOAT} | dict.fromkeys(["op", "after"], OpConfig(INT8))))
        pad = next(node for node in model.model.graph.node if node.op_type == "Pad")
        assert pad.name == "op"


@pytest.mark.parametrize(
    ("attributes", "is_offered"),
    [
        ({"kernel_shape": [2, 2]}, True),
        ({"kernel_shape": [2, 2], "dilations": [2, 2]}, False),
        ({"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, True),
        ({"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1}, False),
        ({"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 2, 2], "ceil_mode": 1}, False),
    ],
)
def test_an_average_pool_is_offered_where_the_integer_kernel_computes_the_same(
    attributes: dict[str, Any], is_offered: bool
) -> None:
    net = Net()
    x = net.AveragePool(net.Conv(net.input(2, 4, 9, 9), weight(4, 4, 1, 1)), **attributes)
    model = net.model(tensor(net.Conv(x, weight(4, 4, 1, 1)), 2, 4, None, None), opset=19, ir=9)
    with opened(model) as adapter:
        ops = space(adapter)
        assert ("AveragePool_1" in ops) is is_offered
        assert deviation(model, adapter) < 1e-6
        assert deviation(model, adapter, ops.default_config()) < 0.05


def test_a_cubic_resize_that_shrinks_stays_between_int8_convolutions() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    smaller = net.Resize(x, "", np.array([1, 1, 0.5, 0.5], np.float32), mode="cubic")
    model = net.model(net.Conv(smaller, weight(4, 4, 1, 1)))
    with opened(model) as adapter:
        config = space(adapter).default_config()
        assert deviation(model, adapter, config) < 0.05
        assert set(kernels(adapter, config)) == {"Conv_0", "Conv_2"}


@pytest.mark.parametrize("bound", [-9.0, 9.0])
def test_a_bound_outside_the_range_of_what_is_read_is_the_result(bound: float) -> None:
    """The op hands on one number, which the scale of its input would not hold."""
    model = between(lambda net, x: (net.Max if bound > 0 else net.Min)(net.Relu(x), f32(bound), name="op"))
    with opened(model) as adapter:
        config = space(adapter).only_int8("op")
        result = adapter.record_outputs(config, ["op"])(data(adapter)[0])["op"]
        assert np.allclose(result, bound, atol=0.05)
