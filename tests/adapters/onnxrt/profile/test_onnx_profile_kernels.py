"""What `units.py` takes for granted of the installed ONNX Runtime. `python -m benchmarks.kernels` shows all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx_models import Net, weight
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from quaver.adapters.onnxrt.ops.unit import FUSED_BY_ORT
from quaver.adapters.onnxrt.profile.kernels import INTEGER_KERNELS, integer_kernels, optimised, plain_name

IMAGE = (1, 4, 8, 8)


def sandwich(make: Callable[[Net, list[str]], str], inputs: int = 1, guard: bool = False) -> bytes:
    """An op between DequantizeLinear and QuantizeLinear, with a one-input Max on its first input if guarded."""
    net = Net()
    by = (net.constant(np.float32(0.02)), net.constant(np.uint8(128)))
    names = [net.input(*IMAGE, name=f"x{i}") for i in range(inputs)]
    read = [net.DequantizeLinear(net.QuantizeLinear(name, *by), *by) for name in names]
    if guard:
        read[0] = net.Max(read[0])
    return net.model(net.DequantizeLinear(net.QuantizeLinear(make(net, read), *by), *by)).SerializeToString()


def plain(op: str, *constants: Any, **attributes: Any) -> Callable[[Net, list[str]], str]:
    return lambda net, read: net.add(op, *read, *constants, name="op", **attributes)


FUSED: dict[str, tuple[Callable[[Net, list[str]], str], int]] = {
    "Add": (plain("Add"), 2),
    "AveragePool": (plain("AveragePool", kernel_shape=[2, 2]), 1),
    "Concat": (plain("Concat", axis=1), 2),
    "Conv": (plain("Conv", weight(4, 4, 1, 1), weight(4)), 1),
    "ConvTranspose": (plain("ConvTranspose", weight(4, 4, 1, 1)), 1),
    "Gemm": (lambda net, read: net.Gemm(net.Reshape(read[0], np.array([-1, 8])), weight(8, 8), name="op"), 1),
    "GlobalAveragePool": (plain("GlobalAveragePool"), 1),
    "LeakyRelu": (plain("LeakyRelu"), 1),
    "MatMul": (plain("MatMul"), 2),
    "Mul": (plain("Mul"), 2),
    "Sigmoid": (plain("Sigmoid"), 1),
    "Softmax": (plain("Softmax"), 1),
    "Where": (lambda net, read: net.Where(np.array([True, False] * 4), *read, name="op"), 2),
}
NOT_FUSED = {
    "Clip": plain("Clip", np.float32(-1), np.float32(1)),
    "MatMul with a float weight": plain("MatMul", weight(8, 8)),
    "Add of a constant": plain("Add", weight(4, 1, 1)),
    **{
        op: plain(op) for op in ("Relu", "Tanh", "HardSwish", "Elu", "Erf", "Exp", "GlobalMaxPool", "LogSoftmax", "Neg")
    },
    "LayerNormalization": plain("LayerNormalization", weight(8), weight(8)),
    "InstanceNormalization": plain("InstanceNormalization", weight(4), weight(4)),
    "Resize": plain("Resize", "", np.array([1, 1, 2, 2], np.float32), mode="linear"),
    "Pad": plain("Pad", np.array([0, 0, 1, 1, 0, 0, 1, 1])),
    "ReduceMean": plain("ReduceMean"),
}


def weights_quantized(model: bytes) -> bool:
    nodes = optimised(model).graph.node
    return any(node.op_type == "ConvTranspose" and not node.input[1].startswith("c") for node in nodes)


def test_every_op_in_the_table_of_fused_ops_is_tried() -> None:
    assert set(FUSED) == set(FUSED_BY_ORT)


@pytest.mark.parametrize("op", FUSED)
def test_an_op_fuses_by_itself_and_a_guard_prevents_it(op: str) -> None:
    make, inputs = FUSED[op]
    bare, guarded = sandwich(make, inputs), sandwich(make, inputs, guard=True)
    if op == "ConvTranspose":  # no integer kernel, but its weight is quantized behind our back
        assert weights_quantized(bare) and not weights_quantized(guarded)
    else:
        assert list(integer_kernels(bare, ["op"])) == ["op"]
        assert integer_kernels(guarded, ["op"]) == {}


@pytest.mark.parametrize("op", NOT_FUSED)
def test_an_op_needs_no_guard(op: str) -> None:
    assert integer_kernels(sandwich(NOT_FUSED[op]), ["op"]) == {}


def test_a_guard_is_exact_and_stays() -> None:
    net = Net()
    model = net.model(
        net.Relu(net.Max(net.Conv(net.input(*IMAGE), weight(4, 4, 1, 1)), name="guard"))
    ).SerializeToString()
    assert [node.op_type for node in optimised(model).graph.node if plain_name(node.name) == "guard"] == ["Max"]


def test_kernels_that_compute_on_integers_are_all_known() -> None:
    """A new runtime may bring new ones, which would then go unseen."""
    schemas = {(schema.domain, schema.name) for schema in get_all_operator_schema()}
    names = {name for domain, name in schemas if domain in ("", "com.microsoft") and name.startswith("QLinear")}
    assert "QLinearConv" in names and names < INTEGER_KERNELS


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("conv_nchwc", "conv"),
        ("conv_token_12", "conv"),
        ("a_token_3_nchwc", "a"),
        ("token_1", "token_1"),
        ("c_2", "c_2"),
    ],
)
def test_suffixes_of_the_optimiser_are_removed_from_names(name: str, plain: str) -> None:
    assert plain_name(name) == plain
