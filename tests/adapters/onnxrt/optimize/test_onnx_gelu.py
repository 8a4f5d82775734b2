"""GELU is recognised in both forms and any order, and is one kernel behind an int8 op, too."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import Net, opened, space, weight
from rewriting import Part, applied, between_convs, between_products, f32, kernels_are_right, kinds

from quaver.adapters.onnxrt.run import session as sessions

ROOT, INNER, CUBE = f32(math.sqrt(2)), f32(math.sqrt(2 / math.pi)), f32(0.044715)


def factor(net: Net, x: str, root: np.float32 = ROOT) -> str:
    return str(net.Add(net.Erf(net.Div(x, root)), f32(1)))


def tanh_factor(net: Net, x: str, cube: np.float32 = CUBE) -> str:
    inside = net.Mul(net.Add(x, net.Mul(net.Pow(x, f32(3)), cube)), INNER)
    return str(net.Add(net.Tanh(inside), f32(1)))


GELU: dict[str, Part] = {
    "(x * factor) * 0.5": lambda net, x: net.Mul(net.Mul(x, factor(net, x)), f32(0.5)),
    "(x * 0.5) * factor": lambda net, x: net.Mul(net.Mul(x, f32(0.5)), factor(net, x)),
    "x * (factor / 2)": lambda net, x: net.Mul(x, net.Div(factor(net, x), f32(2))),
    "erf of a product": lambda net, x: net.Mul(
        net.Mul(net.Add(f32(1), net.Erf(net.Mul(f32(1 / math.sqrt(2)), x))), x), f32(0.5)
    ),
    "tanh": lambda net, x: net.Mul(net.Mul(f32(0.5), x), tanh_factor(net, x)),
    "tanh with products for the cube": lambda net, x: net.Mul(
        x,
        net.Mul(
            f32(0.5),
            net.Add(f32(1), net.Tanh(net.Mul(INNER, net.Add(x, net.Mul(x, net.Mul(x, net.Mul(CUBE, x))))))),
        ),
    ),
    "tanh of x * (1 + x^2)": lambda net, x: net.Mul(
        net.Mul(x, f32(0.5)),
        net.Add(net.Tanh(net.Mul(net.Mul(x, INNER), net.Add(net.Mul(net.Mul(x, CUBE), x), f32(1)))), f32(1)),
    ),
}


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("which", GELU)
def test_gelu_is_one_node(which: str, opset: int) -> None:
    assert kinds(between_convs(GELU[which], opset)) == "Conv Gelu Conv"
    assert kinds(between_products(GELU[which], opset)) == "MatMul Add Gelu MatMul Add"


def test_the_opset_is_raised_for_gelu_and_logged() -> None:
    model = between_convs(GELU["tanh"], 13)
    assert applied(model) == {"newer opset": 1, "Gelu": 1}
    with opened(model, calibrate=False) as adapter:
        assert adapter.assemble(None).model.opset_import[0].version == 20
        assert [node.name for node in adapter._builder.graph.nodes] == ["Conv_0", "Mul_8", "Conv_9"]


@pytest.mark.parametrize("which", ["(x * factor) * 0.5", "tanh"])
def test_gelu_behind_an_int8_convolution_is_one_kernel(which: str) -> None:
    for on, count in ((False, 0), (True, 1)):
        with opened(between_convs(GELU[which]), optimise_float=on) as adapter, tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimised.onnx"
            options = sessions.options(1)
            options.optimized_model_filepath = str(path)
            sessions.create(adapter.assemble(space(adapter).default_config()).SerializeToString(), options)
            found = [node.op_type for node in onnx.load(path).graph.node]
            assert sum(kind.endswith("Gelu") for kind in found) == count


@pytest.mark.parametrize(
    "part",
    [
        lambda net, x: net.Mul(net.Mul(x, factor(net, x, f32(1.5))), f32(0.5)),
        lambda net, x: net.Mul(net.Mul(x, factor(net, x)), f32(0.4)),
        lambda net, x: net.Mul(net.Mul(net.Relu(x), factor(net, x)), f32(0.5)),
        lambda net, x: net.Mul(net.Mul(f32(0.5), x), tanh_factor(net, x, f32(0.05))),
        lambda net, x: net.Mul(x, tanh_factor(net, x)),
        lambda net, x: net.Mul(x, net.Add(net.Erf(x), f32(1))),
    ],
    ids=["another root", "times 0.4", "another x", "another cube", "not halved", "erf of x"],
)
def test_a_chain_similar_to_gelu_stays(part: Part) -> None:
    assert "Gelu" not in kinds(between_convs(part, 20))


def test_a_chain_with_an_inner_output_stays() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    y = net.Conv(GELU["(x * factor) * 0.5"](net, x), weight(4, 4, 1, 1))
    for kind in ("Erf", "Add"):
        step = next(node.output[0] for node in net.nodes if node.op_type == kind)
        assert "Gelu" not in kinds(net.model(y, step, opset=20))


def test_a_model_with_bodies_stays_at_its_opset() -> None:
    """The converter does not look into them."""
    net, then, other = Net(), Net(), Net()
    x = net.Conv(GELU["tanh"](net, net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))), weight(4, 4, 1, 1))
    bodies = {"then_branch": then.graph(then.Neg(x)), "else_branch": other.graph(other.Abs(x))}
    flag = net.Greater(net.ReduceSum(x, keepdims=0), f32(0))
    model = net.model(net.If(flag, **bodies), opset=17)
    with opened(model, calibrate=False) as adapter:
        assert adapter.assemble(None).model.opset_import[0].version == 17
    assert "Tanh" in kinds(model)


@pytest.mark.parametrize("which", ["(x * factor) * 0.5", "tanh"])
def test_kernels_around_gelu_match_the_configuration(which: str) -> None:
    kernels_are_right(between_convs(GELU[which]))
    kernels_are_right(between_products(GELU[which]))
