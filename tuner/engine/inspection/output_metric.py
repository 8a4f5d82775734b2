"""The error at the outputs of a model, part by part, so that small outputs count as much as large ones.

A detector may write boxes in pixels and class probabilities into one tensor. The classes then have a millionth of its
energy, and an error over the whole tensor does not see them. So an output is cut into parts along the axis whose slices
differ most, and the error of each part is compared with the spread of that part:

- The spread is the variance that the input causes: each value about its own mean over the samples. A constant, such as
  the grid of a detector or the bias of a token, carries no information and does not hide an error.
- Each sample counts about the same: its error is divided by the mean of its own spread and the median one.
- A distribution (values that add up to 1 along an axis) is compared by the square roots of its values. This is the
  Hellinger distance: a quarter of the KL divergence where both are close, and finite where int8 rounds to 0.
- Whole numbers are labels: the error is the share that differs.

Parts of an output count the same, and so do outputs. The result is a squared error over a squared signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quaver.types import Array

Outputs: TypeAlias = Sequence[Array]
"""The numeric outputs of one feed."""
Doubles: TypeAlias = NDArray[np.float64]

# A part with less than this share of an output's energy is hidden: the loss of all its signal would add less to the
# error than int8 does anyway (0.01 to 0.1, docs/scores.md).
HIDDEN_SHARE = 0.05
# Slices next to each other in order of their energy belong to different quantities if they differ by this factor: one
# order of magnitude in amplitude. Judgement: the scores of one layer fill such gaps.
GAP = 100.0
# A lone slice among more than this many is a weak feature of a vector, not a quantity of its own. Judgement.
NARROW = 16
# A part of scores that never rises above this holds no decision: thresholds of detectors start at 0.05.
MIN_SCORE = 0.01
# A part must have its energy in at least this many samples (participation ratio): one sample may be an outlier.
MIN_SAMPLES = 2.0
# Means over fewer samples than this say little: then values are compared with the mean of their slice.
ENOUGH_SAMPLES = 4
# A slice needs this many values for a spread.
ENOUGH_VALUES = 8
# A slice that varies by less than this part of its values is constant: float32 has 6e-8 for one operation.
ROUNDING = 1e-6
# The spread of the typical sample is at least this part of the mean one: most samples may be empty. Judgement.
MIN_TYPICAL = 0.01
# How far the sum of a distribution may be from 1.
SUM_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of an output: slices along one axis that have comparable values.

    Attributes:
        output: which output of the model it is, counted from 0.
        axis: the axis that is cut, counted with that of the samples; None where the part is the whole output.
        indices: positions along that axis.
        kind: "values", "distribution" (values add up to 1), "scores" (values between 0 and 1) or "labels".
        class_axis: the axis along which a distribution adds up to 1.
    """

    output: int
    axis: int | None = None
    indices: tuple[int, ...] = ()
    kind: str = "values"
    class_axis: int | None = None

    @property
    def ranges(self) -> str:
        """The positions as text, such as "4-83"; empty for a whole output."""
        if not self.indices:
            return ""
        cuts = np.flatnonzero(np.diff(self.indices) != 1) + 1
        runs = np.split(np.asarray(self.indices), cuts)
        shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs[:4]]
        return ", ".join(shown) + (", ..." if len(runs) > 4 else "")

    def __str__(self) -> str:
        if self.axis is None:
            return f"output {self.output}"
        return f"output {self.output}, {self.ranges} of axis {self.axis}"


@dataclass(frozen=True, slots=True)
class PartError:
    """The error of one part.

    Attributes:
        part: the part.
        error: squared error over spread, the mean over samples.
        agreement: share of predictions that stay the same: the largest value of a distribution, the side of 0.5 of the
            scores that reach it in either model, and labels. None where the part makes no predictions.
    """

    part: OutputPart
    error: float
    agreement: float | None = None


