"""What is rewritten before any op is quantized leaves the outputs as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import Array, Net, as_given, data, deviation, kernels, opened, space, tensor, weight

from quaver.adapters import AdapterOptions
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.errors import ModelError


def op_types(adapter: OnnxAdapter) -> list[str]:
    return [node.op_type for node in adapter.assemble(None).model.graph.node]


def bn_constants(channels: int, seed: int = 0) -> list[Array]:
    """Scale, shift, mean and variance, all away from the neutral values."""
    scale, shift, mean, variance = (weight(channels, seed=seed + i) for i in range(4))
    return [scale + np.float32(1.5), shift, mean, np.abs(variance) + np.float32(0.2)]


# --- old opsets ---


def old_model(opset: int) -> onnx.ModelProto:
    """What exporters wrote: BatchNormalization, Clip with attributes, Upsample, Squeeze with axes, Dropout."""
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(8, 4, 3, 3), weight(8), pads=[1, 1, 1, 1])
    x = net.BatchNormalization(x, *bn_constants(8))
    x = net.Clip(x, np.float32(0), np.float32(6)) if opset >= 11 else net.Clip(x, min=0.0, max=6.0)
    if opset == 9:
        x = net.Upsample(x, np.array([1, 1, 2, 2], np.float32), mode="nearest")
    elif opset == 10:
        x = net.Resize(x, np.array([1, 1, 2, 2], np.float32), mode="nearest")
    else:
        options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        x = net.Resize(x, np.array([], np.float32), np.array([1, 1, 2, 2], np.float32), mode="nearest", **options)
    x = net.Squeeze(net.GlobalAveragePool(net.Conv(x, weight(6, 8, 1, 1))), axes=[2, 3])
    x = net.Softmax(net.Gemm(net.Dropout(x, ratio=0.5) if opset < 12 else x, weight(6, 3), weight(3)), axis=1)
    return net.model(x, opset=opset, ir=4)


@pytest.mark.parametrize("opset", [9, 10, 11, 12])
def test_an_old_opset_is_converted_and_computes_the_same(opset: int, tmp_path: Path) -> None:
    model = old_model(opset)
    model.metadata_props.add(key="labels", value="cat,dog")
    with opened(model) as adapter:
        assert [op.kind for op in adapter.ops()] == ["Conv", "Conv", "GlobalAveragePool", "Gemm"]
        assert deviation(model, adapter) < 1e-5
        config = space(adapter).default_config()
        assert set(kernels(adapter, config)) == set(config.int8_ops)
        assert deviation(model, adapter, config) < 0.05
        built = adapter.assemble(config).model
        assert built.opset_import[0].version == 17
        assert built.metadata_props[0].value == "cat,dog"


def test_an_old_opset_with_external_data_is_converted(tmp_path: Path) -> None:
    model = old_model(11)
    path = tmp_path / "model.onnx"
    onnx.save_model(old_model(11), path, save_as_external_data=True, location="data", size_threshold=0)
    with opened(path) as one, opened(model) as other:
        config = space(one).default_config()
        assert one.fingerprint == other.fingerprint
        assert one.assemble(config).SerializeToString() == other.assemble(config).SerializeToString()


def test_a_failing_conversion_says_what_to_do() -> None:
    net = Net()
    x = net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1))
    model = net.model(tensor(net.Unheard(x), 1, 4, 8, 8), opset=11)
    with pytest.raises(ModelError, match=r"of opset 11; per-channel int8 needs 13, .*Unheard.* Export it again with"):
        OnnxAdapter.load(model, AdapterOptions())


# --- constants ---


def test_constants_are_found_wherever_they_hide() -> None:
    net = Net()
    kernel = net.Constant(value=onnx.numpy_helper.from_array(weight(8, 4, 3, 3), ""))
    x = net.Conv(net.input(2, 4, 8, 8), kernel, net.Identity(net.Cast(weight(8).astype(np.float64), to=1)))
    x = net.Reshape(x, net.Constant(value_ints=[0, 8, -1]))
    x = net.MatMul(x, net.Transpose(net.Reshape(weight(60 * 6), np.array([10, 36])), perm=[1, 0]))
    model = net.model(net.Mul(x, net.Constant(value_float=0.5)))
    with opened(model) as adapter:
        assert op_types(adapter) == ["Conv", "Reshape", "MatMul"]
        assert deviation(model, adapter) < 1e-6
        assert list(kernels(adapter, space(adapter).default_config())) == ["Conv_3", "MatMul_8"]


def test_initializers_listed_as_inputs_are_constants() -> None:
    net = Net()
    model = net.model(net.Conv(net.input(2, 4, 8, 8), weight(8, 4, 3, 3), weight(8)))
    with opened(model) as plain:
        expected = plain.assemble(space(plain).default_config()).SerializeToString()
    model.graph.input.extend(tensor(entry.name, *entry.dims) for entry in model.graph.initializer)
    with opened(model) as adapter:
        assert [spec.name for spec in adapter.inputs] == ["x"]
        assert adapter.assemble(space(adapter).default_config()).SerializeToString() == expected


@pytest.mark.parametrize("constant", [np.float32(1), np.ones(1, np.float32), np.ones((1, 1, 1), np.float32)], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_multiplication_by_one_is_dropped(constant: Array, side: str) -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(8, 4, 1, 1))
    x = net.Mul(x, constant) if side == "right" else net.Mul(constant, x)
    x = net.Conv(net.Add(net.Div(x, np.float32(1)), np.float32(0)), weight(4, 8, 1, 1))
    model = net.model(net.Relu(net.Sub(x, np.float32(0))))
    with opened(model) as adapter:
        assert op_types(adapter) == ["Conv", "Conv", "Relu"]
        assert deviation(model, adapter) == 0


@pytest.mark.parametrize("op", ["Sub", "Div"])
def test_one_minus_x_and_one_over_x_are_not_dropped(op: str) -> None:
    net = Net()
    x = net.Sigmoid(net.Gemm(net.input(2, 4), weight(4, 4)))
    model = net.model(net.add(op, np.float32({"Sub": 0, "Div": 1}[op]), x))
    with opened(model) as adapter:
        assert op_types(adapter) == ["Gemm", "Sigmoid", op]
        assert deviation(model, adapter) == 0


def test_a_multiplication_by_one_that_adds_an_axis_stays() -> None:
    net = Net()
    x = net.input(2, 4)
    vector = net.Mul(net.ReduceMean(x, keepdims=0), np.ones(1, np.float32))
    model = net.model(net.Gemm(x, weight(4, 3)), net.Neg(vector))
    with opened(model) as adapter:
        assert adapter.build(None)(data(adapter)[0])[1].shape == (1,)


# --- what follows a convolution ---

CONVOLUTIONS: dict[str, tuple[str, Array, dict[str, Any]]] = {
    "Conv": ("Conv", weight(8, 4, 3, 3), {}),
    "grouped Conv": ("Conv", weight(8, 2, 3, 3), {"group": 2}),
    "depthwise Conv": ("Conv", weight(8, 1, 3, 3), {"group": 4}),
    "ConvTranspose": ("ConvTranspose", weight(4, 8, 3, 3), {"strides": [2, 2]}),
    "grouped ConvTranspose": ("ConvTranspose", weight(4, 4, 3, 3), {"group": 2}),
}
FOLLOWERS: dict[str, Callable[[Net, str], str]] = {
    "BatchNormalization": lambda net, x: net.BatchNormalization(x, *bn_constants(8), epsilon=1e-3),
    "Add [C,1,1]": lambda net, x: net.Add(x, weight(8, 1, 1)),
    "Mul [1,C,1,1]": lambda net, x: net.Mul(x, weight(1, 8, 1, 1)),
    "Mul, Add and BatchNormalization": lambda net, x: net.BatchNormalization(
        net.Add(weight(8, 1, 1, seed=2), net.Mul(x, weight(8, 1, 1))), *bn_constants(8)
    ),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_scaling_and_shifting_channels_is_folded_into_the_convolution(
    convolution: str, follower: str, bias: bool
) -> None:
    op, kernel, attributes = CONVOLUTIONS[convolution]
    net = Net()
    x = net.add(op, net.input(2, 4, 8, 8), kernel, *([weight(8)] if bias else []), **attributes)
    model = net.model(net.Conv(FOLLOWERS[follower](net, x), weight(4, 8, 1, 1)))
    with opened(model) as adapter:
        assert op_types(adapter) == [op, "Conv"]
        assert deviation(model, adapter) < 1e-5


@pytest.mark.parametrize(
    "follower",
    [
        lambda net, x: net.Add(x, weight(8)),  # along the width
        lambda net, x: net.Mul(x, weight(8, 8, 8)),
        lambda net, x: net.Mul(x, weight(2, 1, 1, 1)),
        lambda net, x: net.Add(x, x),
        lambda net, x: net.Mul(x, net.input(8, 1, 1, name="factor")),
    ],
    ids=["a row", "a whole map", "a batch", "itself", "an input"],
)
def test_a_node_that_does_more_than_scale_channels_is_not_folded(follower: Callable[[Net, str], str]) -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(8, 4, 1, 1))
    model = net.model(net.Relu(follower(net, x)))
    with opened(model) as adapter:
        assert op_types(adapter)[0] == "Conv" and len(op_types(adapter)) == 3
        assert deviation(model, adapter) < 1e-6


def test_a_convolution_whose_output_is_read_elsewhere_keeps_its_batch_norm() -> None:
    net = Net()
    x = net.input(2, 4, 8, 8)
    given, read = net.Conv(x, weight(8, 4, 1, 1)), net.Conv(x, weight(8, 4, 1, 1, seed=1))
    both = net.Add(net.BatchNormalization(given, *bn_constants(8)), net.BatchNormalization(read, *bn_constants(8)))
    model = net.model(both, given, net.Relu(read))
    with opened(model) as adapter:
        assert op_types(adapter).count("BatchNormalization") == 2
        assert deviation(model, adapter) < 1e-6


def test_a_shared_weight_is_folded_for_each_convolution_alone() -> None:
    net = Net()
    kernel, x = net.constant(weight(4, 4, 3, 3)), net.input(2, 4, 8, 8)
    for i in range(3):
        x = net.Conv(x, kernel, pads=[1, 1, 1, 1])
        x = net.BatchNormalization(x, *bn_constants(4, seed=i)) if i < 2 else x
    model = net.model(x)
    with opened(model) as adapter:
        assert op_types(adapter) == ["Conv"] * 3
        assert deviation(model, adapter) < 1e-5
        assert len(kernels(adapter, space(adapter).default_config())) == 3


def test_folding_takes_no_name_that_is_in_use() -> None:
    """Exporters call a BatchNormalization's constants after its output, and models share them."""
    net = Net()
    names = ["y.weight", "y.bias", "y.mean", "y.var"]
    constants = [net.constant(value, name) for name, value in zip(names, bn_constants(4), strict=True)]
    y = net.BatchNormalization(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)), *constants, outputs=["y"])
    z = net.BatchNormalization(net.Conv(y, weight(4, 4, 1, 1, seed=1)), *constants, outputs=["z"])
    flat = net.Reshape(z, np.array([0, -1]), outputs=["z.weight"])
    product = net.Add(net.MatMul(flat, weight(256, 4)), net.constant(weight(4), "p.bias"), outputs=["p"])
    model = net.model(net.Mul(product, "p.bias"))
    with opened(model) as adapter:
        assert op_types(adapter) == ["Conv", "Conv", "Reshape", "Gemm"]
        assert deviation(model, adapter) < 1e-5


