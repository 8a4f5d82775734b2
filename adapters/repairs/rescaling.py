"""Repairs that divide each channel of a tensor by a factor, and multiply the weights that read it by the same.

In float nothing changes but rounding. In 8 bits, where one scale serves all channels of a tensor, channels of like size
keep more of their levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.calibration.channel_statistics import Channels, Statistic

if TYPE_CHECKING:
    from quaver.adapters.repairs.base import RepairableOp

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class SharedInput:
    """A tensor that ops with weights read, and that can be rescaled for all of them together.

    Attributes:
        tensor: its name in the float model.
        axis: the axis of it that holds channels.
        weight_peak: for each channel, the largest absolute weight that any of these ops multiplies it with.
        written_peak: for each channel, the largest absolute weight that it is computed with, where that is divided for
            the rescaling; None elsewhere.
    """

    tensor: str
    axis: int
    weight_peak: Float
    written_peak: Float | None = None


class Rescaling(ABC):
    """A repair of a tensor that several ops share.

    Write both methods, give it a `name` and the `strengths` to choose among, and register it with `register_repair`.
    Configurations spell it with its strength: "smoothing:0.5"; or by its name alone, if there are no strengths. The
    factors are the same for all ops that read the tensor and ask for the same strength; ops that do not ask for it read
    the tensor as it was.
    """

    name: ClassVar[str]
    strengths: ClassVar[tuple[float, ...]] = ()
    strength: ClassVar[float] = 1.0

    @abstractmethod
    def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
        """Return the tensor statistics that the repair needs; none if the op's input cannot be rescaled."""

    @abstractmethod
    def factors(self, shared: SharedInput, statistics: Mapping[Statistic, Channels], strength: float) -> Float:
        """Return the factor that each channel is divided by: finite, and above zero."""


def whole_range(op: RepairableOp) -> list[Statistic]:
    """Return the statistics of the lowest and highest value of each channel of an op's input."""
    return [Statistic(op.reads, kind, op.axis) for kind in ("low", "high")]


def weight_peak(op: RepairableOp) -> Float:
    """Return for each input channel of an op the largest absolute weight that multiplies it."""
    grouped = np.abs(op.weight).reshape(op.groups, -1, op.weight.shape[1], int(np.prod(op.weight.shape[2:])))
    return np.asarray(grouped.max(axis=(1, 3)).reshape(-1), np.float32)