@dataclass(slots=True)
class _Output:
    """One output of the float model over all feeds.

    Attributes:
        arrays: the values of each feed, with an axis of samples in front.
        parts: what the output is cut into.
        labels: the part of each slice along the axis that is cut; None if it is not.
        roots: the values that are compared: square roots where they are distributions.
        scales: what the squared error of each sample (rows) in each part (columns) is divided by.
    """

    arrays: list[Array]
    parts: list[OutputPart]
    labels: NDArray[np.intp] | None = None
    roots: list[Array] = field(default_factory=list)
    scales: Doubles = field(default_factory=lambda: np.ones((0, 1)))

    @property
    def axis(self) -> int | None:
        """The axis that is cut."""
        return self.parts[0].axis

    def root(self, array: Array) -> Array:
        """Return an array with the values of distributions replaced by their square roots."""
        for part in self.parts:
            if part.kind == "distribution" and part.axis is None:
                return np.sqrt(np.maximum(array, 0))
            if part.kind == "distribution":
                assert part.axis is not None
                moved = np.moveaxis(array, part.axis, -1).copy()
                moved[..., list(part.indices)] = np.sqrt(np.maximum(moved[..., list(part.indices)], 0))
                array = np.moveaxis(moved, -1, part.axis)
        return array

    def by_part(self, table: Doubles) -> Doubles:
        """Return sums over the slices of each part."""
        return table if self.labels is None else np.asarray(table @ np.eye(len(self.parts))[self.labels])

    def noise(self, expected: Array, actual: Array) -> Doubles:
        """Return the squared error of each sample (rows) in each part (columns)."""
        if self.parts[0].kind == "labels":
            return _reduced(expected != actual, None)
        difference = self.root(actual) - expected
        noise = self.by_part(_reduced(np.square(difference, dtype=np.float64), self.axis))
        if np.isfinite(noise).all():
            return noise
        # Infinities of the float model, such as masks, are no errors.
        difference = np.where((expected == actual) | (np.isnan(expected) & np.isnan(actual)), 0.0, difference)
        return self.by_part(_reduced(np.square(difference, dtype=np.float64), self.axis))


class OutputMetric:
    """Compares outputs with those of the float model, for which it is prepared once.

    Args:
        reference: the float model's outputs for each feed.
        sizes: the number of samples of each feed; without it each feed is one sample.
    """

    def __init__(self, reference: Sequence[Outputs], sizes: Sequence[int] | None = None) -> None:
        self._sizes = list(sizes) if sizes is not None else [1] * len(reference)
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)]).astype(int)
        width = min((len(outputs) for outputs in reference), default=0)
        with np.errstate(all="ignore"):
            self._outputs = [
                _prepare(index, [outputs[index] for outputs in reference], self._sizes) for index in range(width)
            ]

    @property
    def parts(self) -> tuple[OutputPart, ...]:
        """The parts that outputs are cut into."""
        return tuple(part for output in self._outputs for part in output.parts)

    def error(self, outputs: Sequence[Outputs], first: int = 0) -> float:
        """Return the error of outputs: the mean over samples, parts and outputs; inf if not finite.

        Errors of different configurations can be compared if they are of the same feeds.

        Args:
            outputs: the outputs of one or more feeds in order.
            first: the number of the first of these feeds.
        """
        errors = self.sample_errors(outputs, first)
        error = float(errors.mean()) if errors.size else 0.0
        return error if np.isfinite(error) else float("inf")

    def sample_errors(self, outputs: Sequence[Outputs], first: int = 0) -> Doubles:
        """Return the error of each sample, the mean over parts and outputs."""
        total = np.zeros(int(self._starts[first + len(outputs)] - self._starts[first]))
        with np.errstate(all="ignore"):
            for index in range(len(self._outputs)):
                total += self._part_errors(index, outputs, first).mean(axis=1)
        return total / max(len(self._outputs), 1)

    def by_slice(self, outputs: Sequence[Outputs], first: int = 0) -> tuple[PartError, ...]:
        """Return the error of each part, with the share of predictions that stay the same."""
        found = []
        with np.errstate(all="ignore"):
            for index, output in enumerate(self._outputs):
                errors = self._part_errors(index, outputs, first).mean(axis=0)
                arrays = [np.asarray(sample[index]) for sample in outputs]
                for part, error in zip(output.parts, errors, strict=True):
                    error = float(error) if np.isfinite(error) else float("inf")
                    found.append(PartError(part, error, _agreement(part, output.arrays[first:], arrays, self._sizes)))
        return tuple(found)

    def _part_errors(self, index: int, outputs: Sequence[Outputs], first: int) -> Doubles:
        """Return the error of each sample (rows) in each part (columns) of an output."""
        output, rows = self._outputs[index], []
        for feed, values in enumerate(outputs, first):
            size, expected = self._sizes[feed], output.roots[feed]
            scale = output.scales[self._starts[feed] : self._starts[feed] + size]
            actual = _by_sample(np.asarray(values[index]), size) if index < len(values) else np.zeros(0)
            if actual.shape != expected.shape:
                rows.append(np.ones_like(scale))
                continue
            noise = output.noise(expected, actual)
            rows.append((noise if len(noise) == size else np.repeat(noise, size, axis=0)) / scale)
        return np.concatenate(rows) if rows else np.zeros((0, len(output.parts)))


