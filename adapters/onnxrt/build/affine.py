"""The arithmetic of 8 bits: real = scale * (integer - zero_point)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.onnxrt.build.saturation import WEIGHT_LIMIT, Reduction, bound_pairs, pair_peak
from quaver.quantization import QuantizationParameters, QuantizedTensor

Float = NDArray[np.float32]

# A bias is stored as int32 in steps of (activation scale * weight scale); beyond this it would wrap.
BIAS_LIMIT = 2**31 - 129


def activation_parameters(low: float, high: float, scheme: str) -> QuantizationParameters:
    """Scale and zero point of a uint8 activation that map [low, high] onto 0..255 with an exact zero.

    An all-zero range gets a scale of 1/255: any would do for the values, but the bias of the op that reads
    them is stored in steps of it. A symmetric scheme puts the zero point at 128, or at 0 for a range that
    never goes below zero.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return _of_activation(np.float32(1 / 255), 0)
    if scheme == "sym" and low < 0:
        return _of_activation(_usable(max(-low / 128, high / 127)), 128)
    scale = _usable((high - low) / 255)
    return _of_activation(scale, np.clip(np.rint(-low / np.float64(scale)), 0, 255))


def widened(low: float, high: float, width: float) -> tuple[float, float]:
    """Return a range around zero that is at least so wide, its sides in the same proportion."""
    below, above = min(low, 0.0), max(high, 0.0)
    if above - below >= width:
        return low, high
    if above == below:
        return 0.0, width
    share = above / (above - below)
    return -(1.0 - share) * width, share * width


def _of_activation(scale: np.float32, zero_point: float) -> QuantizationParameters:
    return QuantizationParameters(np.asarray(scale), np.asarray(zero_point, np.uint8))


def _usable(scale: float) -> np.float32:
    """A float32 scale that is neither zero nor denormal, whatever the range."""
    return np.float32(min(max(scale, float(np.finfo(np.float32).tiny)), float(np.finfo(np.float32).max)))


def weight_scale(weight: Float, axis: int | None, reduction: Reduction | None = None) -> Float:
    """Return the symmetric scale of a weight, one for all (axis None) or one per channel along `axis`.

    A channel of zeros takes the largest scale of the tensor: its values are exact in any scale, and its bias
    is then as fine as its neighbours'. With a `reduction` the scale is so large that no sum saturates at 16 bits.
    """
    others = None if axis is None else tuple(dim for dim in range(weight.ndim) if dim != axis)
    if weight.size == 0:
        return np.float32(1.0) * np.ones((), np.float32)
    peak = np.maximum(weight.max(axis=others), -weight.min(axis=others))
    if reduction is not None:
        peak = np.maximum(peak, pair_peak(weight, axis, reduction))
    scale = np.asarray(peak / np.float32(WEIGHT_LIMIT), np.float32)
    floor = np.float32(np.finfo(np.float32).tiny)
    largest = scale.max()
    if largest < floor:
        return np.full_like(scale, 1 / 127)
    return np.where(scale < floor, largest, scale).astype(np.float32)


def quantize_weight(
    weight: Float, axis: int | None, scale: Float, reduction: Reduction | None = None
) -> QuantizedTensor:
    """Round a weight to int8 in steps of `scale`, one or one for each channel along `axis`. Always symmetric.

    With a `reduction` no two neighbours of it can overflow 16 bits.
    """
    shape = [1] * weight.ndim
    if axis is not None:
        shape[axis] = -1
    steps = np.divide(weight, scale.reshape(shape), dtype=np.float32)
    np.rint(steps, out=steps)
    np.clip(steps, -WEIGHT_LIMIT, WEIGHT_LIMIT, out=steps)
    values = steps.astype(np.int8)
    if reduction is not None:
        values = bound_pairs(values, reduction)
    return QuantizedTensor(values, QuantizationParameters(scale, np.zeros(scale.shape, np.int8), axis))


def quantize_table(table: Float, parameters: QuantizationParameters) -> QuantizedTensor:
    """Round a table to uint8 by one scale, so that rows of it are activations."""
    steps = np.asarray(np.divide(table, parameters.scale, dtype=np.float32))
    np.rint(steps, out=steps)
    steps += np.float32(parameters.zero_point)
    np.clip(steps, 0, 255, out=steps)
    return QuantizedTensor(steps.astype(np.uint8), parameters)


def bias_steps(bias: Float, activation_scale: Float, scale: Float) -> tuple[NDArray[np.int32], Float]:
    """A bias as int32, and the scale it is stored in (activation scale times weight scale)."""
    step = np.asarray(np.float32(activation_scale) * scale, np.float32)
    step = np.maximum(step, np.float32(np.finfo(np.float32).tiny))
    steps = np.rint(bias.astype(np.float64) / step)
    return np.clip(steps, -BIAS_LIMIT, BIAS_LIMIT).astype(np.int32), step


def scale_for_bias(bias: Float, activation_scale: Float, scale: Float) -> Float | None:
    """A weight scale wide enough for the bias to fit int32, or None when `scale` is.

    A nearly dead channel has a tiny weight scale and an ordinary bias; in steps of that scale the bias would
    overflow. Widening the scale costs nothing visible: the channel's weights are tiny already.
    """
    needed = np.abs(bias.astype(np.float64)) / (float(activation_scale) * BIAS_LIMIT)
    if scale.ndim == 0:
        needed = needed.max(initial=0.0)
    if np.all(needed <= scale):
        return None
    return np.maximum(scale, np.asarray(needed * 1.001, np.float32)).astype(np.float32)
