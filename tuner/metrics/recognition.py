"""Metrics of recognisers trained with CTC, such as text lines and speech."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from quaver.errors import EvaluationError
from quaver.metrics.inference import Data, LabelData, SampleData
from quaver.metrics.metric import Metric, SampleMetric
from quaver.types import Array

Symbols = tuple[Any, ...]


def ctc_exact(
    data: SampleData,
    labels: LabelData = None,
    *,
    alphabet: Sequence[str] | None = None,
    blank: int = 0,
    time_major: bool = False,
    output: int = 0,
) -> Metric:
    """Score 1 for each sample whose decoded text equals the label exactly.

    Args:
        data: samples, as for `top1`.
        labels: a text for each sample, or a sequence of class numbers; negative numbers at the end are padding.
        alphabet: the symbols of all classes but the blank, in order; needed if labels are texts.
        blank: number of the blank class.
        time_major: True if the output is [time, n, classes]; otherwise it is [n, time, classes].
        output: index of the output to decode.
    """
    return _Ctc("ctc_exact", Data(data, labels), output, _Decoding(alphabet, blank, time_major), exact=True)


def cer(
    data: SampleData,
    labels: LabelData = None,
    *,
    alphabet: Sequence[str] | None = None,
    blank: int = 0,
    time_major: bool = False,
    output: int = 0,
) -> Metric:
    """Score each sample by its character error rate: edits per character of the label. See `ctc_exact` for arguments.

    Lower is better: pass `higher_is_better=False`. The rate is often near 0, where `absolute=` suits better than
    `relative=`.
    """
    return _Ctc("cer", Data(data, labels), output, _Decoding(alphabet, blank, time_major), exact=False)


class _Decoding(NamedTuple):
    """How to read the output of a CTC model: see the arguments of `ctc_exact`."""

    alphabet: Sequence[str] | None
    blank: int
    time_major: bool


class _Ctc(SampleMetric):
    def __init__(self, name: str, data: Data, output: int, decoding: _Decoding, exact: bool) -> None:
        super().__init__(name, data, output, higher_is_better=exact)
        self._alphabet = None if decoding.alphabet is None else list(decoding.alphabet)
        self._blank, self._time_major, self._exact = decoding.blank, decoding.time_major, exact

    def scores(self, output: Array, labels: LabelData) -> Any:
        if output.ndim != 3:
            raise EvaluationError(f"{self.name} needs an output with three axes, but its shape is {output.shape}")
        steps = (output.swapaxes(0, 1) if self._time_major else output).argmax(axis=-1)
        pairs = zip((self._read(row) for row in steps), map(self._truth, labels), strict=True)
        if self._exact:
            return [read == truth for read, truth in pairs]
        return [edits(read, truth) / max(len(truth), 1) for read, truth in pairs]

    def _read(self, steps: Array) -> Symbols:
        """Decode greedily: merge repeated classes, then drop blanks."""
        merged = steps[np.append(True, steps[1:] != steps[:-1])]
        classes = [int(step) for step in merged if step != self._blank]
        if self._alphabet is None:
            return tuple(classes)
        indexes = [number - (number > self._blank) for number in classes]
        return tuple(self._alphabet[index] if index < len(self._alphabet) else None for index in indexes)

    def _truth(self, label: Any) -> Symbols:
        if isinstance(label, str):
            if self._alphabet is None:
                raise EvaluationError(
                    f"{self.name}: labels are texts, so `alphabet=` must give the symbol of each class"
                )
            return tuple(label)
        return tuple(int(symbol) for symbol in label if int(symbol) >= 0)


def edits(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the Levenshtein distance: the insertions, deletions and replacements that turn one into the other."""
    previous_row = list(range(len(second) + 1))
    for index, symbol in enumerate(first, 1):
        row = [index]
        for column, wanted in enumerate(second, 1):
            row.append(min(previous_row[column] + 1, row[-1] + 1, previous_row[column - 1] + (symbol != wanted)))
        previous_row = row
    return previous_row[-1]
