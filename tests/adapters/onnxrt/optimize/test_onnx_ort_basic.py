"""The runtime's own basic level, done offline: what it fuses, what it must not lose, and what it cannot load."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import Net, deviation, opened, space, tensor, weight
from rewriting import applied, between_convs, kernels_are_right, kinds

from quaver.adapters.onnxrt.optimize import ort_basic as runtime
from quaver.adapters.onnxrt.run import session as sessions

PADS = np.array([0, 0, 0, 0, 0, 0, 1, 1])


def padded() -> onnx.ModelProto:
    net = Net()
    x = net.Pad(net.Relu(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))), PADS, name="pad")
    return net.model(net.Conv(x, weight(4, 4, 3, 3), strides=[2, 2], name="conv"))


def test_padding_goes_into_the_convolution_and_is_listed_with_it() -> None:
    assert kinds(padded()) == "Conv Relu Conv"
    assert applied(padded()) == {"runtime's basic level": 1}
    with opened(padded(), calibrate=False) as adapter:
        assert [(op.name, op.nodes) for op in adapter.ops()][1] == ("conv", ("conv", "pad"))
    kernels_are_right(padded())


def test_padding_that_others_read_stays() -> None:
    net = Net()
    x = net.Pad(net.Relu(net.input(2, 4, 8, 8)), PADS)
    assert kinds(net.model(net.Conv(x, weight(4, 4, 3, 3)), x)) == "Relu Pad Conv"


def test_padding_with_other_numbers_than_zero_stays() -> None:
    model = between_convs(lambda net, x: net.Pad(x, PADS, np.float32(1)))
    assert kinds(model) == "Conv Pad Conv"


def test_shapes_are_computed_once_and_what_does_nothing_goes() -> None:
    net = Net()
    x = net.Identity(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)))
    rows = net.Gather(net.Shape(x), np.array([0]))
    flat = net.Dropout(net.Reshape(x, net.Concat(rows, np.array([-1]), axis=0)))
    assert kinds(net.model(net.Gemm(flat, weight(256, 3)))) == "Conv Reshape Gemm"


def test_weights_that_are_computed_from_constants_become_weights() -> None:
    """Weight normalization, left in the graph by exporters: g * v / |v|."""
    net = Net()
    direction = net.constant(weight(16, 4, 9, 9))
    length = net.Sqrt(net.ReduceSum(net.Mul(direction, direction), np.array([1, 2, 3])))
    kernel = net.Mul(net.Div(direction, length), weight(16, 1, 1, 1))
    model = net.model(net.Conv(net.input(2, 4, 12, 12), kernel, name="conv"))
    assert kinds(model) == "Conv"
    with opened(model, calibrate=False) as adapter:
        assert [op.name for op in adapter.ops()] == ["conv"]


def test_constants_that_would_grow_are_not_spelled_out() -> None:
    net = Net()
    mask = net.Expand(np.ones((1, 1), np.float32), np.array([1024, 1024]))
    x = net.MatMul(net.input(1, 1024), weight(1024, 1024))
    model = net.model(net.Gemm(net.MatMul(net.Identity(x), mask), weight(1024, 3)))
    with opened(model, calibrate=False) as adapter:
        assert adapter.assemble(None).size < model.ByteSize() + 4096
        assert "Expand" in {node.op_type for node in adapter._builder.graph.nodes}


def test_ops_that_compute_the_same_keep_their_names() -> None:
    net = Net()
    x, kernel = net.input(2, 4, 8, 8), net.constant(weight(4, 4, 1, 1))
    twins = [net.Conv(net.Identity(x), kernel, name=name) for name in ("left", "right")]
    with opened(net.model(net.Concat(*twins, axis=1)), calibrate=False) as adapter:
        assert [op.name for op in adapter.ops()] == ["left", "right", "Concat_2"]


def test_a_function_of_the_runtime_is_called_as_the_user_called_it() -> None:
    model = between_convs(lambda net, x: net.HardSwish(x, name="swish"))
    assert kinds(model) == "Conv HardSigmoid Mul Conv"
    with opened(model, calibrate=False) as adapter:
        assert [op.name for op in adapter.ops()] == ["Conv_0", "swish.HardSigmoid", "swish", "Conv_1"]


def test_large_constants_are_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, create = [], sessions.create

    def watching(model: bytes, *rest: Any) -> Any:
        sizes.append(len(model))
        return create(model, *rest)

    monkeypatch.setattr(runtime.sessions, "create", watching)
    net = Net()
    x = net.MatMul(net.Identity(net.input(2, 600)), weight(600, 600))
    with opened(net.model(net.Relu(x)), calibrate=False) as adapter:
        assert adapter._builder.graph.constants["c0"].shape == (600, 600)
    assert sizes and max(sizes) < 10_000


def test_functions_of_the_model_stay_and_so_does_all_else(caplog: pytest.LogCaptureFixture) -> None:
    body = [helper.make_node("Neg", ["a"], ["b"])]
    function = helper.make_function("mine", "Minus", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    net = Net()
    x = net.Conv(net.Pad(net.Minus(net.input(2, 4, 8, 8), domain="mine"), PADS), weight(4, 4, 3, 3))
    model = net.model(x, opsets=[("mine", 1)], functions=[function])
    with caplog.at_level(logging.INFO):
        assert kinds(model, left_out=("padding",)) == "Minus Pad Conv"
    assert "functions of its own" in caplog.text


def test_an_operator_that_the_runtime_does_not_know_is_no_obstacle(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    x = net.Conv(net.Pad(net.input(2, 4, 8, 8), PADS), weight(4, 4, 3, 3))
    model = net.model(x, tensor(net.Unheard(x, domain="elsewhere"), 2, 4, 7, 7), opsets=[("elsewhere", 1)])
    with caplog.at_level(logging.INFO), opened(model, calibrate=False) as adapter:
        assert [op.name for op in adapter.ops()] == ["Conv_1"]
        assert adapter.rewrites == (("padding", 1),)
    assert "basic optimisations are left out" in caplog.text


def test_the_opsets_of_the_model_stay() -> None:
    with opened(padded(), calibrate=False) as adapter:
        assert [(entry.domain, entry.version) for entry in adapter.assemble(None).model.opset_import] == [("", 17)]


def test_branches_that_are_always_taken_are_left_to_the_names_they_have() -> None:
    net, then, other = Net(), Net(), Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    bodies = {
        "then_branch": then.graph(then.Conv(x, weight(4, 4, 1, 1), name="inside")),
        "else_branch": other.graph(other.Neg(x)),
    }
    model = net.model(net.Conv(net.If(np.array(True), **bodies), weight(4, 4, 1, 1)), opset=17)
    with opened(model, calibrate=False) as adapter:
        assert deviation(model, adapter) < 1e-6
        assert {"Conv_0", "Conv_2"} <= {op.name for op in adapter.ops()}


def test_another_process_makes_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(padded(), path)
    script = (
        "import sys; from quaver.adapters import AdapterOptions, load_model;"
        "print(load_model(sys.argv[1], AdapterOptions(threads=1)).assemble(None).sha256)"
    )
    with opened(padded(), calibrate=False) as adapter:
        expected = adapter.assemble(None).sha256
    found = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected


def test_integers_and_strings_among_the_constants_stay_as_they_are() -> None:
    net = Net()
    x = net.Conv(net.Pad(net.input(2, 4, 8, 8), PADS), weight(4, 4, 3, 3))
    table = net.constant(np.arange(600, dtype=np.int64), "table")
    ids = net.Gather(table, net.input(2, name="ids", dtype=TensorProto.INT64))
    model = net.model(x, tensor(ids, 2, dtype=TensorProto.INT64))
    with opened(model) as adapter:
        config = space(adapter).default_config()
        _, found = adapter.build(config)({"x": weight(2, 4, 8, 8), "ids": np.array([5, 599])})
        assert found.tolist() == [5, 599]
