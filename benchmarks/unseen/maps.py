"""Answers that come with a map from kinds to probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np


def probabilities(outputs: Any) -> dict[int, float]:
    """The map of the only row."""
    found: dict[int, float] = outputs[1][0]
    return found


def certainty(found: Any, labels: Any) -> float:
    """Mean probability of the right kind."""
    return float(np.mean([each[int(label)] for each, label in zip(found, labels, strict=True)]))