def _prepare(index: int, arrays: Sequence[Any], sizes: Sequence[int]) -> _Output:
    """Find the parts of an output, and what their errors are divided by."""
    samples = [_by_sample(np.asarray(array), size) for array, size in zip(arrays, sizes, strict=True)]
    if any(array.dtype.kind in "iub" for array in samples):
        output = _Output(samples, [OutputPart(index, kind="labels")], roots=samples)
        rows = [np.full((len(array), 1), max(array[0].size if len(array) else 1, 1), np.float64) for array in samples]
    else:
        output = _cut(index, samples)
        output.roots = [output.root(array) for array in samples]
        rows = _scales(output)
    # Outputs without an axis of samples: one row stands for all samples of the feed.
    same = [
        row if len(row) == size else np.repeat(row[:1], size, axis=0) for row, size in zip(rows, sizes, strict=True)
    ]
    output.scales = np.concatenate(same) if same else output.scales
    return output


def _scales(output: _Output) -> list[Doubles]:
    """Return what the squared errors of each feed are divided by: the mean of the sample's own and the usual spread."""
    finite = [np.where(np.isfinite(array), array, 0.0) for array in output.roots]
    spread = output.by_part(_spreads(finite, [output.axis])[0])
    values = output.by_part(
        np.concatenate([_reduced(np.square(array, dtype=np.float64), output.axis) for array in finite])
    )
    sizes = np.concatenate([np.full(len(array), max(array[0].size if len(array) else 1, 1)) for array in finite])
    # What is constant is compared with its values, and zeros with 1.
    spread = np.where(spread.any(axis=0), spread, np.where(values.any(axis=0), values, sizes[:, None]))
    typical = np.maximum(np.median(spread, axis=0), MIN_TYPICAL * spread.mean(axis=0))
    cuts = np.cumsum([len(array) for array in finite])[:-1]
    return list(np.split((spread + typical) / 2, cuts))


def _by_sample(array: Array, size: int) -> Array:
    """Return an output with an axis of samples in front; of length 1 if it has none of its own."""
    if array.dtype in (np.float16, np.int8, np.uint8):  # bytes are pictures, other whole numbers are labels
        array = array.astype(np.float32)
    return array if array.ndim and array.shape[0] == size else array[None]


