"""Run each int8 op by itself next to the float model: with its kernel of the quantized model, fed with float values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from quaver.adapters.litert.build.builder import Builder
from quaver.adapters.litert.build.submodel import Shapes, Submodel
from quaver.adapters.litert.inspect.matching import find_ops, is_quantized, parameters_of
from quaver.adapters.litert.load.graph import Graph, Operator
from quaver.adapters.litert.run.calibrator import InspectableModel
from quaver.adapters.litert.run.session import Session
from quaver.affine import QuantizedTensor, as_float
from quaver.ops import QuantConfig
from quaver.types import Array, Feed


class LocalOp:
    """One op of a quantized model. The runtime quantizes its float inputs first."""

    def __init__(self, ours: Graph, own: Operator, other: Graph, op: Operator, shapes: Shapes, threads: int) -> None:
        piece = Submodel(other, _renamed(ours, own, other, op, shapes))
        self._names: list[str] = []
        places: list[int] = []
        for slot, tensor in enumerate(op.inputs):
            if tensor < 0 or other.is_constant(tensor) or tensor in op.inputs[:slot]:
                continue
            quantized = parameters_of(other, tensor) is not None
            places.append(piece.quantized_from_float(tensor) if quantized else piece.place(tensor))
            self._names.append(ours.tensor_name(own.inputs[slot]))
        piece.add(op.index)
        self._session = Session(piece.content(places, op.outputs), self._names, threads)
        self._parameters = parameters_of(other, op.outputs[0])

    def run(self, float_model: InspectableModel) -> Array | QuantizedTensor:
        """Return the op's output for its inputs in the float model."""
        float_inputs: Feed = {name: float_model.raw(name) for name in self._names}
        values: Array = self._session.run(float_inputs)[0]
        return values if self._parameters is None else QuantizedTensor(values, self._parameters)


def _renamed(ours: Graph, own: Operator, other: Graph, op: Operator, shapes: Shapes) -> Shapes:
    """Return the shapes of the op's inputs and outputs in the float model, by the names of the other model."""
    pairs = [*zip(op.inputs, own.inputs, strict=False), *zip(op.outputs, own.outputs, strict=True)]
    return {
        other.tensor_name(theirs): shapes[ours.tensor_name(mine)]
        for theirs, mine in pairs
        if theirs >= 0 and not other.is_constant(theirs) and mine >= 0 and ours.tensor_name(mine) in shapes
    }


class LocalRuns:
    """The float model, with each int8 op of a quantized model next to it.

    Attributes:
        float_model: the float model.
    """

    def __init__(
        self,
        builder: Builder,
        other: Graph,
        matched: Mapping[str, Operator],
        inputs: list[str],
        threads: int,
        untuned: Mapping[str, Operator] | None = None,
    ) -> None:
        self.float_model = InspectableModel(builder.graph, inputs, threads)
        self._builder, self._other, self._threads = builder, other, threads
        self._int8 = {name: op for name, op in matched.items() if is_quantized(other, op)}
        graph = builder.graph
        self._own = {graph.names[op.index]: op for op in graph.operators}
        self._others = dict(untuned or {})
        self._made: dict[str, LocalOp] = {}

    def run(self, feed: Feed) -> None:
        """Run a feed through the float model."""
        self.float_model.invoke(feed)

    def output(self, name: str) -> tuple[Array, Array | QuantizedTensor | None]:
        """Return an op's float output, and its int8 output from the same inputs; None if it does not run in int8."""
        graph, own = self._builder.graph, self._own[name]
        before, op = (
            self.float_model.value(graph.tensor_name(own.outputs[0])),
            self._int8.get(name, self._others.get(name)),
        )
        if op is None:
            return before, None
        if not before.size:
            return before, np.zeros_like(before)
        if name not in self._made:
            self._made[name] = LocalOp(graph, own, self._other, op, self.float_model.shapes(), self._threads)
        return before, self._made[name].run(self.float_model)

    @property
    def names(self) -> Sequence[str]:
        """Return the ops that run in int8."""
        return list(self._int8)


OutputRecorder = Callable[[Feed], dict[str, Array]]


def record_outputs(
    builder: Builder, inputs: list[str], config: QuantConfig | None, ops: Sequence[str], threads: int
) -> OutputRecorder:
    """Return a function that runs a feed and returns the output of each of these ops as float."""
    model = InspectableModel(Graph(builder.build(config)), inputs, threads)
    tensors = {name: builder.output(name) for name in ops}

    def run(feed: Feed) -> dict[str, Array]:
        model.invoke(feed)
        return {name: model.value(tensor) for name, tensor in tensors.items()}

    return run


def local_errors(
    builder: Builder, inputs: list[str], config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """Return for each int8 op, fed with float inputs, its squared error and its squared output.

    The float model runs once for each feed; every op then runs by itself on the float model's tensors.
    """
    built = Graph(builder.build(config))
    local_runs = LocalRuns(builder, built, find_ops(builder, built), inputs, threads)
    sums = {name: np.zeros(2) for name in local_runs.names}
    for feed in feeds:
        local_runs.run(feed)
        for name in local_runs.names:
            before, after = local_runs.output(name)
            assert after is not None
            sums[name] += _squares(before.astype(np.float64) - as_float(after)), _squares(before)
    return {name: (float(noise), float(signal)) for name, (noise, signal) in sums.items()}


def _squares(values: Array) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))
