"""Scores of recognisers that are trained with CTC: text lines, speech."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quaver.errors import EvaluationError
from quaver.metrics.inference import Data
from quaver.metrics.metric import Metric, SampleMetric
from quaver.types import Array

Symbols = tuple[Any, ...]


def ctc_exact(
    data: Any,
    labels: Any = None,
    *,
    alphabet: Sequence[str] | None = None,
    blank: int = 0,
    time_major: bool = False,
    output: int = 0,
) -> Metric:
    """Whether what is read is the label, all of it.

    Args:
        data: samples, as for `top1`.
        labels: a text for each sample, or its sequence of class numbers; numbers below 0 at the end are padding.
        alphabet: what each class but the blank stands for, in order; needed where labels are texts.
        blank: the class that stands for nothing.
        time_major: whether the output is [time, n, classes]; it is [n, time, classes] otherwise.
        output: which output of the model to look at.
    """
    return _Ctc("ctc_exact", Data(data, labels), output, alphabet, blank, time_major, exact=True)


def cer(
    data: Any,
    labels: Any = None,
    *,
    alphabet: Sequence[str] | None = None,
    blank: int = 0,
    time_major: bool = False,
    output: int = 0,
) -> Metric:
    """The character error rate of each sample: edits to its label, for each character of it. See `ctc_exact`.

    Lower is better: give `higher_is_better=False`. It often is small, so that `absolute=` says more than `relative=`.
    """
    return _Ctc("cer", Data(data, labels), output, alphabet, blank, time_major, exact=False)


class _Ctc(SampleMetric):
    def __init__(
        self,
        name: str,
        data: Data,
        output: int,
        alphabet: Sequence[str] | None,
        blank: int,
        time_major: bool,
        exact: bool,
    ) -> None:
        super().__init__(name, data, output, higher_is_better=exact)
        self._alphabet = None if alphabet is None else list(alphabet)
        self._blank, self._time_major, self._exact = blank, time_major, exact

    def scores(self, output: Array, labels: Any) -> Any:
        if output.ndim != 3:
            raise EvaluationError(f"{self.name} needs an output of three axes, not of shape {output.shape}")
        steps = (output.swapaxes(0, 1) if self._time_major else output).argmax(axis=-1)
        pairs = zip((self._read(row) for row in steps), map(self._truth, labels), strict=True)
        if self._exact:
            return [read == truth for read, truth in pairs]
        return [edits(read, truth) / max(len(truth), 1) for read, truth in pairs]

    def _read(self, steps: Array) -> Symbols:
        """Greedy decoding: what repeats is one, and blanks are none."""
        kept = steps[np.append(True, steps[1:] != steps[:-1])]
        found = [int(step) for step in kept if step != self._blank]
        if self._alphabet is None:
            return tuple(found)
        places = [step - (step > self._blank) for step in found]
        return tuple(self._alphabet[place] if place < len(self._alphabet) else None for place in places)

    def _truth(self, label: Any) -> Symbols:
        if isinstance(label, str):
            if self._alphabet is None:
                raise EvaluationError(
                    f"{self.name}: labels are texts, so `alphabet=` must say what each class stands for"
                )
            return tuple(label)
        return tuple(int(symbol) for symbol in label if int(symbol) >= 0)


def edits(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many symbols must be put in, left out or replaced to make one of the other (Levenshtein)."""
    before = list(range(len(other) + 1))
    for index, symbol in enumerate(one, 1):
        row = [index]
        for place, wanted in enumerate(other, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (symbol != wanted)))
        before = row
    return before[-1]
