"""LayerNormalization is recognised along the last axis, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import Net, opened, weight
from rewriting import Part, between_products, f32, kernels_are_right, kinds


def mean(net: Net, x: str, opset: int, axis: int = -1) -> str:
    return str(net.ReduceMean(x, np.array([axis])) if opset >= 18 else net.ReduceMean(x, axes=[axis]))


def norm(
    square: str = "Pow",
    opset: int = 17,
    axis: int = -1,
    scale: Any = None,
    shift: bool = True,
    exponent: float = 2,
    residual: bool = False,
) -> Part:
    def part(net: Net, x: str) -> str:
        x = net.Add(x, "x") if residual else x
        centred = net.Sub(x, mean(net, x, opset, axis))
        squared = net.Mul(centred, centred) if square == "Mul" else net.Pow(centred, f32(exponent))
        deviation = net.Sqrt(net.Add(mean(net, squared, opset, axis), f32(1e-5)))
        scaled = net.Mul(net.Div(centred, deviation), weight(8) if scale is None else scale)
        return str(net.Add(scaled, weight(8, seed=1)) if shift else scaled)

    return part


@pytest.mark.parametrize("shift", [True, False], ids=["shift", "no shift"])
@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize("opset", [13, 17, 18])
def test_layer_normalization_is_one_node(square: str, opset: int, shift: bool) -> None:
    model = between_products(norm(square, opset, shift=shift), opset)
    assert kinds(model) == "MatMul Add LayerNormalization MatMul Add"
    assert kinds(model, optimise_float=False).count("ReduceMean") == 2


def test_the_last_axis_may_be_counted_from_the_front() -> None:
    assert "LayerNormalization" in kinds(between_products(norm("Mul", axis=2)))


def test_a_layer_norm_keeps_the_names_of_its_nodes() -> None:
    with opened(between_products(norm("Mul")), calibrate=False) as adapter:
        (name,) = [node.name for node in adapter._builder.graph.nodes if node.op_type == "LayerNormalization"]
        assert name == "Add_10"
        assert set(adapter._builder.graph.merged[name]) >= {"Sub_3", "Mul_4", "Sqrt_7", "Div_8", "Mul_9"}


@pytest.mark.parametrize(
    "part",
    [norm("Mul", axis=1), norm("Mul", scale=weight(3, 8)), norm("Mul", scale=weight(3, 1))],
    ids=["another axis", "scale of two axes", "scale along another axis"],
)
def test_a_chain_similar_to_layer_norm_stays(part: Part) -> None:
    assert "LayerNormalization" not in kinds(between_products(part))


def test_a_cube_that_the_runtime_itself_takes_for_a_square_stays() -> None:
    """ONNX Runtime's basic level does not look at the exponent: the comparison finds that, and leaves the level out."""
    with opened(between_products(norm(exponent=3)), calibrate=False) as adapter:
        assert adapter.compare().left_out == ("runtime's basic level",)
        assert "LayerNormalization" not in [node.op_type for node in adapter._builder.graph.nodes]


@pytest.mark.parametrize("kind", ["Sub", "Sqrt", "Div"])
def test_a_chain_with_an_inner_output_stays(kind: str) -> None:
    net = Net()
    y = net.MatMul(norm("Mul")(net, net.Relu(net.input(None, 3, 8))), weight(8, 8))
    step = next(node.output[0] for node in net.nodes if node.op_type == kind)
    assert "LayerNormalization" not in kinds(net.model(y, step))


@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_kernels_around_layer_norm_match_the_configuration(square: str) -> None:
    """Behind an int8 Add, where each reader would get a DequantizeLinear of its own."""
    kernels_are_right(between_products(norm(square, residual=True)))
