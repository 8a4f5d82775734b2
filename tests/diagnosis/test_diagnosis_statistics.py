"""Streamed statistics equal those of all values at once, for any shape and batch size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.diagnosis.statistics.activations import Activation
from quaver.diagnosis.statistics.cells import cut, cut_form, layout, survey
from quaver.diagnosis.statistics.errors import STATISTICS, ErrorStatistics
from quaver.diagnosis.statistics.histograms import Histogram, LogHistogram, channel_counts

RANDOM = np.random.default_rng(0)

SHAPES = [
    ((4, 8, 5, 5), 1), ((1, 64, 40, 40), 1), ((2, 3, 300, 300), 1), ((4, 7, 24), -1), ((300, 12), -1),
    ((6, 5, 4, 3), 2), ((4, 9), None), ((8,), None), ((5, 1, 1, 1), 1),
]  # fmt: skip


def pair(shape: tuple[int, ...], scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    before = (RANDOM.standard_normal(shape) * scale + 0.3 * scale).astype(np.float32)
    return before, (before + 0.01 * scale * (RANDOM.standard_normal(shape) + 0.1)).astype(np.float32)


def by_cell(values: np.ndarray, axis: int | None) -> np.ndarray:
    """Samples x values x channels."""
    moved = values if axis is None else np.moveaxis(values, axis, -1)
    return moved.reshape(len(values), -1, 1 if axis is None else values.shape[axis])


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-25])
def test_sums_and_ends_of_each_cell_are_those_of_numpy(shape: tuple[int, ...], axis: int | None, scale: float) -> None:
    before, after = pair(shape, scale)
    how = layout(shape, shape[0], axis)
    seen = survey(cut(before, how), [cut(after, how), cut(before, how)], how)
    found, same = seen.differences
    exact = before.astype(np.float64), after.astype(np.float64) - before
    for array, sums in ((exact[1], found.noise), (exact[0], seen.signal)):
        np.testing.assert_allclose(sums, np.square(by_cell(array, axis)).sum(axis=1), rtol=2e-5)
    cells = by_cell(before, axis)
    np.testing.assert_array_equal(seen.channel_low, cells.min(axis=(0, 1)))
    np.testing.assert_array_equal(seen.channel_high, cells.max(axis=(0, 1)))
    np.testing.assert_array_equal(seen.sample_low, cells.min(axis=(1, 2)))
    np.testing.assert_array_equal(seen.sample_high, cells.max(axis=(1, 2)))
    assert found.worst == pytest.approx(np.abs(exact[1]).max(), rel=1e-5)
    assert found.cross == pytest.approx(
        (exact[0] * exact[1]).sum(), rel=1e-3, abs=1e-5 * float(np.square(exact[1]).sum())
    )
    assert (same.noise == 0).all() and same.worst == same.total == same.cross == 0.0


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize(("kind", "zero"), [(np.uint8, 0), (np.uint8, 113), (np.int8, -7)])
def test_8_bit_values_count_as_the_real_numbers_that_they_represent(
    shape: tuple[int, ...], axis: int | None, kind: type, zero: int
) -> None:
    before, _ = pair(shape)
    limits = np.iinfo(kind)
    parameters = QuantizationParameters(np.asarray(0.031, np.float32), np.asarray(zero, kind))
    steps = QuantizedTensor(RANDOM.integers(limits.min, limits.max, shape, kind, endpoint=True), parameters)
    real = (steps.values.astype(np.float32) - np.float32(zero)) * np.float32(0.031)
    np.testing.assert_array_equal(steps.dequantized(), real)
    how = layout(shape, shape[0], axis)
    (found,) = survey(cut(before, how), [cut_form(steps, how)], how).differences
    (wanted,) = survey(cut(before, how), [cut(real, how)], how).differences
    np.testing.assert_array_equal(found.noise, wanted.noise)
    np.testing.assert_array_equal(found.sample_worst, wanted.sample_worst)
    assert found[1:3] == wanted[1:3] and found.worst > 0


def independent(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """All statistics at once, in double."""
    f, q = before.astype(np.float64).ravel(), after.astype(np.float64).ravel()
    d = q - f
    return {
        "num_elements": f.size,
        "stddev": d.std(),
        "mean_error": d.mean(),
        "max_abs_error": np.abs(d).max(),
        "mean_squared_error": np.mean(d**2),
        "sqnr": 10 * np.log10(np.sum(f**2) / np.sum(d**2)),
        "cosine": f @ q / np.sqrt((f @ f) * (q @ q)),
        "mean_abs_error": np.abs(d).mean(),
    }


def add(seen: ErrorStatistics, before: np.ndarray, after: np.ndarray, axis: int | None) -> None:
    how = layout(before.shape, len(before), axis)
    one, other = cut(before, how), cut(after, how)
    found = survey(one, [other], how)
    seen.add(one, other, found.differences[0], float(found.signal.sum()))


def test_layer_statistics_over_many_batches_are_those_over_all_values_at_once() -> None:
    seen = ErrorStatistics({"mean_abs_error": lambda diffs: np.mean(np.abs(diffs))})
    before, after = pair((23, 6, 9, 9))
    for start, stop in ((0, 1), (1, 8), (8, 23)):
        add(seen, before[start:stop], after[start:stop], 1)
    figures = seen.figures()
    assert list(figures) == [*STATISTICS, "mean_abs_error"]
    for name, value in independent(before, after).items():
        assert figures[name] == pytest.approx(value, rel=1e-5, abs=1e-9), name


def test_without_values_or_without_error_there_is_nothing_to_divide_by() -> None:
    empty, same = ErrorStatistics(), ErrorStatistics()
    assert empty.figures()["num_elements"] == 0 and math.isnan(empty.figures()["mean_squared_error"])
    values = np.ones((1, 4), np.float32)
    add(same, values, values, None)
    assert same.figures()["sqnr"] == math.inf and same.figures()["cosine"] == 1.0 and same.relative == 0.0


def test_values_that_are_not_finite_are_counted() -> None:
    seen = ErrorStatistics()
    before, after = np.ones((1, 6), np.float32), np.ones((1, 6), np.float32)
    after[0, 2:4] = np.nan, np.inf
    add(seen, before, after, None)
    figures = seen.figures()
    assert seen.not_finite == 2
    assert all(math.isnan(figures[name]) for name in ("mean_squared_error", "max_abs_error", "stddev", "sqnr"))


def look(seen: Activation, values: np.ndarray, first: int) -> None:
    how = layout(values.shape, len(values), seen.axis)
    seen.add(cut(values, how), survey(cut(values, how), (), how), first)


def test_an_activation_has_statistics_of_channels_samples_and_clipping() -> None:
    values = RANDOM.standard_normal((40, 5, 6, 6)).astype(np.float32)
    values[17] *= 50
    seen = Activation(axis=1, limits=(-4.0, 3.0))
    for start in range(0, 40, 8):
        look(seen, values[start : start + 8], start)
    channels = np.moveaxis(values, 1, 0).reshape(5, -1)
    np.testing.assert_array_equal(seen.channel_low, channels.min(axis=1))
    np.testing.assert_array_equal(seen.channel_high, channels.max(axis=1))
    assert seen.range == (values.min(), values.max()) and seen.furthest[0][1] == 17
    reaches = np.abs(values).reshape(40, -1).max(axis=1)
    assert seen.usual_reach == pytest.approx(np.median(reaches), rel=0.05)
    assert seen.beyond(seen.reach / 2) == 1
    beyond = np.maximum(values - 3.0, -4.0 - values).astype(np.float64)
    assert seen.clipped == np.count_nonzero(beyond > 0)
    assert seen.clipped_noise == pytest.approx(np.square(beyond[beyond > 0]).sum(), rel=1e-6)
    assert seen.squares == pytest.approx(np.square(values.astype(np.float64)).sum(), rel=1e-6)


def test_an_axis_whose_length_changes_holds_no_channels() -> None:
    seen = Activation(axis=-1)
    for length in (3, 5, 4):
        values = np.arange(2 * length, dtype=np.float32).reshape(2, length)
        look(seen, values, 0)
    assert seen.channel_high.shape == (1,) and seen.high == 9


def test_a_histogram_grows_with_what_it_sees() -> None:
    histogram = Histogram(bins=64)
    parts = [RANDOM.uniform(-1, 1, 500), RANDOM.uniform(5, 9, 700), RANDOM.uniform(-300, 2, 900), np.zeros(10)]
    for part in parts:
        histogram.add(part.astype(np.float32), float(part.min()), float(part.max()))
    values = np.concatenate(parts)
    assert histogram.counts.sum() == values.size
    assert histogram.edges[0] <= values.min() and histogram.edges[-1] >= values.max()
    exact, _ = np.histogram(values.astype(np.float32), histogram.edges)
    assert np.abs(exact - histogram.counts).sum() <= 4  # values on a border may fall to either side


def test_a_histogram_ignores_nan_and_accepts_a_constant() -> None:
    histogram = Histogram()
    histogram.add(np.array([np.nan, np.inf], np.float32), math.nan, math.inf)
    assert histogram.counts.sum() == 0
    histogram.add(np.full(9, 3.0, np.float32), 3.0, 3.0)
    histogram.add(np.array([np.nan, 4.0], np.float32), math.nan, math.nan)
    assert histogram.counts.sum() == 10 and histogram.edges[0] <= 3.0 <= 4.0 <= histogram.edges[-1]


def test_the_median_of_a_stream_is_known_to_within_a_few_percent() -> None:
    sizes = LogHistogram()
    values = np.exp(RANDOM.normal(-8, 3, 999))
    sizes.add(values[:400])
    sizes.add(values[400:])
    assert sizes.median() == pytest.approx(np.median(values), rel=0.05)
    assert sizes.beyond(float(np.quantile(values, 0.9))) == pytest.approx(100, abs=12)
    assert math.isnan(LogHistogram().median())


def test_channels_of_a_weight_are_counted_one_by_one() -> None:
    weight = RANDOM.standard_normal((6, 4, 3, 3)).astype(np.float32)
    for axis in (0, 1):
        counts, edges = channel_counts(weight, axis, 32)
        for channel, row in enumerate(np.moveaxis(weight, axis, 0)):
            exact, _ = np.histogram(row.astype(np.float64), edges)
            assert np.abs(exact - counts[channel]).sum() <= 2 and counts[channel].sum() == row.size
