"""Models whose If, Loop or Scan captures an int8 op's result, run in a process of their own: a mistake aborts it.

`python captured_tensors.py If` prints one line per model: what lies between the op and the body, the largest relative
deviation of int8 builds from the model as given, and which ops ran in integers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_models import Net, deviation, kernels, opened, space, tensor, weight

# What lies between the convolution and the tensor that the body captures.
BETWEEN: dict[str, Callable[[Net, str], str]] = {
    "nothing": lambda net, y: y,
    "MaxPool": lambda net, y: net.MaxPool(y, kernel_shape=[2, 2]),
    "Transpose": lambda net, y: net.Transpose(y, perm=[0, 1, 3, 2]),
    "Reshape": lambda net, y: net.Reshape(y, np.array([0, 0, -1])),
    "Unsqueeze": lambda net, y: net.Unsqueeze(y, np.array([0])),
    "Squeeze": lambda net, y: net.Squeeze(net.Unsqueeze(y, np.array([0])), np.array([0])),
    "Slice": lambda net, y: net.Slice(y, np.array([1]), np.array([5]), np.array([3])),
    "Flatten": lambda net, y: net.Flatten(y),
    "Split": lambda net, y: net.Split(y, axis=1, outputs=2)[0],
    "Resize": lambda net, y: net.Resize(y, "", np.array([1, 1, 2, 2], np.float32)),
    "MaxPool and Transpose": lambda net, y: net.Transpose(net.MaxPool(y, kernel_shape=[2, 2]), perm=[0, 1, 3, 2]),
    "Relu and MaxPool": lambda net, y: net.MaxPool(net.Relu(y), kernel_shape=[2, 2]),
}


def in_an_if(net: Net, captured: str) -> str:
    """Add an If both of whose branches read the tensor."""
    flag = net.Greater(net.ReduceSum("x", keepdims=0), np.float32(0))
    then, other = Net(), Net()
    branches = then.graph(then.Neg(captured, outputs=["negated"])), other.graph(other.Abs(captured, outputs=["size"]))
    result: str = net.If(flag, then_branch=branches[0], else_branch=branches[1])
    return result


def in_a_loop(net: Net, captured: str) -> str:
    """Add a Loop that sums the tensor up three times."""
    body = Net()
    total = helper.make_tensor_value_info("total", TensorProto.FLOAT, None)
    body.inputs = [tensor("step", dtype=TensorProto.INT64), tensor("go_on", dtype=TensorProto.BOOL), total]
    body.Identity("go_on", outputs=["still"])
    body.Add("total", captured, outputs=["next"])
    graph = body.graph(tensor("still", dtype=TensorProto.BOOL), "next")
    result: str = net.Loop(np.array(3, np.int64), np.array(True), np.zeros(1, np.float32), body=graph)
    return result


def in_a_scan(net: Net, captured: str) -> str:
    """Add a Scan whose steps each multiply the tensor by a number."""
    body = Net()
    body.inputs = [tensor("factor", 1)]
    graph = body.graph(body.Mul("factor", captured, outputs=["product"]))
    result: str = net.Scan(np.ones((3, 1), np.float32), num_scan_inputs=1, body=graph)
    return result


BODIES = {"If": in_an_if, "Loop": in_a_loop, "Scan": in_a_scan}


def make(body: str, between: str, goes_on: bool) -> onnx.ModelProto:
    """Return a model: a Conv, what lies between, and the body; `goes_on` adds an int8 reader of the same tensor."""
    net = Net()
    captured = BETWEEN[between](net, net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)))
    outputs = [BODIES[body](net, captured)]
    if goes_on:
        outputs.append(net.Sigmoid(captured))
    return net.model(*(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs))


def main() -> None:
    """Build and run every model of one kind of body; print a line for each."""
    body = sys.argv[1]
    for between in BETWEEN:
        for goes_on in (False, True):
            model = make(body, between, goes_on)
            with opened(model) as adapter:
                ops = space(adapter)
                configs = [ops.default_config(), *(ops.only_int8(op.name) for op in ops.ops)]
                errors = [deviation(model, adapter, config) for config in (None, *configs)]
                for config in configs:
                    adapter.local_errors(config)
                ran = set(kernels(adapter, configs[0]))
            print(between, goes_on, errors[0], max(errors[1:]), *sorted(ran), sep="\t", flush=True)


if __name__ == "__main__":
    main()