def _cut(index: int, samples: Sequence[Array]) -> _Output:
    """Cut an output into parts along the axis whose slices differ most."""
    whole = _Output(list(samples), [_described(OutputPart(index), samples)])
    shapes = {array.shape[1:] for array in samples}
    if len({len(shape) for shape in shapes}) != 1 or whole.parts[0].kind == "distribution":
        return whole
    total = sum(array.size for array in samples)
    lengths = {axis: {shape[axis - 1] for shape in shapes} for axis in range(1, samples[0].ndim)}
    axes = [axis for axis, found in lengths.items() if len(found) == 1 and 1 < max(found) <= total // ENOUGH_VALUES]
    if not axes or not all(array.size and np.isfinite(array).all() for array in samples):
        return whole
    best: tuple[float, int, NDArray[np.intp]] | None = None
    for axis, energies in zip(axes, _spreads(samples, axes), strict=True):
        labels = _groups(energies, *_limits(samples, axis))
        totals = np.bincount(labels, energies.sum(axis=0))
        contrast = float(totals.max() / max(totals.min(), np.finfo(float).tiny))
        if len(totals) > 1 and (best is None or contrast > best[0]):
            best = contrast, axis, labels
    if best is None:
        return whole
    _, axis, labels = best
    groups = [tuple(np.flatnonzero(labels == group).tolist()) for group in range(labels.max() + 1)]
    return _Output(list(samples), [_described(OutputPart(index, axis, group), samples) for group in groups], labels)


def _groups(energies: Doubles, low: Doubles, high: Doubles) -> NDArray[np.intp]:
    """Return the group of each slice along an axis; all are 0 if no group is hidden by another.

    Args:
        energies: of each sample (rows) in each slice (columns).
        low: the smallest value of each slice.
        high: the largest one.
    """
    total = energies.sum(axis=0)
    labels: NDArray[np.intp] = np.zeros(len(total), np.intp)
    largest = np.maximum(np.abs(low), np.abs(high))
    alive = (total > 0) & (high - low > ROUNDING * largest) & np.isfinite(total)
    if np.count_nonzero(alive) < 2:
        return labels
    is_score = (low >= 0) & (high <= 1)
    is_silent = is_score & (high - low < MIN_SCORE)
    positions = np.flatnonzero(alive)
    if not _is_regular(is_score[positions]):
        is_score = np.zeros_like(is_score)
    kinds = alive & ~is_score, alive & is_score
    clusters: list[NDArray[np.intp]] = []
    for kind in kinds:
        clusters += _clusters(np.flatnonzero(kind), total)
    merged = _merge_hidden(clusters, energies, is_score, is_silent)
    for number, cluster in enumerate(sorted(merged, key=lambda cluster: int(cluster[0]))):
        labels[cluster] = number
    # A constant slice belongs to its neighbours: branches are joined in one piece.
    nearest = positions[np.maximum(np.searchsorted(positions, np.arange(len(total)), side="right") - 1, 0)]
    return labels[nearest]


def _is_regular(is_score: NDArray[np.bool_]) -> bool:
    """Return True if scores stand beside other values in one piece, or in equal pieces at equal distances.

    Features that happen to lie between 0 and 1 are scattered.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_score, [False]]).astype(np.int8)))
    starts, stops = edges[::2], edges[1::2]
    if not len(starts) or is_score.all():
        return False
    if len(starts) == 1:
        return bool(stops[0] - starts[0] > 1 or len(is_score) <= NARROW)
    return len(starts) > 2 and len(set(stops - starts)) == 1 and len(set(starts[1:] - stops[:-1])) == 1


def _clusters(members: NDArray[np.intp], total: Doubles) -> list[NDArray[np.intp]]:
    """Return slices in clusters without a gap in their energies, the largest first.

    A cluster that is not one piece along the axis joins the one above: weak features are scattered, branches are not.
    """
    if not len(members):
        return []
    order = members[np.argsort(-total[members], kind="stable")]
    cuts = np.flatnonzero(total[order[:-1]] >= GAP * total[order[1:]]) + 1
    clusters: list[NDArray[np.intp]] = []
    for piece in np.split(order, cuts):
        places = np.searchsorted(members, np.sort(piece))
        is_run = places[-1] - places[0] + 1 == len(places)
        is_lone = len(piece) == 1 and len(total) > NARROW
        if clusters and (not is_run or is_lone):
            clusters[-1] = np.concatenate([clusters[-1], piece])
        else:
            clusters.append(piece)
    return [np.sort(cluster) for cluster in clusters]


def _merge_hidden(
    clusters: list[NDArray[np.intp]], energies: Doubles, is_score: NDArray[np.bool_], is_silent: NDArray[np.bool_]
) -> list[NDArray[np.intp]]:
    """Join clusters of one kind that can be seen beside larger ones, and those that hold too little to be judged.

    Args:
        clusters: the positions of each.
        energies: of each sample (rows) in each slice (columns).
        is_score: the kind of each slice.
        is_silent: True for scores that hold no decision.
    """
    ordered = sorted(clusters, key=lambda cluster: -float(energies[:, cluster].sum()))
    kept = ordered[:1]
    for cluster in ordered[1:]:
        samples = energies[:, cluster].sum(axis=1)
        total = float(samples.sum())
        is_hidden = total < HIDDEN_SHARE * float(energies[:, kept[-1]].sum())
        is_other = bool(is_score[cluster[0]] != is_score[kept[-1][0]])
        spread_out = total**2 >= MIN_SAMPLES * float(np.square(samples).sum()) or len(samples) < ENOUGH_SAMPLES
        if (is_hidden or is_other) and spread_out and not is_silent[cluster].all():
            kept.append(cluster)
        else:
            kept[-1] = np.sort(np.concatenate([kept[-1], cluster]))
    return kept


def _described(part: OutputPart, samples: Sequence[Array]) -> OutputPart:
    """Return a part with its kind: a distribution, scores, or other values."""
    values = [array if part.axis is None else array.take(part.indices, part.axis) for array in samples]
    values = [array for array in values if array.size]
    if not values or not all(bool((array >= 0).all() and (array <= 1 + SUM_TOLERANCE).all()) for array in values):
        return part
    rank = values[0].ndim
    for axis in dict.fromkeys((rank - 1, 1)):
        if (
            0 < axis < rank
            and all(array.ndim == rank and array.shape[axis] > 1 for array in values)
            and all(np.allclose(array.sum(axis=axis, dtype=np.float64), 1.0, atol=SUM_TOLERANCE) for array in values)
        ):
            return OutputPart(part.output, part.axis, part.indices, "distribution", axis)
    return OutputPart(part.output, part.axis, part.indices, "scores")


def _spreads(samples: Sequence[Array], axes: Sequence[int | None]) -> list[Doubles]:
    """Return squared distances of each sample (rows) in each slice (columns) along each axis.

    Values are compared with their own mean over the samples; with the mean of their slice if the samples are few, of
    different shapes, or all the same.
    """
    count = sum(len(array) for array in samples)
    by_slice = [_about_slices(samples, axis) for axis in axes]
    if count < ENOUGH_SAMPLES or len({array.shape[1:] for array in samples}) != 1:
        return by_slice
    mean = sum(array.sum(axis=0, dtype=np.float64) for array in samples) / count
    tables: list[list[Doubles]] = [[] for _ in axes]
    for array in samples:
        squares = np.square(array - mean) * (count / (count - 1))  # without bias
        for table, axis in zip(tables, axes, strict=True):
            table.append(_reduced(squares, axis))
    by_value = [np.concatenate(table) for table in tables]
    return [a if a.sum() > ROUNDING * b.sum() else b for a, b in zip(by_value, by_slice, strict=True)]


def _about_slices(samples: Sequence[Array], axis: int | None) -> Doubles:
    """Return squared distances from the mean of each slice over all samples."""
    others = tuple(place for place in range(samples[0].ndim) if place != axis) if axis is not None else None
    count = sum(array.size for array in samples) / (1 if axis is None else samples[0].shape[axis])
    mean: Any = sum(array.sum(axis=others, dtype=np.float64, keepdims=axis is not None) for array in samples)
    mean = mean / max(count, 1)
    return np.concatenate([_reduced(np.square(array - mean), axis) for array in samples])


def _limits(samples: Sequence[Array], axis: int) -> tuple[Doubles, Doubles]:
    others = tuple(place for place in range(samples[0].ndim) if place != axis)
    low = np.min([array.min(axis=others) for array in samples], axis=0)
    high = np.max([array.max(axis=others) for array in samples], axis=0)
    return low.astype(np.float64), high.astype(np.float64)


def _reduced(squares: Array, axis: int | None) -> Doubles:
    """Return sums over everything but the samples and an axis."""
    if axis is None:
        return np.asarray(squares.reshape(len(squares), -1).sum(axis=1, dtype=np.float64)[:, None])
    others = tuple(place for place in range(1, squares.ndim) if place != axis)
    return np.asarray(squares.sum(axis=others, dtype=np.float64))


def _agreement(
    part: OutputPart, expected: Sequence[Array], actual: Sequence[Array], sizes: Sequence[int]
) -> float | None:
    """Return the share of predictions of a part that are the same in both models."""
    if part.kind == "values":
        return None
    same, total = 0, 0
    for before, raw, size in zip(expected, actual, sizes, strict=False):
        after = _by_sample(raw, size)
        if after.shape != before.shape:
            total += max(before.shape[0], 1)
            continue
        if part.axis is not None:
            before, after = before.take(part.indices, part.axis), after.take(part.indices, part.axis)
        if part.kind == "distribution":
            assert part.class_axis is not None
            equal = before.argmax(axis=part.class_axis) == after.argmax(axis=part.class_axis)
        elif part.kind == "scores":
            equal = ((before >= 0.5) == (after >= 0.5))[(before >= 0.5) | (after >= 0.5)]
        else:
            equal = before == after
        same, total = same + int(np.count_nonzero(equal)), total + equal.size
    return same / total if total else None
