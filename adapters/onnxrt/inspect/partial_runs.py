"""Partial runs: models that differ from the float model in a single op, run from that op on.

The float graph is cut into segments of consecutive nodes, each with a session of its own. The float tensors between the
segments are computed once for each feed. A model in which one op is quantized then needs a session for the segment of
that op alone, and runs that segment and those after it that read something changed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper

from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.build.serialized_model import SerializedModel, merged
from quaver.adapters.onnxrt.load.graph import Graph, captures
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.session import Session
from quaver.errors import BuildError
from quaver.ops import QuantConfig
from quaver.types import Array, Feed

# Segments of a graph. Creating a session takes as long as running the model several times and grows with its nodes, so
# more segments save more, up to where the cost of a call counts. Judgement.
MAX_SEGMENTS = 24
# Nodes of a segment; shorter ones would split what the optimiser fuses. Judgement.
MIN_NODES = 8
# The memory for tensors between segments. Feeds that do not fit run through the float model again for each op.
MAX_KEPT_BYTES = 128 * 2**20
# Elements of a tensor whose shape is unknown, to compare places to cut at. Judgement.
USUAL_ELEMENTS = 2**16


@dataclass(slots=True)
class _Segment:
    """Consecutive nodes of the float graph.

    Attributes:
        start: index of the first node.
        stop: index behind the last one.
        reads: the tensors it reads from the model's inputs and from earlier segments.
        writes: the tensors that later segments read, and outputs of the model.
        session: runs it in float; None until it is needed.
    """

    start: int
    stop: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    session: Session | None = None


class PartialRuns:
    """Runs the float model, and models that differ from it in one op, on the same feeds.

    Args:
        builder: the builder of the models.
        feeds: the inputs.
        threads: threads of the sessions.
    """

    def __init__(self, builder: Builder, feeds: Sequence[Feed], threads: int) -> None:
        self._builder, self._feeds, self._threads = builder, feeds, threads
        graph = builder.graph
        self._outputs = [value.name for value in graph.outputs]
        self._units = {unit.op.name: unit for unit in builder.units}
        self._segments = [_segment(graph, *bounds) for bounds in itertools.pairwise(_cuts(graph, builder.units))]
        self._known = {value.name: value for value in graph.inputs}
        self._kept: dict[int, dict[str, Array]] = {}
        self._free_bytes = MAX_KEPT_BYTES

    def outputs(self, config: QuantConfig, count: int) -> list[list[Array]] | None:
        """Return the model's outputs for the first feeds in a configuration with at most one quantized op.

        Returns:
            The outputs; None if the model cannot be cut, or if the configuration changes more than one place.
        """
        if any(name not in self._builder.graph.producers for name in self._outputs):
            return None
        if not (ops := config.quantized_ops):
            floats = [self._float_values(index) for index in range(count)]
            return [[values[name] for name in self._outputs] for values in floats]
        emitter = Emitter(self._builder, config)
        if len(ops) > 1 or emitter.rescaled_at_source:
            return None
        self._float_values(0)  # it tells the types of the tensors between segments
        first, last = self._place(self._units[ops[0]])
        head = _segment(self._builder.graph, self._segments[first].start, self._segments[last].stop)
        head.session = self._open(emitter, head)
        visible = {emitter.visible(name): name for name in head.writes}
        results = []
        for index in range(count):
            values = self._float_values(index)
            changed = _changed(head.session, head.reads, visible, values, {})
            for segment in self._segments[last + 1 :]:
                if any(name in changed for name in segment.reads):
                    names = {name: name for name in segment.writes}
                    changed |= _changed(self._session(segment), segment.reads, names, values, changed)
            results.append([changed.get(name, values[name]) for name in self._outputs])
        return results

    def _float_values(self, index: int) -> dict[str, Array]:
        """Return the inputs, outputs and tensors between segments of the float model for a feed."""
        if index in self._kept:
            return self._kept[index]
        values: dict[str, Array] = dict(self._feeds[index])
        for segment in self._segments:
            session = self._session(segment, values)
            results = session.run(list(segment.writes), {name: values[name] for name in segment.reads})
            values.update(zip(segment.writes, results, strict=True))
        size = sum(array.nbytes for name, array in values.items() if name not in self._feeds[index])
        if size <= self._free_bytes:
            self._kept[index] = values
            self._free_bytes -= size
        return values

    def _place(self, unit: Unit) -> tuple[int, int]:
        """Return the first and the last segment with nodes of a unit."""
        ends = min(unit.nodes), max(unit.nodes)
        first, last = (next(i for i, part in enumerate(self._segments) if node < part.stop) for node in ends)
        return first, last

    def _session(self, segment: _Segment, values: Mapping[str, Array] | None = None) -> Session:
        if segment.session is None:
            for name in segment.reads:
                if name not in self._known:
                    self._known[name] = self._described(name, (values or {})[name])
            segment.session = self._open(Emitter(self._builder, None), segment)
        return segment.session

    def _open(self, emitter: Emitter, segment: _Segment) -> Session:
        """Open a session of the nodes of a segment, as the emitter writes them."""
        nodes = self._builder.graph.nodes[segment.start : segment.stop]
        captured = sorted(set().union(*map(captures, nodes)))
        emitter.run_part(range(segment.start, segment.stop), captured)
        outputs = [ValueInfoProto(name=emitter.visible(name)) for name in segment.writes]
        graph = GraphProto(name="segment", input=[self._known[name] for name in segment.reads], output=outputs)
        shell, _ = self._builder.frame(emitter.uses_ort_domain)
        parts = merged([*emitter.nodes, *emitter.entries, graph.SerializeToString(deterministic=True)])
        serialized = SerializedModel(shell, tuple(parts), self._builder.store)
        folder = serialized.store.path.parent
        return sessions.create(serialized.skeleton(), sessions.options(self._threads), folder)

    def _described(self, name: str, value: Array) -> ValueInfoProto:
        """Describe a tensor between segments by its value in the first feed; its dimensions may vary."""
        if not isinstance(value, np.ndarray):
            raise BuildError(f"{name!r} is not a tensor")
        shape = self._builder.graph.shapes.get(name, (None,) * value.ndim)
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)


def _changed(
    session: Session,
    reads: Sequence[str],
    names: Mapping[str, str],
    values: Mapping[str, Array],
    changed: Mapping[str, Array],
) -> dict[str, Array]:
    """Run a segment, and return what it writes that differs from the float model.

    Args:
        session: the session of the segment.
        reads: the tensors it reads.
        names: by name in the session, the tensor it stands for.
        values: the tensors of the float model.
        changed: those that differ so far.
    """
    results = session.run(list(names), {name: changed.get(name, values[name]) for name in reads})
    written = zip(names.values(), results, strict=True)
    return {name: result for name, result in written if not np.array_equal(result, values[name])}


def _segment(graph: Graph, start: int, stop: int) -> _Segment:
    """Return a segment with what it reads and writes."""
    inside = {name for node in graph.nodes[start:stop] for name in node.output if name}
    needed = (name for node in graph.nodes[start:stop] for name in (*node.input, *sorted(captures(node))))
    reads = dict.fromkeys(name for name in needed if name and name not in inside and name not in graph.constants)
    own = {name for name in reads if graph.producers.get(name) is None and not _is_input(graph, name)}
    writes = [
        name
        for node in graph.nodes[start:stop]
        for name in node.output
        if name and (name in graph.output_names or any(index >= stop for index in graph.consumers.get(name, ())))
    ]
    return _Segment(start, stop, tuple(name for name in reads if name not in own), tuple(writes))


def _is_input(graph: Graph, name: str) -> bool:
    return any(value.name == name for value in graph.inputs)


def _cuts(graph: Graph, units: Sequence[Unit]) -> list[int]:
    """Return the indices of nodes that segments begin at, and the number of nodes.

    Segments have about as many nodes each. Near each even place the cut with the fewest values is taken, if possible
    none within an op.
    """
    count = len(graph.nodes)
    segments = max(1, min(MAX_SEGMENTS, count // MIN_NODES))
    values = np.zeros(count + 1)
    for name, start in graph.producers.items():
        if readers := graph.consumers.get(name):
            size = math.prod(graph.shapes[name]) if name in graph.shapes else USUAL_ELEMENTS
            values[start + 1 : max(readers) + 1] += size
    inside = np.zeros(count + 1, bool)
    for unit in units:
        inside[min(unit.nodes) + 1 : max(unit.nodes) + 1] = True
    cuts, reach = [0], count // (3 * segments)
    for number in range(1, segments):
        middle = count * number // segments
        places = range(max(middle - reach, cuts[-1] + 1), min(middle + reach, count - 1) + 1)
        if places:
            cuts.append(min(places, key=lambda place: (inside[place], values[place], abs(place - middle))))
    return [*cuts, count]
