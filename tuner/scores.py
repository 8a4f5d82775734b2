"""Scores of a model: a number, several metrics by name, or a score for each sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The name of a metric whose score comes without a name.
UNNAMED = "score"
# The codings of sample scores, the smallest first. The first that holds the scores exactly is used.
BITS, FLOAT32, FLOAT64 = "bits", "f4", "f8"
WIDTHS = {FLOAT32: 4, FLOAT64: 8}
# Scores of samples of one evaluation, all metrics together: as many as a frame of the history (64 MiB) holds at eight
# bytes each, with a MiB left for the rest of the trial.
MAX_SAMPLE_SCORES = (64 - 1) * 2**20 // 8


def too_many_scores(count: int) -> str:
    """Return why this number of per-sample scores cannot be stored, and what to do; empty if it can."""
    if count <= MAX_SAMPLE_SCORES:
        return ""
    return (
        f"{count:,} scores of samples are more than the {MAX_SAMPLE_SCORES:,} that the history of a run holds for a "
        "trial: return the mean as one number, or the scores of fewer samples"
    )


@dataclass(frozen=True, slots=True)
class Samples:
    """A score for each sample, packed: a bit each if all are 0 or 1, else four or eight bytes.

    Thousands of trials hold thousands of scores, so they are unpacked only when they are read.

    Attributes:
        coding: the coding of the bytes.
        count: the number of scores.
        data: the bytes, little-endian.
    """

    coding: str
    count: int
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, scores: Floats) -> Samples:
        """Pack scores, exactly and in order."""
        if np.all((scores == 0) | (scores == 1)) and not np.signbit(scores).any():
            return cls(BITS, len(scores), np.packbits(scores.astype(bool)).tobytes())
        with np.errstate(over="ignore"):
            short = scores.astype("<f4")
        if np.array_equal(short.astype("<f8"), scores):
            return cls(FLOAT32, len(scores), short.tobytes())
        return cls(FLOAT64, len(scores), scores.astype("<f8").tobytes())

    @property
    def array(self) -> Floats:
        """The scores as numbers."""
        if self.coding == BITS:
            return np.unpackbits(np.frombuffer(self.data, np.uint8), count=self.count).astype(np.float64)
        return np.frombuffer(self.data, f"<{self.coding}").astype(np.float64)

    @property
    def mean(self) -> float:
        """The score of the model."""
        return float(self.array.mean())

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True)
class Score:
    """The result of an evaluation.

    Attributes:
        value: the score of the trial: the first metric if there are several.
        metrics: all metrics by name; empty if eval_func gives one number without a name.
        samples: the scores of samples, by the name of their metric ("score" if it has none); empty if there are none.
        stopped: True if the evaluation was stopped before all samples were scored. Then the values are estimates.
        streamed: True if the scores came batch by batch, so that an evaluation can be stopped.
    """

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, Samples] = field(default_factory=dict)
    stopped: bool = False
    streamed: bool = False

    @property
    def by_name(self) -> Mapping[str, float]:
        """All metrics; one without a name is called "score"."""
        return self.metrics or {UNNAMED: self.value}
