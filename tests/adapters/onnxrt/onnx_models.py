"""Graphs written line by line, and the few steps that every adapter test takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.profile.kernels import integer_kernels
from quaver.adapters.options import AdapterOptions
from quaver.ops import QuantConfig
from quaver.space import TuningSpace

Array = NDArray[Any]


class Net:
    """A graph in the making: `y = net.Relu(net.Conv(x, weight(8, 4, 3, 3)))`, then `net.model(y)`.

    A method named after an op type appends a node and returns the name of its output (or names, with `outputs=2`).
    Arrays among its inputs become initializers. A node is called after its type and place: "Conv_0", "Relu_1".
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[TensorProto] = []
        self._count = itertools.count()

    def input(self, *shape: int | str | None, name: str = "x", dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, value: Array, name: str | None = None) -> str:
        name = name or f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(
        self,
        op: str,
        *inputs: str | Array,
        outputs: int | Sequence[str] = 1,
        name: str | None = None,
        **attributes: Any,
    ) -> Any:
        name = f"{op}_{next(self._count)}" if name is None else name
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        if isinstance(outputs, int):
            outputs = [f"{name or op}.out{i or ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, names, outputs, name=name, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def __getattr__(self, op: str) -> Any:
        if not op[0].isupper():
            raise AttributeError(op)
        return lambda *inputs, **rest: self.add(op, *inputs, **rest)

    def graph(self, *outputs: str | onnx.ValueInfoProto) -> onnx.GraphProto:
        """The graph with these outputs; one given by its name alone is a float tensor."""
        values = [
            helper.make_tensor_value_info(value, TensorProto.FLOAT, None) if isinstance(value, str) else value
            for value in outputs
        ]
        return helper.make_graph(self.nodes, "net", self.inputs, values, self.initializers)

    def model(
        self, *outputs: str | onnx.ValueInfoProto, opset: int = 17, ir: int = 8, opsets: Any = (), **fields: Any
    ) -> onnx.ModelProto:
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*entry) for entry in opsets)]
        made = helper.make_model(self.graph(*outputs), opset_imports=imports, ir_version=ir, **fields)
        made = onnx.shape_inference.infer_shapes(made)  # fills in the shapes of the outputs
        made.graph.ClearField("value_info")
        return made


def tensor(name: str, *shape: int | str | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or output with all that is known of it."""
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(*shape: int, seed: int = 0) -> Array:
    """Random float32, of a size that keeps activations near one."""
    fan_in = max(1, int(np.prod(shape[1:])))
    return (np.random.default_rng([seed, *shape]).normal(size=shape) / np.sqrt(fan_in)).astype(np.float32)


def data(adapter: OnnxAdapter, count: int = 4, batch: int = 2, seed: int = 7) -> list[dict[str, Array]]:
    """Random batches for a model; open axes are as long as `batch`."""
    rng = np.random.default_rng(seed)
    return [{spec.name: _values(rng, spec, batch) for spec in adapter.inputs} for _ in range(count)]


def _values(rng: np.random.Generator, spec: Any, batch: int) -> Array:
    shape = [batch if dim is None else dim for dim in spec.shape or ()]
    if spec.dtype.kind == "f":
        return np.asarray(rng.normal(size=shape), spec.dtype)
    return np.asarray(rng.integers(0, 2, shape), spec.dtype)


@contextmanager
def opened(model: Any, calibrate: bool = True, **options: Any) -> Iterator[OnnxAdapter]:
    """An adapter on a model, calibrated with random data."""
    adapter = OnnxAdapter.load(model, AdapterOptions(threads=1, **options))
    try:
        if calibrate:
            adapter.calibrate(data(adapter))
        yield adapter
    finally:
        adapter.close()


def space(adapter: OnnxAdapter) -> TuningSpace:
    return TuningSpace(adapter.ops())


def random_config(ops: TuningSpace, rng: np.random.Generator, share: float = 0.5) -> QuantConfig:
    """Each op in fp32, or with a probability of `share` in one of its int8 choices."""

    def choose(op: Any) -> Any:
        int8 = [choice for choice in op.choices if choice.precision == "int8"]
        other = next((choice for choice in op.choices if choice.precision == "fp32"), int8[0])
        return int8[rng.integers(len(int8))] if rng.random() < share else other

    return ops.configure(choose)


def kernels(adapter: OnnxAdapter, config: QuantConfig | None) -> dict[str, str]:
    """What ONNX Runtime runs in integers of a built model, by op."""
    model = adapter.assemble(config)
    return integer_kernels(model.SerializeToString(), [op.name for op in adapter.ops()])


def as_given(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    """What a plain session makes of the user's model."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def deviation(model: onnx.ModelProto, adapter: OnnxAdapter, config: QuantConfig | None = None) -> float:
    """The largest difference between the outputs of the user's model and of a built one, as a part of the output."""
    feed = data(adapter)[0]
    built = adapter.build(config).session.run(None, feed)
    pairs = zip(as_given(model, feed), built, strict=True)
    return max(float(np.abs(one - other).max() / max(np.abs(one).max(), 1e-9)) for one, other in pairs)
