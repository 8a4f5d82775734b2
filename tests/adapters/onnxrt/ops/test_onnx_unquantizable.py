"""What has no int8 form (bodies, recurrent layers, foreign operators, sequences) stays as it is and breaks nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import Net, deviation, kernels, opened, random_config, space, tensor, weight

from quaver.errors import BuildError


def branch(op: str, *inputs: str, prefix: str) -> onnx.GraphProto:
    """A body of one node that reads from the graph around it."""
    body = Net()
    return body.graph(body.add(op, *inputs, name=f"{prefix}node", outputs=[f"{prefix}out"]))


def in_an_if(condition: bool | None) -> onnx.ModelProto:
    """Both branches read an int8 op's result, one also its weight. A constant condition lets a branch be inlined."""
    net = Net()
    x, kernel = net.input(2, 4, 8, 8), net.constant(weight(4, 4, 1, 1), "kernel")
    y = net.Conv(x, kernel)
    flag = net.Greater(net.ReduceSum(x, keepdims=0), np.float32(0), outputs=["flag"])
    z = net.If(
        flag if condition is None else np.array(condition),
        then_branch=branch("Sigmoid", y, prefix="then_"),
        else_branch=branch("Conv", y, kernel, prefix="else_"),
    )
    return net.model(net.Conv(z, weight(4, 4, 1, 1, seed=1)), net.Conv(y, kernel))


def in_a_loop() -> onnx.ModelProto:
    net, body = Net(), Net()
    y = net.Sigmoid(net.Gemm(net.input(2, 4), weight(4, 4), weight(4)))
    body.inputs = [
        tensor("i", dtype=TensorProto.INT64), tensor("go_on", dtype=TensorProto.BOOL), tensor("sum", 2, 4)
    ]  # fmt: skip
    body.Identity("go_on", outputs=["still"])
    body.Add("sum", y, outputs=["next"])
    graph = body.graph(tensor("still", dtype=TensorProto.BOOL), tensor("next", 2, 4))
    total = net.Loop(np.array(3, np.int64), np.array(True), y, body=graph)
    return net.model(net.Gemm(total, weight(4, 3)))


def in_a_scan() -> onnx.ModelProto:
    net, body = Net(), Net()
    y = net.Relu(net.Gemm(net.input(3, 4), weight(4, 4), weight(4)))
    body.inputs = [tensor("state", 4), tensor("row", 4)]
    body.Add("state", "row", outputs=["state_out"])
    body.Mul("state_out", "captured", outputs=["row_out"])
    net.constant(weight(4), "captured")
    graph = body.graph(tensor("state_out", 4), tensor("row_out", 4))
    last, rows = net.Scan(np.zeros(4, np.float32), y, num_scan_inputs=1, body=graph, outputs=2)
    return net.model(net.Gemm(rows, weight(4, 3)), last)


def gated() -> onnx.ModelProto:
    net = Net()
    x = net.Sigmoid(net.input(5, None, 8))
    outputs = net.GRU(x, weight(1, 12, 8), weight(1, 12, 4), hidden_size=4, outputs=2)
    return net.model(net.MatMul(net.Squeeze(outputs[1], np.array([0])), weight(4, 3)))


def with_weights_that_are_computed() -> onnx.ModelProto:
    """An LSTM has an int8 form only where its weights are constant."""
    net = Net()
    x = net.Sigmoid(net.input(5, None, 8))
    weights = net.Softsign(net.input(1, 16, 8, name="weights"))
    outputs = net.LSTM(x, weights, weight(1, 16, 4), hidden_size=4, outputs=3)
    return net.model(net.MatMul(net.Squeeze(outputs[1], np.array([0])), weight(4, 3)))


def foreign() -> onnx.ModelProto:
    net = Net()
    x = net.MatMul(net.input(2, 3, 8), weight(8, 8))
    y = net.MatMul(net.Gelu(x, domain="com.microsoft"), weight(8, 8))
    return net.model(tensor(net.Add(y, x), 2, 3, 8), opsets=[("com.microsoft", 1)])


