"""How long any mixture of precisions takes, predicted from few measurements, and the fastest mixture by a minimum cut.

An op takes its time in fp32 or in its reduced choice; a tensor that crosses a border between the two is converted, and
that takes so much an element and so much a conversion. Ops whose activations are not calibrated (dynamic ranges, or the
weight alone in 8 bits) read float and write float: for borders they are as fp32 ops are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.ops import QuantConfig

# Capacities of a cut are whole numbers; all times together are this many units.
_UNITS = 10**9
_ENDLESS = 2**31 - 1 - _UNITS
# What a conversion is taken to cost as long as nothing was measured: seconds an element, and seconds each.
USUAL = (0.4e-9, 0.4e-9, 2e-6, 2e-6)
# What the usual costs are multiplied by, whichever of these fits best.
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


class Edge(NamedTuple):
    """A tensor between ops, which is converted where one side is reduced and the other is not.

    Attributes:
        producer: the op that writes it, in 8 bits if it is reduced.
        readers: the ops that read it in 8 bits if they are reduced.
        elements: how many numbers it holds in one inference.
        apart: for each reader the seconds that it takes in fp32 if the producer is reduced, and does not if one kernel
            does both; empty if there are none.
    """

    producer: str
    readers: tuple[str, ...]
    elements: int
    apart: tuple[float, ...] = ()


class Conversions(NamedTuple):
    """How much is converted in a configuration."""

    quantized: int
    dequantized: int
    to: int
    back: int


@dataclass(frozen=True, slots=True)
class TimeModel:
    """Predicts seconds of one inference.

    Attributes:
        fp32: seconds of each op in fp32.
        reduced: seconds of each op in its reduced choice.
        rest: seconds of all that no configuration changes.
        borders: the tensors between ops.
        costs: of a quantized element, a dequantized one, a conversion to 8 bits and one back.
        fit: correlation and relative error of the prediction on the mixtures it was fitted to; None if to none.
    """

    fp32: Mapping[str, float]
    quantized: Mapping[str, float]
    rest: float = 0.0
    borders: tuple[Edge, ...] = ()
    costs: tuple[float, float, float, float] = USUAL
    fit: tuple[float, float] | None = field(default=None, compare=False)

    def predict(self, config: QuantConfig) -> float:
        """Seconds of one inference of a configuration."""
        return self._ops(config) + float(np.dot(self.conversions(config), self.costs)) + self._apart(config)

    def relative(self, config: QuantConfig) -> float:
        """Return the predicted time of a configuration relative to the fp32 model's."""
        return self.predict(config) / (self.rest + sum(self.fp32.values()))

    def saved(self, name: str) -> float:
        """Seconds that an op saves by itself when it is reduced; negative where it is slower."""
        return self.fp32[name] - self.quantized[name]

    def conversions(self, config: QuantConfig) -> Conversions:
        """How much a configuration converts."""
        quantized = dequantized = to = back = 0
        for border in self.borders:
            reading = {config[name].calibrated for name in border.readers}
            if config[border.producer].calibrated:
                if False in reading:
                    dequantized, back = dequantized + border.elements, back + 1
            elif True in reading:
                quantized, to = quantized + border.elements, to + 1
        return Conversions(quantized, dequantized, to, back)

    def with_costs(self, factor: float) -> TimeModel:
        """The same model with conversions that cost so many times as much."""
        one, other, third, fourth = (factor * cost for cost in self.costs)
        return replace(self, costs=(one, other, third, fourth))

    def fitted(self, measured: Sequence[tuple[QuantConfig, float]]) -> TimeModel:
        """The same model with what conversions cost, as whole configurations that were measured tell it.

        One factor for all costs, of a few, so that a little noise changes nothing.
        """
        if not measured or not self.borders:
            return self
        times = np.array([seconds for _, seconds in measured])
        models = [replace(self, costs=USUAL).with_costs(factor) for factor in FACTORS]
        predicted = [np.array([model.predict(config) for config, _ in measured]) for model in models]
        # Not squared: a single mixture that no such model explains is not to decide.
        off = [float(np.mean(np.abs(np.log(one / times)))) for one in predicted]
        best = off.index(min(off))
        return replace(models[best], fit=_quality(predicted[best], times))

    def fastest(
        self,
        start: QuantConfig,
        free: Collection[str],
        sensitivity: Mapping[str, float] | None = None,
        price: float = 0.0,
        doubt: Mapping[str, float] | None = None,
    ) -> QuantConfig:
        """The mixture of `start` and fp32 with the least predicted time, and harm at so many seconds a unit.

        Args:
            start: how ops run that are reduced.
            free: the ops that may fall back from it; all others run as in `start`.
            harm: what each op does to the outputs when it is reduced.
            price: of harm.
            doubt: seconds that an op must save in fp32 before it falls back; a tie is one for the reduced choice.
        """
        sensitivity, doubt = sensitivity or {}, doubt or {}
        names = [name for name in start if start[name].quantized or name in free]
        place = {name: index for index, name in enumerate(names)}
        source, sink = len(names), len(names) + 1
        arcs: dict[tuple[int, int], float] = {}

        def cost(name: str) -> tuple[float, float]:
            stay = self.quantized.get(name, 0.0) - doubt.get(name, 0.0) + price * sensitivity.get(name, 0.0)
            return stay, self.fp32.get(name, 0.0)

        def add(tail: int, head: int, seconds: float) -> None:
            if seconds > 0:
                arcs[tail, head] = arcs.get((tail, head), 0.0) + seconds

        fixed: list[tuple[int, int]] = []
        if not self.borders:
            stay_or_leave = {name: cost(name) for name in names if name in free}
            return start.fallback(*(name for name, (stay, leave) in stay_or_leave.items() if stay > leave))
        for name in names:
            if name not in free:
                fixed.append((source, place[name]))
                continue
            stay, leave = cost(name)
            add(place[name], sink, max(stay, 0.0) + max(-leave, 0.0))
            add(source, place[name], max(leave, 0.0) + max(-stay, 0.0))
        count = sink + 1
        for border in self.borders:
            readers = [place[name] for name in border.readers if name in place and start[name].calibrated]
            cost_to = border.elements * self.costs[0] + self.costs[2]
            cost_back = border.elements * self.costs[1] + self.costs[3]
            always_float = len(readers) < len(border.readers)
            if border.producer not in place or not start[border.producer].calibrated:
                if readers:  # written in fp32: converted for the first reader that is reduced, at no choice of ours
                    fixed += [(reader, count) for reader in readers]
                    add(count, sink, cost_to)
                    count += 1
                continue
            producer = place[border.producer]
            for name, seconds in zip(border.readers, border.apart or (0.0,) * len(border.readers), strict=True):
                add(producer, place[name] if name in place and start[name].calibrated else sink, seconds)
            if readers:
                fixed += [(reader, count) for reader in readers]
                add(count, producer, cost_to)
                count += 1
            if always_float:
                add(producer, sink, cost_back)
            elif readers:
                add(producer, count, cost_back)
                fixed += [(count, reader) for reader in readers]
                count += 1
        kept = _source_side(count, source, sink, arcs, fixed)
        return start.fallback(*(name for name in names if name in free and place[name] not in kept))

    def _apart(self, config: QuantConfig) -> float:
        """What kernels take that would be one with another if that were not reduced."""
        return sum(
            seconds
            for border in self.borders
            if border.apart and config[border.producer].calibrated
            for name, seconds in zip(border.readers, border.apart, strict=True)
            if not config[name].calibrated
        )

    def _ops(self, config: QuantConfig) -> float:
        return self.rest + sum(
            (self.quantized if config[name].quantized else self.fp32).get(name, 0.0) for name in config
        )


def _quality(predicted: NDArray[np.float64], times: NDArray[np.float64]) -> tuple[float, float]:
    """Correlation, and root mean square of the relative error."""
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
    """The nodes on the source's side of a minimum cut; of all minimum cuts the one with most of them there."""
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
    # Whatever can still reach the sink is on its side; all others can stay: ties are broken for the source.
    reaching = set(breadth_first_order(residual.T.tocsr(), sink, directed=True, return_predecessors=False).tolist())
    return set(range(count)) - reaching
