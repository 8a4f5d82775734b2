"""Predict the latency of any mixed-precision config from few measurements, and find the fastest by a minimum cut.

An op takes its time in fp32 or in its quantized choice; a tensor that crosses an edge between the two is converted,
which takes time per element and per conversion. Ops whose activations are not calibrated (dynamic ranges, or only the
weight in 8 bits) read and write float: for edges they are like fp32 ops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.ops import QuantConfig

# Capacities of a cut are whole numbers of 32 bits: all times together are this many units, and an arc that must not be
# cut has all that is left.
_UNITS = 10**9
_ENDLESS = 2**31 - 1 - _UNITS
# The costs of conversions as long as nothing was measured: seconds per quantized element and per dequantized one, and
# seconds per conversion to 8 bits and back. Judgement: typical of one x86 core.
USUAL_COSTS = (0.4e-9, 0.4e-9, 2e-6, 2e-6)
# The usual costs are multiplied by whichever of these fits measured configs best. Factors of two: a fit to a few
# measurements tells no more.
COST_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


class Edge(NamedTuple):
    """A tensor between ops, which is converted where one side is quantized and the other is not.

    Attributes:
        producer: the op that writes it, in 8 bits if it is quantized.
        readers: the ops that read it in 8 bits if they are quantized.
        elements: the number of elements in one inference.
        apart: for each reader the seconds that it takes in fp32 if the producer is quantized, and does not take if one
            kernel does both; empty if there are none.
    """

    producer: str
    readers: tuple[str, ...]
    elements: int
    apart: tuple[float, ...] = ()

    @property
    def seconds_apart(self) -> tuple[float, ...]:
        """The seconds of `apart`, one for each reader."""
        return self.apart or (0.0,) * len(self.readers)


class Conversions(NamedTuple):
    """The conversions of a configuration: elements that are quantized and dequantized, tensors to int8 and back."""

    quantized: int
    dequantized: int
    to: int
    back: int


@dataclass(frozen=True, slots=True)
class TimeModel:
    """Predicts the seconds of one inference.

    Attributes:
        fp32: seconds of each op in fp32, or in the float precision that it falls back to.
        quantized: seconds of each op in its quantized choice.
        rest: seconds of everything that no configuration changes.
        edges: the tensors between ops.
        costs: seconds of a quantized element, a dequantized one, a conversion to 8 bits and one back.
        fp32_model: seconds of the fp32 model; None if they are those of all ops in `fp32`.
        fit: correlation and relative error of the prediction on the configs it was fitted to; None if to none.
    """

    fp32: Mapping[str, float]
    quantized: Mapping[str, float]
    rest: float = 0.0
    edges: tuple[Edge, ...] = ()
    costs: tuple[float, float, float, float] = USUAL_COSTS
    fp32_model: float | None = None
    fit: tuple[float, float] | None = field(default=None, compare=False)

    def predict(self, config: QuantConfig) -> float:
        """Return the seconds of one inference of a configuration."""
        return self._ops(config) + float(np.dot(self.conversions(config), self.costs)) + self._apart(config)

    def relative(self, config: QuantConfig) -> float:
        """Return the predicted time of a configuration relative to the fp32 model's."""
        whole = self.rest + sum(self.fp32.values()) if self.fp32_model is None else self.fp32_model
        return self.predict(config) / whole

    def saved(self, name: str) -> float:
        """Return the seconds that an op saves by itself when it is quantized; negative where it is slower."""
        return self.fp32[name] - self.quantized[name]

    def conversions(self, config: QuantConfig) -> Conversions:
        """Return the conversions of a configuration."""
        quantized = dequantized = to = back = 0
        for edge in self.edges:
            reading = {config[name].calibrated for name in edge.readers}
            if config[edge.producer].calibrated:
                if False in reading:
                    dequantized, back = dequantized + edge.elements, back + 1
            elif True in reading:
                quantized, to = quantized + edge.elements, to + 1
        return Conversions(quantized, dequantized, to, back)

    def with_costs(self, factor: float) -> TimeModel:
        """Return the model with conversions that cost `factor` times as much."""
        to_element, from_element, to, back = (factor * cost for cost in self.costs)
        return replace(self, costs=(to_element, from_element, to, back))

    def fitted(self, measured: Sequence[tuple[QuantConfig, float]]) -> TimeModel:
        """Return the model with costs of conversions that fit whole configurations that were measured.

        One factor for all costs, of a few, so that a little noise changes nothing.
        """
        if not measured or not self.edges:
            return self
        times = np.array([seconds for _, seconds in measured])
        models = [replace(self, costs=USUAL_COSTS).with_costs(factor) for factor in COST_FACTORS]
        predictions = [np.array([model.predict(config) for config, _ in measured]) for model in models]
        # Not squared: a single config that no such model explains must not decide.
        errors = [float(np.mean(np.abs(np.log(predicted / times)))) for predicted in predictions]
        best = errors.index(min(errors))
        return replace(models[best], fit=_quality(predictions[best], times))

    def fastest(
        self,
        start: QuantConfig,
        free: Collection[str],
        sensitivity: Mapping[str, float] | None = None,
        price: float = 0.0,
        doubt: Mapping[str, float] | None = None,
    ) -> QuantConfig:
        """Return the mix of `start` and fp32 with the least predicted time plus the price of its sensitivity.

        Args:
            start: how ops run that are quantized.
            free: the ops that may fall back from it; all others run as in `start`.
            sensitivity: what each op does to the outputs when it is quantized.
            price: seconds that a unit of sensitivity is worth.
            doubt: seconds that an op must save in fp32 before it falls back; ties keep the quantized choice.
        """
        sensitivity, doubt = sensitivity or {}, doubt or {}
        names = [name for name in start if start[name].quantized or name in free]
        costs = {
            name: _OpCost(
                self.quantized.get(name, 0.0) - doubt.get(name, 0.0) + price * sensitivity.get(name, 0.0),
                self.fp32.get(name, 0.0),
            )
            for name in names
            if name in free
        }
        if not self.edges:
            return start.fallback(*(name for name, cost in costs.items() if cost.stay > cost.leave))
        cut = _Cut(start, names, self.costs)
        for name in names:
            cut.add_op(name, costs.get(name))
        for edge in self.edges:
            cut.add_edge(edge)
        quantized = cut.quantized()
        return start.fallback(*(name for name in costs if name not in quantized))

    def _apart(self, config: QuantConfig) -> float:
        """Return the seconds of kernels that would be fused with another one if that were not quantized."""
        return sum(
            seconds
            for edge in self.edges
            if edge.apart and config[edge.producer].calibrated
            for name, seconds in zip(edge.readers, edge.apart, strict=True)
            if not config[name].calibrated
        )

    def _ops(self, config: QuantConfig) -> float:
        seconds = (self.quantized if pick.quantized else self.fp32 for pick in config.values())
        return self.rest + sum(times.get(name, 0.0) for name, times in zip(config, seconds, strict=True))


