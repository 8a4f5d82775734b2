"""How well speech and music are heard."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.bench import Array

WINDOW_FRAMES, NOTES = 172, 88
SOUNDS = 0.3
# Loudness is felt as about this power of the magnitude.
FELT = 0.3


def gains(outputs: Array) -> Array:
    """How much of each band is let through, moment by moment."""
    return np.asarray(outputs[0])


def cleanness(found: Any, labels: Any) -> float:
    """One minus the error that is left in what is heard, by the speech alone; labels are noisy and clean magnitudes."""
    error = total = 0.0
    for gain, (noisy, clean) in zip(found, labels, strict=True):
        heard = (np.clip(gain, 0, 1) * noisy) ** FELT
        error += float(((heard - clean**FELT) ** 2).sum())
        total += float((clean ** (2 * FELT)).sum())
    return 1 - error / total


def speaking(outputs: Any) -> Array:
    """In which steps somebody speaks; the other outputs are the memory."""
    return np.asarray(outputs[0]) > 0.5


def pitches(outputs: Any) -> Array:
    """Return the pitch of each frame in hertz; the second output is the confidence."""
    return np.asarray(outputs[0])[0]


def in_tune(found: Any, labels: Any) -> float:
    """The share of frames whose pitch is right to half a semitone."""
    ratios = np.log2(np.maximum(np.stack(found), 1) / np.asarray(labels))
    return float((np.abs(ratios) < 1 / 24).mean())


def better_first(found: Array, _: Array) -> float:
    """The share of pairs, one row after the other, whose first is thought better."""
    marks = np.ravel(found)
    return float((marks[0::2] > marks[1::2]).mean())


def notes(outputs: Any) -> Array:
    """Which notes sound; the outputs are their beginnings, the notes and the pitch in finer steps."""
    return np.asarray(outputs[1]) > SOUNDS


def key(outputs: Any) -> int:
    """Return the most likely of the 24 keys."""
    return int(np.ravel(outputs).argmax())


def same_key(found: Any, labels: Any) -> float:
    """Return the share of pieces whose key is right."""
    return float((np.array(found) == np.asarray(labels)).mean())
