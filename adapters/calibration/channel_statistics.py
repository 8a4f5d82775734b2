"""Statistics of each channel of a tensor from a stream of batches, for repairs. They merge, so memory stays small."""

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
    """What is to be known of a tensor, channel by channel.

    Attributes:
        tensor: its name in the float model.
        kind: "mean", "low" or "high", the lowest and the highest value.
        axis: the axis that holds channels; negative ones count from the end.
    """

    tensor: str
    kind: str
    axis: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CalibrationError(
                f"there is no statistic {self.kind!r} of channels; known are: {', '.join(map(repr, KINDS))}"
            )


class Accumulator(ABC):
    """One statistic while batches come in."""

    kind: ClassVar[str]

    def __init__(self, axis: int) -> None:
        self._axis = axis

    def add(self, values: Array) -> None:
        """Take in one batch."""
        if values.size:
            others = tuple(dim for dim in range(values.ndim) if dim != self._axis % values.ndim)
            self._add(values, others)

    @abstractmethod
    def _add(self, values: Array, others: tuple[int, ...]) -> None: ...

    @abstractmethod
    def result(self) -> Channels:
        """One value for each channel; empty if nothing came in."""


class Mean(Accumulator):
    """The mean of each channel."""

    kind = "mean"

    def __init__(self, axis: int) -> None:
        super().__init__(axis)
        self._sum = np.zeros(0)
        self._count = 0

    def _add(self, values: Array, others: tuple[int, ...]) -> None:
        found = values.sum(axis=others, dtype=np.float64)
        self._sum = found if not self._count else self._sum + found
        self._count += values.size // found.size

    def result(self) -> Channels:
        return self._sum / max(self._count, 1)


class Low(Accumulator):
    """The lowest value of each channel."""

    kind = "low"

    def __init__(self, axis: int) -> None:
        super().__init__(axis)
        self._low = np.zeros(0)

    def _add(self, values: Array, others: tuple[int, ...]) -> None:
        found = values.min(axis=others).astype(np.float64)
        self._low = np.minimum(self._low, found) if self._low.size else found

    def result(self) -> Channels:
        return self._low


class High(Accumulator):
    """The highest value of each channel."""

    kind = "high"

    def __init__(self, axis: int) -> None:
        super().__init__(axis)
        self._high = np.zeros(0)

    def _add(self, values: Array, others: tuple[int, ...]) -> None:
        found = values.max(axis=others).astype(np.float64)
        self._high = np.maximum(self._high, found) if self._high.size else found

    def result(self) -> Channels:
        return self._high


KINDS: Mapping[str, type[Accumulator]] = {kind.kind: kind for kind in (Mean, Low, High)}


def to_plain(found: Mapping[Statistic, Channels]) -> list[PlainDict]:
    """Statistics as builtins, to be kept with the calibration: arrays as bytes, with type and shape."""
    return [
        {
            "tensor": wanted.tensor,
            "kind": wanted.kind,
            "axis": wanted.axis,
            "dtype": _DTYPE.str,
            "shape": list(values.shape),
            "data": values.astype(_DTYPE).tobytes(),
        }
        for wanted, values in found.items()
    ]


def from_plain(kept: Iterable[PlainMapping]) -> dict[Statistic, Channels]:
    """What `to_plain` made builtins of. Of types of numbers only the one it writes is taken."""
    try:
        found = {}
        for item in kept:
            if item["dtype"] != _DTYPE.str:
                raise ValueError(f"numbers are of type {item['dtype']!r:.80}, not {_DTYPE.str!r}")
            found[Statistic(item["tensor"], item["kind"], item["axis"])] = np.frombuffer(item["data"], _DTYPE).reshape(
                item["shape"]
            )
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(f"the calibration holds statistics that cannot be read: {error}") from error
