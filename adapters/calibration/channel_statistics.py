"""Statistics of each channel of a tensor from a stream of batches, for repairs, in little memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from quaver.errors import CalibrationError
from quaver.types import Array, PlainDict, PlainMapping

Channels = NDArray[np.float64]
_DTYPE = np.dtype("<f8")


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of a tensor, channel by channel, that a repair needs.

    Attributes:
        tensor: its name in the float model.
        kind: "mean", "low" or "high", the lowest and the highest value.
        axis: the axis that holds channels; negative ones count from the end.
    """

    tensor: str
    kind: str
    axis: int

    def __post_init__(self) -> None:
        if self.kind not in ACCUMULATORS:
            raise CalibrationError(
                f"there is no statistic {self.kind!r} of channels; known are: {', '.join(map(repr, ACCUMULATORS))}"
            )


class Accumulator(ABC):
    """One statistic while batches come in."""

    kind: ClassVar[str]

    def __init__(self, axis: int) -> None:
        self._axis = axis

    def add(self, values: Array) -> None:
        """Add one batch."""
        if values.size:
            other_axes = tuple(dim for dim in range(values.ndim) if dim != self._axis % values.ndim)
            self._add(values, other_axes)

    @abstractmethod
    def _add(self, values: Array, other_axes: tuple[int, ...]) -> None: ...

    @abstractmethod
    def result(self) -> Channels:
        """Return one value for each channel; empty if there was no batch."""


class Mean(Accumulator):
    """Mean of each channel."""

    kind = "mean"

    def __init__(self, axis: int) -> None:
        super().__init__(axis)
        self._sum = np.zeros(0)
        self._count = 0

    def _add(self, values: Array, other_axes: tuple[int, ...]) -> None:
        batch_sum = values.sum(axis=other_axes, dtype=np.float64)
        self._sum = batch_sum if not self._count else self._sum + batch_sum
        self._count += values.size // batch_sum.size

    def result(self) -> Channels:
        return self._sum / max(self._count, 1)


class Low(Accumulator):
    """Lowest value of each channel."""

    kind = "low"

    def __init__(self, axis: int) -> None:
        super().__init__(axis)
        self._low = np.zeros(0)

    def _add(self, values: Array, other_axes: tuple[int, ...]) -> None:
        batch_low = values.min(axis=other_axes).astype(np.float64)
        self._low = np.minimum(self._low, batch_low) if self._low.size else batch_low

    def result(self) -> Channels:
        return self._low


class High(Accumulator):
    """Highest value of each channel."""

    kind = "high"

    def __init__(self, axis: int) -> None:
        super().__init__(axis)
        self._high = np.zeros(0)

    def _add(self, values: Array, other_axes: tuple[int, ...]) -> None:
        batch_high = values.max(axis=other_axes).astype(np.float64)
        self._high = np.maximum(self._high, batch_high) if self._high.size else batch_high

    def result(self) -> Channels:
        return self._high


ACCUMULATORS: Mapping[str, type[Accumulator]] = {kind.kind: kind for kind in (Mean, Low, High)}


def to_records(statistics: Mapping[Statistic, Channels]) -> list[PlainDict]:
    """Return statistics as builtins, to be stored with the calibration: arrays as bytes, with type and shape."""
    return [
        {
            "tensor": statistic.tensor,
            "kind": statistic.kind,
            "axis": statistic.axis,
            "dtype": _DTYPE.str,
            "shape": list(values.shape),
            "data": values.astype(_DTYPE).tobytes(),
        }
        for statistic, values in statistics.items()
    ]


def from_records(records: Iterable[PlainMapping]) -> dict[Statistic, Channels]:
    """Return the statistics from `to_records`. Only the number type that it writes is accepted."""
    try:
        statistics = {}
        for record in records:
            if record["dtype"] != _DTYPE.str:
                raise ValueError(f"numbers are of type {record['dtype']!r:.80}, not {_DTYPE.str!r}")
            statistics[Statistic(record["tensor"], record["kind"], record["axis"])] = np.frombuffer(
                record["data"], _DTYPE
            ).reshape(record["shape"])
        return statistics
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(f"the calibration holds statistics that cannot be read: {error}") from error
