"""The range of a tensor from a stream of values: exact, by percentile, by entropy."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from quaver.adapters.calibration import ranges
from quaver.adapters.calibration.ranges import MAX_ELEMENTS_PER_SAMPLE, PERCENTILE, TensorStatistics, bin_centres

Values = NDArray[np.float32]
# Half the width of a bin, as a part of the value it holds.
BIN = 0.008


def seen(*batches: Values) -> TensorStatistics:
    statistics = TensorStatistics()
    for batch in batches:
        statistics.add(np.asarray(batch, np.float32))
    return statistics


def draw(kind: str, size: int = 60_000) -> Values:
    rng = np.random.default_rng(3)
    values = {
        "normal": lambda: rng.normal(0.3, 2, size),
        "heavy tails": lambda: rng.standard_t(2, size),
        "relu": lambda: np.maximum(rng.normal(size=size), 0),
        "negative": lambda: -rng.gamma(2, 3, size),
        "tiny": lambda: rng.normal(size=size) * 1e-30,
        "huge": lambda: rng.normal(size=size) * 1e30,
        "one value": lambda: np.full(size, 0.75),
    }
    return values[kind]().astype(np.float32)


KINDS = ["normal", "heavy tails", "relu", "negative", "tiny", "huge", "one value"]


@pytest.mark.parametrize("kind", KINDS)
def test_minmax_is_exact_and_holds_zero(kind: str) -> None:
    values = draw(kind)
    low, high = seen(*np.array_split(values, 7)).ranges()["minmax"]
    assert low == min(values.min(), 0)
    assert high == max(values.max(), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_percentile_is_numpys_within_a_bin(kind: str) -> None:
    values = draw(kind)
    low, high = seen(*np.array_split(values, 7)).ranges()["percentile"]
    tail = (100 - PERCENTILE) / 2
    for got, percent, hold_zero in ((low, tail, np.minimum), (high, 100 - tail, np.maximum)):
        near = [hold_zero(np.percentile(values, percent, method=method), 0) for method in ("lower", "higher")]
        slack = BIN * np.abs(near).max()
        assert near[0] - slack <= got <= near[1] + slack


def test_percentile_leaves_outliers_out_and_minmax_does_not() -> None:
    values = draw("normal", 100_000)
    values[[5, 500]] = 1e4, -1e4
    found = seen(*np.array_split(values, 4)).ranges()
    assert found["minmax"] == (-1e4, 1e4)
    assert -12 < found["percentile"][0] < -5 and 5 < found["percentile"][1] < 12


def test_entropy_cuts_off_far_outliers() -> None:
    values = draw("normal", 50_000)
    values[[3, 700]] = 500, -400
    low, high = seen(values).ranges()["entropy"]
    assert -60 < low < -4 and 4 < high < 60


@pytest.mark.parametrize("sign", [1, -1])
def test_entropy_does_not_clip_an_even_distribution(sign: int) -> None:
    values = sign * np.random.default_rng(0).uniform(0, 3, 50_000)
    low, high = seen(values).ranges()["entropy"]
    assert max(-low, high) > 2.9
    assert min(-low, high) == 0


def test_entropy_ignores_the_zeros_of_a_relu() -> None:
    values = np.random.default_rng(0).uniform(0, 3, 20_000).astype(np.float32)
    plain = seen(values).ranges()["entropy"]
    assert seen(np.concatenate([values, np.zeros(400_000, np.float32)])).ranges()["entropy"] == pytest.approx(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_no_range_exceeds_the_extremes(kind: str) -> None:
    found = seen(draw(kind)).ranges()
    low, high = found["minmax"]
    for method, (bottom, top) in found.items():
        assert low <= bottom <= 0 <= top <= high, method


def test_the_order_of_batches_does_not_matter() -> None:
    batches = np.array_split(draw("heavy tails", 9_999), 9)
    expected = seen(*batches).ranges()
    rng = np.random.default_rng(1)
    for _ in range(3):
        assert seen(*(batches[i] for i in rng.permutation(9))).ranges() == expected
    assert seen(np.concatenate(batches)).ranges() == expected


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_show(broken: float) -> None:
    values = draw("normal", 3 * MAX_ELEMENTS_PER_SAMPLE)
    assert seen(values).finite
    values[1] = broken  # an element that thinning leaves out
    assert not seen(draw("normal"), values).finite


def test_empty_batches_change_nothing_and_no_values_give_a_range_of_zero() -> None:
    values, empty = draw("normal"), np.zeros((0, 3), np.float32)
    assert seen(empty, values, empty).ranges() == seen(values).ranges()
    assert set(seen(empty).ranges().values()) == {(0.0, 0.0)}


@pytest.mark.parametrize("channels", [2, 3, 12, 64, 768, 1000])
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_thinning_a_large_tensor_sees_all_channels_alike(channels: int, last: bool) -> None:
    """One channel is loud. A step that divides the number of channels would miss it in every batch, or see no other."""
    rows = 4 * MAX_ELEMENTS_PER_SAMPLE // channels
    values = np.random.default_rng(0).uniform(0, 1, (rows, channels)).astype(np.float32)
    values[:, 1] += 10
    turns = 8
    statistics = seen(*[values if last else np.ascontiguousarray(values.T)] * turns)
    assert turns * MAX_ELEMENTS_PER_SAMPLE / 2 < statistics.elements <= turns * 1.01 * MAX_ELEMENTS_PER_SAMPLE
    loud = statistics.counts[bin_centres() > 5].sum() / statistics.elements
    assert loud == pytest.approx(1 / channels, rel=0.35)


def test_views_that_are_not_contiguous_are_read_right() -> None:
    values = draw("normal", 6_000).reshape(60, 100)
    assert seen(values.T[::2]).ranges() == seen(np.ascontiguousarray(values.T[::2])).ranges()


def held(statistics: list[TensorStatistics]) -> float:
    """Bytes for each."""
    return sum(
        one._bins.nbytes + one._bin_counts.nbytes + sum(map(len, one._uncounted_bins)) * 2 for one in statistics
    ) / len(statistics)


def test_memory_does_not_grow_with_the_stream() -> None:
    statistics = TensorStatistics(max_uncounted=MAX_ELEMENTS_PER_SAMPLE)
    for turn in range(40):
        statistics.add(draw("normal", 2 * MAX_ELEMENTS_PER_SAMPLE))
        if turn % 20 == 1:
            before = held([statistics])
    assert held([statistics]) == before
    assert statistics.elements <= 40 * MAX_ELEMENTS_PER_SAMPLE


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_stores_only_bins_that_hold_values(kind: str) -> None:
    statistics = [TensorStatistics(max_uncounted=1000) for _ in range(20)]
    assert held(statistics) == 0
    tracemalloc.start()
    for one in statistics:
        for part in np.array_split(draw(kind, 30_000), 4):
            one.add(part)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(statistics) < 0.1 * ranges.BINS * 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("waiting", [0, 100, 5000])
def test_when_values_are_counted_does_not_matter(kind: str, waiting: int) -> None:
    batches = np.array_split(draw(kind), 9)
    early = TensorStatistics(max_uncounted=waiting)
    for batch in batches:
        early.add(batch)
    assert early.ranges() == seen(*batches).ranges()
    assert np.array_equal(early.counts, seen(*batches).counts)
