"""How a quantized tensor uses its integers: which it takes, how often, and how many values stick to the ends."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from quaver.affine import QuantizationParameters, QuantizedTensor

# Integers of more bits have too many levels to count.
MOST_BITS = 16


class Levels:
    """How often each integer of a tensor was seen, in constant memory."""

    def __init__(self, parameters: QuantizationParameters) -> None:
        self.low, self.high = parameters.integers
        self.counts = np.zeros(self.high - self.low + 1, np.int64)

    def add(self, tensor: QuantizedTensor) -> None:
        """Take in the integers of one batch."""
        shifted = tensor.values.astype(np.int64).reshape(-1) - self.low
        self.counts += np.bincount(shifted, minlength=self.counts.size)

    @property
    def total(self) -> int:
        """How many values were seen."""
        return int(self.counts.sum())

    @property
    def used(self) -> int:
        """How many different integers were seen."""
        return int(np.count_nonzero(self.counts))

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest integer that was seen; those that there are without any value."""
        seen = np.flatnonzero(self.counts)
        return (self.low + int(seen[0]), self.low + int(seen[-1])) if seen.size else (self.low, self.high)

    def share(self, integer: int) -> float:
        """Which part of the values is this integer."""
        return float(self.counts[integer - self.low] / self.total) if self.total else float("nan")


@dataclass(frozen=True, slots=True)
class QuantizedTensorRow:
    """What is known of a tensor in integers without the float values that they stand for.

    Attributes:
        op: the operator that writes it.
        kind: its type.
        tensor: the tensor's name.
        elements: how many values were seen.
        lowest, highest: the real numbers that its scale reaches from and to.
        low, high: the smallest and the largest real number that was seen.
        saturated_low, saturated_high: which part of the values sticks to an end of the range, so that more may lie
            beyond; 0 for an end that is zero, where a Relu cuts.
        levels: how many different integers were seen, and `of_levels`, how many there are.
        scale, zero_point: what its integers stand for.
        tensor_id: the number of the tensor, where tensors have numbers.
    """

    op: str
    kind: str
    tensor: str
    elements: int
    lowest: float
    highest: float
    low: float
    high: float
    saturated_low: float
    saturated_high: float
    levels: int
    of_levels: int
    scale: float
    zero_point: int
    tensor_id: int | None = None

    @property
    def saturated(self) -> float:
        """Which part of the values sticks to either end."""
        return self.saturated_low + self.saturated_high

    def figures(self) -> dict[str, float]:
        """All that is a number, by name."""
        return {name: float(value) for name, value in asdict(self).items() if isinstance(value, int | float)}


@dataclass(frozen=True, slots=True)
class QuantizedWeightRow:
    """What is known of a weight in integers.

    Attributes:
        op: the operator that it belongs to.
        elements: how many values it has.
        low, high: the smallest and the largest real number.
        scales: how many scales it has, from `smallest_scale` to `largest_scale`.
        saturated: which part of the values is the integer of largest size. Quantizers put one in each channel there.
        levels: how many different integers it has, and `of_levels`, how many there are.
    """

    op: str
    elements: int
    low: float
    high: float
    scales: int
    smallest_scale: float
    largest_scale: float
    saturated: float
    levels: int
    of_levels: int


def tensor_row(
    name: str, kind: str, tensor: str, parameters: QuantizationParameters, levels: Levels, tensor_id: int | None
) -> QuantizedTensorRow:
    """The row of one tensor."""
    scale, zero = float(parameters.scale), int(parameters.zero_point)
    first, last = levels.range
    below, above = (0.0 if end == zero else levels.share(end) for end in (levels.low, levels.high))
    return QuantizedTensorRow(
        name, kind, tensor, levels.total, *parameters.limits, (first - zero) * scale, (last - zero) * scale, below,
        above, levels.used, levels.counts.size, scale, zero, tensor_id,
    )  # fmt: skip


def weight_row(name: str, weight: QuantizedTensor) -> QuantizedWeightRow:
    """The row of one weight."""
    levels, real = Levels(weight.parameters), weight.dequantized()
    levels.add(weight)
    largest = max(abs(levels.low), levels.high) if not levels.low else levels.high
    count = np.count_nonzero(np.abs(weight.values.astype(np.int64)) >= largest)
    scale, size = weight.parameters.scale, max(real.size, 1)
    low, high = (float(real.min()), float(real.max())) if real.size else (float("nan"), float("nan"))
    return QuantizedWeightRow(
        name, real.size, low, high, scale.size, float(scale.min()), float(scale.max()), float(count / size),
        levels.used, levels.counts.size,
    )  # fmt: skip
