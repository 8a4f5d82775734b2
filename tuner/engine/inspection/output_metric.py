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

from quaver.engine.inspection.output_parts import MIN_TYPICAL, Doubles, OutputPart, cut, reduced, spreads
from quaver.types import Array

Outputs: TypeAlias = Sequence[Array]
"""The numeric outputs of one feed."""


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
            return reduced(expected != actual, None)
        difference = self.root(actual) - expected
        noise = self.by_part(reduced(np.square(difference, dtype=np.float64), self.axis))
        if np.isfinite(noise).all():
            return noise
        # Infinities of the float model, such as masks, are no errors.
        difference = np.where((expected == actual) | (np.isnan(expected) & np.isnan(actual)), 0.0, difference)
        return self.by_part(reduced(np.square(difference, dtype=np.float64), self.axis))


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
        output = _Output(samples, *cut(index, samples))
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
    spread = output.by_part(spreads(finite, [output.axis])[0])
    values = output.by_part(
        np.concatenate([reduced(np.square(array, dtype=np.float64), output.axis) for array in finite])
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
