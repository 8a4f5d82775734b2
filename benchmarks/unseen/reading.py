"""How well lines are read, by character."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.bench import Array


def most_likely(outputs: Array) -> Array:
    """The most likely class at each place."""
    return outputs.argmax(axis=-1)


def one_line(outputs: Array) -> Array:
    """The most likely class at each place of a single line, whichever axis the batch has."""
    return outputs.reshape(-1, outputs.shape[-1]).argmax(axis=-1)


def spoken(outputs: Array) -> Array:
    """The classes that a network has chosen itself."""
    return outputs[0]


def collapse(classes: Array) -> list[int]:
    """Greedy CTC: repeated classes count once, blanks (0) not at all."""
    changed = np.diff(classes, prepend=-1) != 0
    return [int(kind) for kind in classes[changed] if kind]


def characters_right(outputs: Any, texts: Any) -> float:
    """One minus the share of characters that must be changed, left out or added; texts are lists of classes."""
    wrong = sum(
        edits(collapse(output), [int(kind) for kind in text]) for output, text in zip(outputs, texts, strict=True)
    )
    return 1 - wrong / sum(len(text) for text in texts)


def edits(first: list[int], second: list[int]) -> int:
    """Levenshtein's distance."""
    row = list(range(len(second) + 1))
    for i, left in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]