# --- matrix products ---


def test_a_flat_matrix_product_and_its_bias_become_one_gemm() -> None:
    net = Net()
    x = net.Relu(net.Add(net.MatMul(net.input(None, 8), weight(8, 6)), weight(6)))
    model = net.model(net.Add(weight(1, 3), net.MatMul(x, weight(6, 3))))
    with opened(model) as adapter:
        assert op_types(adapter) == ["Gemm", "Relu", "Gemm"]
        assert deviation(model, adapter) < 1e-6


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_a_matrix_product_of_other_numbers_is_left_alone(dtype: Any) -> None:
    net = Net()
    x = net.input(2, 4)
    other = net.Cast(x, to=int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
    product = net.Add(net.MatMul(other, np.ones((4, 3), dtype)), np.ones(3, dtype))
    model = net.model(net.Gemm(net.Cast(product, to=1), weight(3, 2)))
    with opened(model) as adapter:
        assert [op.name for op in adapter.ops()] == ["Gemm_4"]
        assert deviation(model, adapter) == 0


# --- names ---


def test_nameless_and_repeated_nodes_get_names_that_stay() -> None:
    net = Net()
    x = net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1), name="", outputs=["first"])
    x = net.Conv(x, weight(4, 4, 1, 1), name="twin", outputs=["second"])
    x = net.Conv(x, weight(4, 4, 1, 1), name="twin", outputs=["third"])
    x = net.Conv(x, weight(4, 4, 1, 1), name="", outputs=["fourth"])
    model = net.model(net.Conv(x, weight(4, 4, 1, 1), name="fourth", outputs=["fifth"]))
    with opened(model) as one, opened(model.SerializeToString()) as other:
        names = [op.name for op in one.ops()]
        assert names == ["first", "twin", "third", "fourth_2", "fourth"]
        assert [op.name for op in other.ops()] == names
        assert list(kernels(one, space(one).default_config())) == names


