"""Tensors in integers stand for the real numbers that the formula says, whatever their type and scales."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from quaver.affine import QuantizationParameters, QuantizedTensor, as_float

RANDOM = np.random.default_rng(0)


def parameters(scale: object, zero_point: object, kind: object, axis: int | None = None) -> QuantizationParameters:
    return QuantizationParameters(np.asarray(scale, np.float32), np.asarray(zero_point, kind), axis)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("kind", "integers"),
    [
        (np.uint8, (0, 255)),
        (np.int8, (-128, 127)),
        (np.int16, (-32768, 32767)),
        (ml_dtypes.int4, (-8, 7)),
        (ml_dtypes.uint4, (0, 15)),
    ],
)
def test_the_type_of_the_zero_point_tells_how_far_integers_go(kind: type, integers: tuple[int, int]) -> None:
    found = parameters(0.5, 3, kind)
    assert found.integers == integers and found.steps == integers[1] - integers[0]
    assert found.limits == ((integers[0] - 3) * 0.5, (integers[1] - 3) * 0.5)


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, ml_dtypes.int4])
def test_integers_are_dequantized_channel_by_channel(axis: int | None, kind: type) -> None:
    shape = (4, 3, 5)
    values = RANDOM.integers(0, 8, shape).astype(kind)
    count = () if axis is None else (shape[axis],)
    scale, zero = RANDOM.uniform(0.1, 2, count), RANDOM.integers(0, 4, count)
    found = parameters(scale, zero, kind, axis)
    real = QuantizedTensor(values, found).dequantized()
    assert real.dtype == np.float32 and real.shape == shape
    for at in np.ndindex(shape):
        channel = () if axis is None else at[axis]
        step, offset = np.float32(np.asarray(scale)[channel]), int(np.asarray(zero)[channel])
        assert real[at] == (np.float32(int(values[at])) - np.float32(offset)) * step
    assert found.scales == tuple(map(float, np.asarray(scale, np.float32).reshape(-1)))
    assert found.zero_points == tuple(map(int, np.asarray(zero).reshape(-1)))


def test_parameters_are_equal_if_all_of_them_are() -> None:
    one = parameters([0.5, 2.0], [0, 1], np.int8, 0)
    same = parameters([0.5, 2.0], [0, 1], np.int8, 0)
    assert one == same and hash(one) == hash(same)
    for other in (([0.5, 2.5], [0, 1], np.int8, 0), ([0.5, 2.0], [0, 2], np.int8, 0), ([0.5, 2.0], [0, 1], np.int8, 1),
                  ([0.5, 2.0], [0, 1], np.uint8, 0)):  # fmt: skip
        assert one != parameters(*other)
    assert one != "something else"


def test_floats_are_taken_as_they_are() -> None:
    values = RANDOM.standard_normal(3).astype(np.float32)
    assert as_float(values) is values
    assert as_float(QuantizedTensor(np.array([3], np.int8), parameters(0.5, 1, np.int8))).tolist() == [1.0]
