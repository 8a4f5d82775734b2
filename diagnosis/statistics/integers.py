"""How a quantized tensor uses its integers: which ones, how often, and how many values lie at the ends."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from quaver.affine import QuantizationParameters, QuantizedTensor

# Integers of more bits have too many levels to count in memory.
MAX_COUNTED_BITS = 16


class IntegerCounts:
    """Count how often each integer of a tensor occurs, in constant memory."""

    def __init__(self, parameters: QuantizationParameters) -> None:
        self.low, self.high = parameters.integers
        self.counts = np.zeros(self.high - self.low + 1, np.int64)

    def add(self, tensor: QuantizedTensor) -> None:
        """Add the integers of one batch."""
        shifted = tensor.values.astype(np.int64).reshape(-1) - self.low
        self.counts += np.bincount(shifted, minlength=self.counts.size)

    @property
    def total(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    @property
    def used(self) -> int:
        """The number of different integers."""
        return int(np.count_nonzero(self.counts))

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest integer that occurred; those of the type before the first value."""
        used = np.flatnonzero(self.counts)
        return (self.low + int(used[0]), self.low + int(used[-1])) if used.size else (self.low, self.high)

    def share(self, integer: int) -> float:
        """Return the part of the values that equals this integer."""
        return float(self.counts[integer - self.low] / self.total) if self.total else float("nan")


@dataclass(frozen=True, slots=True)
class QuantizedTensorRow:
    """The statistics of a quantized tensor whose float values are not known.

    Attributes:
        op: the operator that writes it.
        kind: the type of that operator.
        tensor: the tensor's name.
        elements: the number of values.
        lowest, highest: the range of real numbers that its scale can represent.
        low, high: the smallest and the largest real number that occurred.
        saturated_low, saturated_high: the part of the values at an end of the range, so more may lie beyond; 0 for
            an end that is zero, where a Relu cuts.
        levels: the number of different integers that occurred, and `of_levels`, how many there are.
        scale, zero_point: the parameters of its integers.
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
        """The part of the values at either end of the range."""
        return self.saturated_low + self.saturated_high

    def figures(self) -> dict[str, float]:
        """Return all numeric fields by name."""
        return {name: float(value) for name, value in asdict(self).items() if isinstance(value, int | float)}


@dataclass(frozen=True, slots=True)
class QuantizedWeightRow:
    """The statistics of a quantized weight.

    Attributes:
        op: the operator that it belongs to.
        elements: the number of values.
        low, high: the smallest and the largest real number.
        scales: the number of scales, from `smallest_scale` to `largest_scale`.
        saturated: the part of the values with the largest integer. Quantizers put one value of each channel there.
        levels: the number of different integers that occurred, and `of_levels`, how many there are.
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
    name: str, kind: str, tensor: str, parameters: QuantizationParameters, levels: IntegerCounts, tensor_id: int | None
) -> QuantizedTensorRow:
    """Return the row of one tensor."""
    scale, zero = float(parameters.scale), int(parameters.zero_point)
    first, last = levels.range
    below, above = (0.0 if end == zero else levels.share(end) for end in (levels.low, levels.high))
    return QuantizedTensorRow(
        name, kind, tensor, levels.total, *parameters.limits, (first - zero) * scale, (last - zero) * scale, below,
        above, levels.used, levels.counts.size, scale, zero, tensor_id,
    )  # fmt: skip


def weight_row(name: str, weight: QuantizedTensor) -> QuantizedWeightRow:
    """Return the row of one weight."""
    levels, real = IntegerCounts(weight.parameters), weight.dequantized()
    levels.add(weight)
    largest = max(abs(levels.low), levels.high) if not levels.low else levels.high
    count = np.count_nonzero(np.abs(weight.values.astype(np.int64)) >= largest)
    scale, size = weight.parameters.scale, max(real.size, 1)
    low, high = (float(real.min()), float(real.max())) if real.size else (float("nan"), float("nan"))
    return QuantizedWeightRow(
        name, real.size, low, high, scale.size, float(scale.min()), float(scale.max()), float(count / size),
        levels.used, levels.counts.size,
    )  # fmt: skip
