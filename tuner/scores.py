"""What eval_func says of a model: a number, several by name, and a score for each sample where it gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# What the one metric is called whose score comes without a name.
UNNAMED = "score"
# How the scores of samples are kept, the smallest first; whichever holds them exactly is taken.
BITS, FLOAT32, FLOAT64 = "bits", "f4", "f8"
WIDTHS = {FLOAT32: 4, FLOAT64: 8}
# Scores of samples of one evaluation, all metrics together: as many as a frame of the history (64 MiB) holds at eight
# bytes each, with a MiB left for the rest of the trial.
MAX_SAMPLE_SCORES = (64 - 1) * 2**20 // 8


def too_many_scores(count: int) -> str:
    """Return why so many scores of samples cannot be kept, and what to do; empty if they can."""
    if count <= MAX_SAMPLE_SCORES:
        return ""
    return (
        f"{count:,} scores of samples are more than the {MAX_SAMPLE_SCORES:,} that the history of a run holds for a "
        "trial: return the mean as one number, or the scores of fewer samples"
    )


@dataclass(frozen=True, slots=True)
class Samples:
    """A score for each sample, kept as bytes: a bit each where all are 0 or 1, else four or eight bytes.

    Thousands of trials hold thousands of them; they become numbers when somebody looks.

    Attributes:
        coding: how they are kept.
        count: how many there are.
        data: the bytes, little-endian.
    """

    coding: str
    count: int
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, scores: Floats) -> Samples:
        """The scores of samples, in order, exactly as they are."""
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
        """What the score of the model is."""
        return float(self.array.mean())

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluation came to.

    Attributes:
        value: the number that a trial is told by: the first metric if there are several.
        metrics: by name; empty if eval_func gives one number without a name.
        samples: the scores of samples, by the name of their metric ("score" if it has none); empty if there are none.
        stopped: whether the evaluation was ended before all samples were seen. Values are estimates then.
        streamed: whether they came batch by batch, so that an evaluation can be stopped.
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