class _OpCost(NamedTuple):
    """The seconds of an op that stays quantized, and of one that leaves for fp32."""

    stay: float
    leave: float


class _Cut:
    """A minimum cut between the ops that stay quantized (the source's side) and those in fp32 (the sink's side).

    Each op is a node; the cost of a side is an arc that is cut when the op is on that side. A conversion is a node that
    follows the ops that need it.
    """

    def __init__(self, start: QuantConfig, names: Sequence[str], costs: Sequence[float]) -> None:
        self._start = start
        self._nodes = {name: index for index, name in enumerate(names)}
        self._source, self._sink = len(names), len(names) + 1
        self._count = len(names) + 2
        self._to_element, self._from_element, self._to, self._back = costs
        self._arcs: dict[tuple[int, int], float] = {}
        self._endless: list[tuple[int, int]] = []

    def add_op(self, name: str, cost: _OpCost | None) -> None:
        """Add an op with its costs; None if it must stay quantized."""
        node = self._nodes[name]
        if cost is None:
            self._endless.append((self._source, node))
            return
        self._add(node, self._sink, max(cost.stay, 0.0) + max(-cost.leave, 0.0))
        self._add(self._source, node, max(cost.leave, 0.0) + max(-cost.stay, 0.0))

    def add_edge(self, edge: Edge) -> None:
        """Add the conversions of a tensor."""
        readers = [self._nodes[name] for name in edge.readers if self._reads_int8(name)]
        to_int8 = edge.elements * self._to_element + self._to
        to_float = edge.elements * self._from_element + self._back
        if not self._reads_int8(edge.producer):
            if readers:  # the producer writes fp32 in any case: converted once if any reader is quantized
                self._add(self._join(into=readers), self._sink, to_int8)
            return
        producer = self._nodes[edge.producer]
        for name, seconds in zip(edge.readers, edge.seconds_apart, strict=True):
            self._add(producer, self._nodes[name] if self._reads_int8(name) else self._sink, seconds)
        if readers:
            self._add(self._join(into=readers), producer, to_int8)
        if len(readers) < len(edge.readers):  # some reader is always fp32
            self._add(producer, self._sink, to_float)
        elif readers:
            node = self._new_node()
            self._add(producer, node, to_float)
            self._endless += [(node, reader) for reader in readers]

    def quantized(self) -> set[str]:
        """Return the ops that stay quantized."""
        side = _source_side(self._count, self._source, self._sink, self._arcs, self._endless)
        return {name for name, node in self._nodes.items() if node in side}

    def _reads_int8(self, name: str) -> bool:
        return name in self._nodes and self._start[name].calibrated

    def _join(self, into: Sequence[int]) -> int:
        """Return a new node that is on the source's side as soon as one of these is."""
        node = self._new_node()
        self._endless += [(reader, node) for reader in into]
        return node

    def _new_node(self) -> int:
        self._count += 1
        return self._count - 1

    def _add(self, tail: int, head: int, seconds: float) -> None:
        if seconds > 0:
            self._arcs[tail, head] = self._arcs.get((tail, head), 0.0) + seconds


