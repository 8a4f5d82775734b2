"""Statistics of channels: the same however the stream is cut, and the same after they were kept."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from quaver.adapters.calibration.channel_statistics import ACCUMULATORS, Statistic, from_records, to_records
from quaver.errors import CalibrationError

RNG = np.random.default_rng(0)
VALUES = (RNG.normal(size=(24, 5, 7)) + np.arange(5)[:, None]).astype(np.float32)


@pytest.mark.parametrize(("axis", "others"), [(1, (0, 2)), (-1, (0, 1)), (-2, (0, 2))])
@pytest.mark.parametrize("cuts", [1, 3, 24])
def test_mean_and_range_of_channels_however_the_stream_is_cut(axis: int, others: tuple[int, ...], cuts: int) -> None:
    found = {}
    for kind in ACCUMULATORS:
        accumulator = ACCUMULATORS[kind](axis)
        for part in np.array_split(VALUES, cuts):
            accumulator.add(part)
        accumulator.add(VALUES[:0])
        found[kind] = accumulator.result()
    assert found["mean"] == pytest.approx(VALUES.mean(axis=others, dtype=np.float64), rel=1e-12)
    assert np.array_equal(found["low"], VALUES.min(axis=others).astype(np.float64))
    assert np.array_equal(found["high"], VALUES.max(axis=others).astype(np.float64))


def test_a_mean_does_not_lose_a_small_part_of_a_long_stream() -> None:
    accumulator = ACCUMULATORS["mean"](1)
    for _ in range(2000):
        accumulator.add(np.full((100, 1), 0.1, np.float32))
    assert accumulator.result() == pytest.approx(np.float64(np.float32(0.1)), rel=1e-12)


def test_statistics_of_no_values_are_empty() -> None:
    assert all(ACCUMULATORS[kind](0).result().size == 0 for kind in ACCUMULATORS)


def test_records_of_builtins_restore_the_same_bits() -> None:
    known = {Statistic("x", "mean", 1): RNG.normal(size=5), Statistic("x", "high", -1): RNG.normal(size=7)}
    kept = to_records(known)
    assert all(type(value) in (str, int, list, bytes) for item in kept for value in item.values())
    back = from_records(pickle.loads(pickle.dumps(kept)))
    assert list(back) == list(known)
    assert all(back[wanted].tobytes() == values.tobytes() for wanted, values in known.items())


def test_an_unknown_statistic_is_refused() -> None:
    with pytest.raises(CalibrationError, match="no statistic 'median' of channels; known are: 'mean', 'low', 'high'"):
        Statistic("x", "median", 1)
