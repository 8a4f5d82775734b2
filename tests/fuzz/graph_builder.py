"""A random ONNX graph in the making: every node is run by ONNX Runtime as it is added, so that the graph is valid."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Feed = dict[str, Array]
OPSETS = range(7, 24)
# Larger tensors only cost time, and larger values only measure how far float32 reaches.
MAX_ELEMENTS, MAX_VALUE = 40_000, 1e4
# Under this key the model records the shape and the largest integer of each input, so that a file can be fed again.
INPUTS_KEY = "fuzz.inputs"
_NAMES = ("plain", "numbers", "paths", "odd", "dots")


class Rejected(Exception):
    """A node that the runtime does not run, or whose result is too large or not finite."""


@dataclass(frozen=True)
class InputRecord:
    """What an input is fed with.

    Attributes:
        shape: the shape that it really has.
        dtype: the name of numpy's type.
        limit: integers are below it.
        scale: how far floats spread.
    """

    shape: tuple[int, ...]
    dtype: str
    limit: int = 2
    scale: float = 1.0

    def sample(self, rng: np.random.Generator) -> Array:
        """Return random values for the input."""
        kind = np.dtype(self.dtype)
        if kind.kind == "f":
            return np.asarray(rng.normal(size=self.shape) * self.scale, kind)
        return np.asarray(rng.integers(0, self.limit, self.shape), kind)


class GraphBuilder:
    """Collects nodes, constants and inputs, with the value that every tensor has for one sample.

    A builder of a body has a `parent`, whose tensors it can read.
    """

    def __init__(self, rng: np.random.Generator, opset: int, parent: GraphBuilder | None = None) -> None:
        self.rng, self.opset, self.parent = rng, opset, parent
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.inputs: dict[str, InputRecord] = {}
        self.values: dict[str, Array] = {}
        self.constants: set[str] = set()
        self.functions: dict[str, onnx.FunctionProto] = {}
        self.style = str(rng.choice(_NAMES)) if parent is None else parent.style
        self.share = float(rng.choice([0.0, 0.15])) if parent is None else 0.0
        self._count = 0

    def chance(self, probability: float) -> bool:
        """Return whether something that has this probability happens."""
        return bool(self.rng.random() < probability)

    def choose(self, options: Sequence[Any]) -> Any:
        """Return one of the options."""
        return options[int(self.rng.integers(len(options)))]

    def name(self, stem: str) -> str:
        """Return a name that no tensor of the whole model has, in the style of this graph."""
        root: GraphBuilder = self
        while root.parent is not None:
            root = root.parent
        root._count += 1
        count = root._count
        return {
            "plain": f"{stem}_{count}",
            "numbers": str(count),
            "paths": f"/model/layers.{count}/{stem}/{stem}_output_0",
            "odd": f"{stem} {count} |q ÄØ:{{}}\"'",
            "dots": f"{stem}.{count}|dq",
        }[self.style]

    def input(
        self, shape: Sequence[int], dtype: str = "float32", limit: int = 2, scale: float = 1.0, stem: str = "input"
    ) -> str:
        """Add an input of the model."""
        name = self.name(stem)
        self.inputs[name] = InputRecord(tuple(shape), dtype, limit, scale)
        self.values[name] = self.inputs[name].sample(self.rng)
        return name

    def constant(self, value: Any, dtype: str = "float32", stem: str = "constant") -> str:
        """Add a constant: an initializer, at times a Constant node, at times one that is there already."""
        array = np.asarray(value, dtype)
        if dtype == "float32" and self.chance(self.share):
            for name in sorted(self.constants):
                other = self.values[name]
                if other.shape == array.shape and other.dtype == array.dtype and array.size > 1:
                    return name
        name = self.name(stem)
        if self.chance(0.15):
            tensor = numpy_helper.from_array(array, "" if self.chance(0.5) else name)
            self.nodes.append(helper.make_node("Constant", [], [name], name=self._node_name("Constant"), value=tensor))
        else:
            self.initializers.append(numpy_helper.from_array(array, name))
        self.values[name] = array
        self.constants.add(name)
        return name

    def weight(self, *shape: int, fan_in: int | None = None, stem: str = "weight") -> str:
        """Add a float constant whose products stay near one; at times with zeros, outliers or equal numbers."""
        size = math.prod(shape[1:]) if fan_in is None else fan_in
        array = self.rng.normal(size=shape) / math.sqrt(max(1, size))
        kind = self.rng.random()
        if kind < 0.03:
            array = np.zeros(shape)
        elif kind < 0.06:
            array = np.full(shape, 0.25)
        elif kind < 0.09 and array.ndim and len(array):
            array[0] *= 50.0
        elif kind < 0.12 and array.ndim and len(array):
            array[0] *= 1e-39
        return self.constant(array, stem=stem)

    def positive(self, *shape: int) -> str:
        """Add a float constant of numbers between 0.5 and 2."""
        return self.constant(self.rng.uniform(0.5, 2.0, shape))

    def value(self, name: str) -> Array:
        """Return what a tensor holds for the sample."""
        if name in self.values or self.parent is None:
            return self.values[name]
        return self.parent.value(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self.value(name).shape)

    def add(
        self, op: str, *inputs: str, outputs: int = 1, bodies: Sequence[GraphBuilder] = (), **attributes: Any
    ) -> Any:
        """Add a node and run it; return the name of its output, or a list of several."""
        names = [self.name(op.lower()) for _ in range(outputs)]
        node = helper.make_node(op, list(inputs), names, name=self._node_name(op), **attributes)
        results = self._run(node, [*inputs, *(name for inner in bodies for name in inner.reads())])
        for result in results:
            if result.size > MAX_ELEMENTS:
                raise Rejected(f"{op} makes {result.size} elements")
            if result.dtype.kind == "f" and result.size and not np.abs(result).max() < MAX_VALUE:
                raise Rejected(f"{op} makes values that are too large")
        self.nodes.append(node)
        self.values.update(zip(names, results, strict=True))
        return names[0] if outputs == 1 else names

    def reads(self) -> list[str]:
        """Return what the nodes of a body read from the graph around it."""
        names = [name for node in self.nodes for name in node.input if name and name not in self.values]
        return list(dict.fromkeys(names))

    def axes(self, op: str, source: str, axes: Sequence[int], since: int, **attributes: Any) -> Any:
        """Add a node whose axes are an attribute below opset `since`, and an input from there on."""
        if self.opset < since:
            return self.add(op, source, axes=list(axes), **attributes)
        return self.add(op, source, self.constant(axes, "int64", "axes"), **attributes)

    def floats(self, least: int = 0, most: int = 9) -> list[str]:
        """Return the float tensors that are no constants, of ranks from `least` to `most`."""
        return [
            name
            for name, value in self.values.items()
            if value.dtype == np.float32 and name not in self.constants and value.size
            if least <= value.ndim <= most
        ]

    def pick(self, rank: int | None = None, least: int = 0, most: int = 9) -> str:
        """Return one of those tensors, mostly a recent one."""
        names = self.floats(least, most) if rank is None else self.floats(rank, rank)
        if not names:
            raise Rejected(f"no tensor of rank {rank}, or {least} to {most}")
        return str(names[-1] if self.chance(0.6) else self.choose(names[-6:]))

    def graph(self, outputs: Sequence[onnx.ValueInfoProto], inputs: Sequence[onnx.ValueInfoProto] = ()) -> Any:
        """Return the graph, as the body of a node or of a model."""
        return helper.make_graph(self.nodes, self.name("graph"), list(inputs), list(outputs), self.initializers)

    def declared(self, name: str, stated: float = 0.5) -> onnx.ValueInfoProto:
        """Return a description of a tensor: some dimensions may be open, or all unknown."""
        array = self.value(name)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if self.chance(0.5 * (1 - stated)):
            return helper.make_tensor_value_info(name, kind, None)
        dims: list[int | str | None] = list(array.shape)
        for axis in range(len(dims)):
            if self.chance(0.7 if axis == 0 else 0.15) and not self.chance(stated):
                dims[axis] = self.choose(["N", f"dim_{axis}", None, -1])
        value = helper.make_tensor_value_info(name, kind, [dim if dim != -1 else None for dim in dims])
        for dim, size in zip(value.type.tensor_type.shape.dim, dims, strict=True):
            if size == -1:
                dim.dim_value = -1
        return value

    def add_functions(self, model: onnx.ModelProto) -> None:
        """Add the functions that nodes call to a model."""
        root = self
        while root.parent is not None:
            root = root.parent
        for function in root.functions.values():
            model.functions.append(function)
        if root.functions:
            model.opset_import.append(helper.make_opsetid(model.functions[0].domain, 1))

    def _node_name(self, op: str) -> str:
        return "" if self.chance(0.2) else self.name(op)

    def _run(self, node: onnx.NodeProto, names: Sequence[str]) -> list[Array]:
        """Run one node on the values of the sample."""
        read = [name for name in dict.fromkeys(names) if name]
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(self.value(name).dtype), self.shape(name)
            )
            for name in read
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "node", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        self.add_functions(model)
        try:
            session = session_of(model.SerializeToString())
            results: list[Array] = session.run(None, {name: self.value(name) for name in read})
        except Exception as error:
            raise Rejected(f"{node.op_type}: {error}") from error
        return [np.asarray(result) for result in results]


def session_of(model: bytes, optimised: bool = False) -> Any:
    """Return a session of ONNX Runtime that runs the model exactly as it is written, unless `optimised`."""
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def record_inputs(model: onnx.ModelProto, inputs: dict[str, InputRecord]) -> None:
    """Write into the model what its inputs are fed with."""
    plain = {name: [list(entry.shape), entry.dtype, entry.limit, entry.scale] for name, entry in inputs.items()}
    helper.set_model_props(model, {INPUTS_KEY: json.dumps(plain)})


def recorded_inputs(model: onnx.ModelProto) -> dict[str, InputRecord]:
    """Return what the inputs of a model are fed with, from the model itself."""
    text = next(entry.value for entry in model.metadata_props if entry.key == INPUTS_KEY)
    return {name: InputRecord(tuple(entry[0]), *entry[1:]) for name, entry in json.loads(text).items()}


def make_feeds(model: onnx.ModelProto, count: int = 3, seed: int = 0) -> list[Feed]:
    """Return samples for a model that says what its inputs are fed with."""
    rng = np.random.default_rng(seed)
    inputs = recorded_inputs(model)
    return [{name: entry.sample(rng) for name, entry in inputs.items()} for _ in range(count)]