def _quality(predicted: NDArray[np.float64], times: NDArray[np.float64]) -> tuple[float, float]:
    """Return the correlation, and the root mean square of the relative error."""
    spread = np.std(predicted) > 0 and np.std(times) > 0
    r = float(np.corrcoef(predicted, times)[0, 1]) if spread and len(times) > 1 else 1.0
    return r, float(np.sqrt(np.mean(np.square(predicted / times - 1.0))))


def _source_side(
    count: int,
    source: int,
    sink: int,
    arcs: Mapping[tuple[int, int], float],
    endless: Iterable[tuple[int, int]],
) -> set[int]:
    """Return the nodes on the source's side of a minimum cut; of several, of the cut with most nodes there."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    total = sum(arcs.values()) or 1.0
    table: dict[tuple[int, int], int] = {pair: round(_UNITS * seconds / total) for pair, seconds in arcs.items()}
    table |= dict.fromkeys(endless, _ENDLESS)
    tails, heads = np.array(list(table) or [(source, sink)]).T
    capacity = csr_array((np.array([*table.values()] or [0], np.int32), (tails, heads)), shape=(count, count))
    flow = maximum_flow(capacity, source, sink).flow
    residual: Any = (capacity.astype(np.int64) - flow.astype(np.int64)).tocsr()
    residual.data = (residual.data > 0).astype(np.int8)
    residual.eliminate_zeros()
    # A node that can still reach the sink is on its side; all others stay: ties are decided for the source.
    reaching = set(breadth_first_order(residual.T.tocsr(), sink, directed=True, return_predecessors=False).tolist())
    return set(range(count)) - reaching
