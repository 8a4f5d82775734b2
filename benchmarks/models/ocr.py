"""How well lines of text are read."""

from __future__ import annotations

import numpy as np

from benchmarks.models.bench import Array

# The reader's classes: blank, then these.
ALPHABET = "0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~!\"#$%&'()*+,-./  "


def exact_match(outputs: Array, texts: Array) -> float:
    """The share of lines whose text comes out right."""
    return float(np.mean([decode(output) == text for output, text in zip(outputs, texts, strict=True)]))


def decode(output: Array) -> str:
    """The text of one line by greedy CTC: repeated classes count once, blanks and outer spaces not at all."""
    classes = output.argmax(axis=-1)
    changed = np.diff(classes, prepend=-1) != 0
    return "".join(ALPHABET[kind - 1] for kind in classes[changed] if kind).strip()
