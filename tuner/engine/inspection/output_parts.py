"""Cut the outputs of a model into parts with comparable values, without knowing what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quaver.types import Array

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

    @property
    def title(self) -> str:
        """The part and its kind, for readers."""
        return str(self) if self.kind == "values" else f"{self} ({self.kind})"

    def __str__(self) -> str:
        if self.axis is None:
            return f"output {self.output}"
        return f"output {self.output}, {self.ranges} of axis {self.axis}"


class Cut(NamedTuple):
    """The parts of an output.

    Attributes:
        parts: at least one.
        labels: the number of the part of each slice along the axis that is cut; None if the output is whole.
    """

    parts: list[OutputPart]
    labels: NDArray[np.intp] | None = None


def cut(index: int, samples: Sequence[Array]) -> Cut:
    """Cut an output into parts along the axis whose slices differ most.

    Args:
        index: which output it is.
        samples: its values in the float model for each feed, with an axis of samples in front.
    """
    whole = Cut([_described(OutputPart(index), samples)])
    shapes = {array.shape[1:] for array in samples}
    if len({len(shape) for shape in shapes}) != 1 or whole.parts[0].kind == "distribution":
        return whole
    total = sum(array.size for array in samples)
    lengths = {axis: {shape[axis - 1] for shape in shapes} for axis in range(1, samples[0].ndim)}
    axes = [axis for axis, found in lengths.items() if len(found) == 1 and 1 < max(found) <= total // ENOUGH_VALUES]
    if not axes or not all(array.size and np.isfinite(array).all() for array in samples):
        return whole
    best: tuple[float, int, NDArray[np.intp]] | None = None
    for axis, energies in zip(axes, spreads(samples, axes), strict=True):
        labels = _groups(energies, *_limits(samples, axis))
        totals = np.bincount(labels, energies.sum(axis=0))
        contrast = float(totals.max() / max(totals.min(), np.finfo(float).tiny))
        if len(totals) > 1 and (best is None or contrast > best[0]):
            best = contrast, axis, labels
    if best is None:
        return whole
    _, axis, labels = best
    groups = [tuple(np.flatnonzero(labels == group).tolist()) for group in range(labels.max() + 1)]
    return Cut([_described(OutputPart(index, axis, group), samples) for group in groups], labels)


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


def spreads(samples: Sequence[Array], axes: Sequence[int | None]) -> list[Doubles]:
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
            table.append(reduced(squares, axis))
    by_value = [np.concatenate(table) for table in tables]
    return [a if a.sum() > ROUNDING * b.sum() else b for a, b in zip(by_value, by_slice, strict=True)]


def _about_slices(samples: Sequence[Array], axis: int | None) -> Doubles:
    """Return squared distances from the mean of each slice over all samples."""
    others = tuple(place for place in range(samples[0].ndim) if place != axis) if axis is not None else None
    count = sum(array.size for array in samples) / (1 if axis is None else samples[0].shape[axis])
    mean: Any = sum(array.sum(axis=others, dtype=np.float64, keepdims=axis is not None) for array in samples)
    mean = mean / max(count, 1)
    return np.concatenate([reduced(np.square(array - mean), axis) for array in samples])


def _limits(samples: Sequence[Array], axis: int) -> tuple[Doubles, Doubles]:
    others = tuple(place for place in range(samples[0].ndim) if place != axis)
    low = np.min([array.min(axis=others) for array in samples], axis=0)
    high = np.max([array.max(axis=others) for array in samples], axis=0)
    return low.astype(np.float64), high.astype(np.float64)


def reduced(squares: Array, axis: int | None) -> Doubles:
    """Return sums over everything but the samples and an axis."""
    if axis is None:
        return np.asarray(squares.reshape(len(squares), -1).sum(axis=1, dtype=np.float64)[:, None])
    others = tuple(place for place in range(1, squares.ndim) if place != axis)
    return np.asarray(squares.sum(axis=others, dtype=np.float64))
