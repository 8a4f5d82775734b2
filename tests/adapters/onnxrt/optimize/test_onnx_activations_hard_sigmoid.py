"""HardSigmoid right behind a layer leaves a Clip, which is free in int8."""

from __future__ import annotations

import onnx
import pytest
from onnx_models import Net, weight
from rewriting import SAME, kernels_are_right, kinds


def gated(layer: str) -> onnx.ModelProto:
    net = Net()
    if layer == "Conv":
        x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 3, 3), weight(4), **SAME)
        y = net.HardSigmoid(net.Conv(x, weight(4, 4, 1, 1)), alpha=0.25)
        return net.model(net.Conv(net.Mul(x, y), weight(4, 4, 1, 1)))
    x = net.Gemm(net.input(2, 8), weight(8, 8), transB=int(layer == "Gemm, transposed"))
    return net.model(net.Gemm(net.HardSigmoid(x), weight(8, 3)))


@pytest.mark.parametrize("layer", ["Conv", "Gemm", "Gemm, transposed"])
def test_a_hard_sigmoid_behind_a_layer_becomes_a_clip(layer: str) -> None:
    assert kinds(gated(layer)) in ("Conv Conv Clip Mul Conv", "Gemm Clip Gemm")
    assert "HardSigmoid" in kinds(gated(layer), optimise_float=False)
    kernels_are_right(gated(layer))


def test_a_layer_that_others_read_keeps_its_weights() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    y = net.HardSigmoid(x)
    assert "HardSigmoid" in kinds(net.model(net.Mul(x, y)))
    assert "HardSigmoid" in kinds(net.model(net.Relu(y), x))


def test_a_hard_sigmoid_behind_other_nodes_stays() -> None:
    net = Net()
    x = net.HardSigmoid(net.MaxPool(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)), kernel_shape=[2, 2]))
    assert kinds(net.model(net.Conv(x, weight(4, 4, 1, 1)))) == "Conv MaxPool HardSigmoid Conv"