def local_function(body: str) -> onnx.ModelProto:
    inputs = {"Sigmoid": ["a"], "Add": ["a", "a"], "Conv": ["a", "k"]}[body]
    nodes = [
        helper.make_node("Constant", [], ["k"], value=onnx.numpy_helper.from_array(weight(4, 4, 1, 1), "")),
        helper.make_node(body, inputs, ["b"], name="inside"),
    ]
    function = helper.make_function("mine", "Block", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    y = net.Conv(net.Block(x, domain="mine"), weight(4, 4, 1, 1))
    return net.model(net.Add(y, x), opsets=[("mine", 1)], functions=[function])


def with_sequences() -> onnx.ModelProto:
    net = Net()
    x = net.Sigmoid(net.input(2, 4))
    parts = net.ConcatFromSequence(net.SplitToSequence(x, axis=1, keepdims=1), axis=1)
    first = net.SequenceAt(net.SequenceConstruct(parts, x), np.array(0))
    return net.model(net.Gemm(first, weight(4, 3)))


def with_an_optional() -> onnx.ModelProto:
    net = Net()
    x = net.OptionalGetElement(net.Optional(net.Sigmoid(net.input(2, 4))))
    return net.model(net.Gemm(x, weight(4, 3)))


def with_a_sparse_weight() -> onnx.ModelProto:
    net = Net()
    y = net.MatMul(net.Sigmoid(net.input(2, 4)), "sparse")
    model = net.model(tensor(y, 2, 3))
    values, indices = helper.make_tensor("sparse", 1, [2], [1.0, 2.0]), helper.make_tensor("at", 7, [2], [1, 5])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 3]))
    return model


def with_a_constant_that_is_resized() -> onnx.ModelProto:
    net = Net()
    table = net.Resize(weight(1, 4, 4, 4), "", np.array([1, 1, 2, 2], np.float32))
    return net.model(net.Conv(net.Add(net.input(1, 4, 8, 8), table), weight(4, 4, 1, 1)))


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], list[str]]] = {
    "If": (lambda: in_an_if(None), ["Conv_0", "Conv_4", "Conv_5"]),
    "If that is always true": (lambda: in_an_if(True), ["Conv_0", "Conv_4", "Conv_5"]),
    "If that is never true": (lambda: in_an_if(False), ["Conv_0", "Conv_4", "Conv_5"]),
    "Loop": (in_a_loop, ["Gemm_0", "Sigmoid_1", "Gemm_3"]),
    "Scan": (in_a_scan, ["Gemm_0", "Gemm_3"]),
    "LSTM of weights that are computed": (with_weights_that_are_computed, ["Sigmoid_0", "MatMul_4"]),
    "GRU": (gated, ["Sigmoid_0", "MatMul_3"]),
    "an operator of com.microsoft": (foreign, ["MatMul_0", "MatMul_2", "Add_3"]),
    "a function that holds a Sigmoid": (lambda: local_function("Sigmoid"), ["Conv_0", "Conv_2", "Add_3"]),
    "a function that holds an Add": (lambda: local_function("Add"), ["Conv_0", "Conv_2", "Add_3"]),
    "a function that holds a Conv": (lambda: local_function("Conv"), ["Conv_0", "Conv_2", "Add_3"]),
    "sequences": (with_sequences, ["Sigmoid_0", "Gemm_5"]),
    "an optional": (with_an_optional, ["Sigmoid_0", "Gemm_3"]),
    "a sparse weight": (with_a_sparse_weight, ["Sigmoid_0", "MatMul_1"]),
    "a resized constant": (with_a_constant_that_is_resized, ["Conv_2"]),
}


@pytest.mark.parametrize("which", MODELS)
def test_a_model_can_be_tuned_around(which: str) -> None:
    make, names = MODELS[which]
    model = make()
    with opened(model) as adapter:
        ops = space(adapter)
        assert [op.name for op in ops.ops] == names
        assert deviation(model, adapter) == 0
        assert deviation(model, adapter, ops.default_config()) < 0.1
        rng = np.random.default_rng(0)
        singles = [ops.only_int8(name) for name in names] + [ops.default_config().fallback(name) for name in names]
        for config in [ops.default_config(), *singles, *(random_config(ops, rng) for _ in range(4))]:
            assert set(kernels(adapter, config)) == set(config.int8_ops)
            onnx.checker.check_model(adapter.assemble(config).SerializeToString(), full_check=True)


def test_an_operator_that_the_runtime_does_not_know_is_named() -> None:
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))
    model = net.model(tensor(net.Unheard(x, domain="elsewhere"), 2, 4, 8, 8), opsets=[("elsewhere", 1)])
    with opened(model, calibrate=False) as adapter, pytest.raises(BuildError, match="Unheard"):
        adapter.build(None)


def test_tensors_inside_a_body_keep_their_names_to_themselves() -> None:
    net, body = Net(), Net()
    x = net.input(2, 4, 8, 8)
    y = net.Conv(x, weight(4, 4, 1, 1), outputs=["y"])
    body.Sigmoid(y, outputs=["y|dq"])
    inner = body.graph(body.Neg("y|dq", outputs=["y|q"]))
    z = net.If(np.array(True), then_branch=inner, else_branch=branch("Neg", y, prefix="else_"))
    model = net.model(net.Conv(z, weight(4, 4, 1, 1)), y)
    with opened(model) as adapter:
        assert deviation(model, adapter, space(adapter).default_config()) < 0.05
