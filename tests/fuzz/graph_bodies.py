"""If, Loop and Scan of random graphs, whose bodies read tensors of the graph around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from graph_builder import GraphBuilder, Rejected
from onnx import TensorProto, helper


def _tensor(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None)


def _captured(b: GraphBuilder) -> str:
    """Return a tensor for a body to read, at times behind an op that passes 8 bits on."""
    name = b.pick(least=1)
    shape = b.shape(name)
    kind = b.rng.random()
    if kind < 0.15 and len(shape) == 4:
        return str(b.add("MaxPool", name, kernel_shape=[2, 2]))
    if kind < 0.3:
        return str(b.add("Transpose", name, perm=list(range(len(shape)))[::-1]))
    if kind < 0.4:
        return str(b.add("Reshape", name, b.constant([-1, shape[-1]], "int64")))
    if kind < 0.5:
        return str(b.axes("Unsqueeze", name, [0], 13))
    return name


def _work(b: GraphBuilder, inner: GraphBuilder, name: str) -> str:
    """Add a few nodes to a body that read a tensor of the graph around it, and constants of both."""
    for _ in range(int(inner.rng.integers(1, 4))):
        shape = inner.shape(name)
        kind = inner.choose(["Neg", "Mul", "Sigmoid", "Relu", "MatMul", "Identity", "Add", "Conv", "Abs"])
        if kind == "Mul":
            name = inner.add("Mul", name, (b if inner.chance(0.4) else inner).constant(0.5))
        elif kind == "MatMul" and len(shape) >= 2:
            name = inner.add("MatMul", name, (b if inner.chance(0.4) else inner).weight(shape[-1], shape[-1]))
        elif kind == "Conv" and len(shape) == 4:
            name = inner.add("Conv", name, (b if inner.chance(0.4) else inner).weight(shape[1], shape[1], 1, 1))
        elif kind == "Add":
            name = inner.add("Add", name, name)
        elif kind not in ("MatMul", "Conv"):
            name = inner.add(kind, name)
    return name


def branching(b: GraphBuilder) -> Any:
    """Add an If; its condition is computed, an input or a constant."""
    captured = _captured(b)
    kind = b.rng.random()
    if kind < 0.6:
        summed = b.add("ReduceMean", captured, keepdims=0)
        condition = b.add("Greater", summed, b.constant(0.0) if b.opset >= 9 or b.chance(0.5) else b.constant(0.1))
    elif kind < 0.8:
        condition = b.input((), "bool", stem="flag")
    else:
        condition = b.constant(bool(b.chance(0.5)), "bool")
    graphs, bodies, several = [], [], b.chance(0.2)
    for _ in range(2):
        inner = GraphBuilder(b.rng, b.opset, b)
        result = _work(b, inner, captured if b.chance(0.8) else b.pick(least=1))
        if inner.nodes == [] or result not in inner.values:
            result = inner.add("Identity", result)
        if inner.chance(0.1) and b.opset >= 9:
            result = _nested(inner, result)
        results = [_tensor(result)]
        if several:
            results.append(_tensor(inner.add("Shape", result), TensorProto.INT64))
        graphs.append(inner.graph(results))
        bodies.append(inner)
    return b.add("If", condition, outputs=1 + several, bodies=bodies, then_branch=graphs[0], else_branch=graphs[1])


def _nested(inner: GraphBuilder, name: str) -> str:
    """Add an If to a body, whose own bodies read from the body."""
    graphs, bodies = [], []
    for op in ("Neg", "Abs"):
        deepest = GraphBuilder(inner.rng, inner.opset, inner)
        graphs.append(deepest.graph([_tensor(deepest.add(op, name))]))
        bodies.append(deepest)
    condition = inner.constant(bool(inner.chance(0.5)), "bool")
    return str(inner.add("If", condition, bodies=bodies, then_branch=graphs[0], else_branch=graphs[1]))


def looping(b: GraphBuilder) -> Any:
    """Add a Loop that carries a tensor on, reads another from outside and collects what it makes."""
    captured = _captured(b)
    inner = GraphBuilder(b.rng, b.opset, b)
    step, going, state = (inner.name(stem) for stem in ("step", "going", "state"))
    start = b.constant(np.zeros(b.shape(captured)) if b.chance(0.5) else np.ones((1,) * len(b.shape(captured))))
    inner.values |= {step: np.array(0), going: np.array(True), state: np.asarray(b.value(start) + b.value(captured))}
    added = inner.add("Add", state, _work(b, inner, captured))
    if inner.shape(added) != b.shape(captured):
        raise Rejected("the state changes its shape")
    ends_early = b.opset >= 9 and b.chance(0.3)
    if ends_early:  # int8 values may end it in another step
        following = inner.add("Less", inner.add("ReduceMean", added, keepdims=0), inner.constant(1.0))
    else:
        following = inner.add("Identity", going)
    outputs = [_tensor(following, TensorProto.BOOL), _tensor(added)]
    collects = not ends_early and b.chance(0.5)
    if collects:
        outputs.append(_tensor(inner.add("Abs", added)))
    scalars = ((step, TensorProto.INT64), (going, TensorProto.BOOL))
    inputs = [*(helper.make_tensor_value_info(name, kind, ()) for name, kind in scalars), _tensor(state)]
    given = [b.constant(int(b.rng.integers(1, 4)), "int64"), b.constant(True, "bool"), start]
    graph = inner.graph(outputs, inputs)
    result = b.add("Loop", *given, outputs=1 + collects, bodies=[inner], body=graph)
    return result


def scanning(b: GraphBuilder) -> Any:
    """Add a Scan over the rows of a tensor, whose body reads another from outside."""
    if b.opset < 9:
        raise Rejected("Scan had a batch axis")
    rows, captured = b.pick(least=2), _captured(b)
    inner = GraphBuilder(b.rng, b.opset, b)
    row = inner.name("row")
    inner.values[row] = np.asarray(b.value(rows)[0])
    factor = inner.axes("ReduceMean", row, list(range(len(inner.shape(row)))), 18, keepdims=0)
    result = inner.add("Mul", _work(b, inner, captured), factor)
    inputs = [helper.make_tensor_value_info(row, TensorProto.FLOAT, inner.shape(row) if b.chance(0.7) else None)]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, [None] * len(inner.shape(result)))]
    graph = inner.graph(outputs, inputs)
    return b.add("Scan", rows, bodies=[inner], num_scan_inputs=1, body=graph)