@pytest.mark.parametrize(
    "name", ["größe 重み", "a b", "[x]{y}(z)*", "a|b", "||", "x|q", "two\nlines", "tab\t", "'\"", "a\\b", "%s", "a/b:0"]
)
def test_odd_names_are_kept_and_never_clash(name: str) -> None:
    net = Net()
    kernel = net.constant(weight(4, 4, 1, 1), f"w{name}")
    x = net.input(2, 4, 8, 8, name=f"in{name}")
    x = net.Relu(net.Conv(x, kernel, name=name, outputs=[name]), outputs=[f"{name}|dq"])
    model = net.model(net.Conv(x, kernel, weight(4), name=f"{name}|q", outputs=[f"{name}|scale"]))
    with opened(model) as adapter:
        config = space(adapter).default_config()
        assert config.int8_ops == (name, f"{name}|q")
        assert set(kernels(adapter, config)) == set(config.int8_ops)
        built = adapter.assemble(config)
        onnx.checker.check_model(built.SerializeToString(), full_check=True)
        assert [value.name for value in built.model.graph.output] == [f"{name}|scale"]
        assert deviation(model, adapter, config) < 0.05


def test_outputs_equal_those_of_a_plain_session() -> None:
    """The yardstick of this file: a wrong rewrite must not look equal."""
    net = Net()
    model = net.model(net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1)))
    with opened(model) as adapter:
        feed = data(adapter)[0]
        expected = np.einsum("oi,bihw->bohw", weight(4, 4, 1, 1)[:, :, 0, 0], feed["x"])
        assert np.allclose(as_given(model, feed)[0], expected, atol=1e-5)
        assert deviation(model, adapter, space(adapter).default_config()) > 1e-4
