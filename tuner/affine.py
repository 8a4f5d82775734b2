"""Affine quantization: real = scale * (integer - zero_point)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quaver.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class QuantizationParameters:
    """The scale and zero point of a tensor in integers, for the whole tensor or for each channel.

    Attributes:
        scale: the size of one step; a scalar array, or one value for each channel.
        zero_point: the integer of the real number zero, of the same shape. Its type is that of the integers.
        axis: the axis of the channels; None with one scale for the whole tensor.
    """

    scale: Array
    zero_point: Array
    axis: int | None = None

    @property
    def integers(self) -> tuple[int, int]:
        """The smallest and the largest integer, also of types of fewer than 8 bits, which numpy itself lacks."""
        kind = self.zero_point.dtype.name
        count = 2 ** int(re.sub(r"\D", "", kind))
        return (0, count - 1) if kind.startswith("u") else (-count // 2, count // 2 - 1)

    @property
    def steps(self) -> int:
        """The number of steps between the smallest and the largest integer: 255 in 8 bits."""
        low, high = self.integers
        return high - low

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest real number of one scale; values beyond are clipped."""
        step, zero = float(self.scale), int(self.zero_point)
        low, high = self.integers
        return (low - zero) * step, (high - zero) * step

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale, or those of all channels, as plain numbers."""
        return tuple(map(float, self.scale.reshape(-1)))

    @property
    def zero_points(self) -> tuple[int, ...]:
        """The zero point, or those of all channels, as plain numbers."""
        return tuple(map(int, self.zero_point.reshape(-1)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantizationParameters):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.zero_point.dtype, self.axis, self.scales, self.zero_points


class QuantizedTensor(NamedTuple):
    """A tensor in integers."""

    values: Array
    parameters: QuantizationParameters

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.values.shape

    @property
    def nbytes(self) -> int:
        """The bytes of its values."""
        return self.values.nbytes

    def dequantized(self) -> Array:
        """Return the tensor as float32."""
        return self.rescaled(self.values.astype(np.float32))

    def rescaled(self, values: Array) -> Array:
        """Turn the integers, copied into an array of floats, into real numbers in place."""
        parameters = self.parameters
        if parameters.axis is None:
            zero, scale = int(parameters.zero_point), float(parameters.scale)
            if zero:
                values -= zero
            values *= scale
        else:
            shape = [1] * values.ndim
            shape[parameters.axis] = -1
            zeros = parameters.zero_point.astype(values.dtype)
            if zeros.any():
                values -= zeros.reshape(shape)
            values *= parameters.scale.reshape(shape)
        return values


def quantized(values: Array, parameters: QuantizationParameters) -> QuantizedTensor:
    """Quantize real numbers with one scale."""
    steps = np.rint(values / float(parameters.scale)) + int(parameters.zero_point)
    return QuantizedTensor(np.clip(steps, *parameters.integers).astype(parameters.zero_point.dtype), parameters)


def as_float(tensor: Array | QuantizedTensor) -> Array:
    """Return a tensor as real numbers, whether it is quantized or not."""
    return tensor.dequantized() if isinstance(tensor, QuantizedTensor) else tensor
