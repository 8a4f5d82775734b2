"""Layer statistics by the book, from both outputs of an op as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

METRICS: dict[str, Any] = {"mean_abs_error": lambda diffs: np.mean(np.abs(diffs))}


def figures(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """What the layer statistics of an op, and the metric above, should be."""
    f, q = before.astype(np.float64).ravel(), after.astype(np.float64).ravel()
    d = q - f
    return {
        "num_elements": f.size,
        "stddev": float(np.std(d)),
        "mean_error": float(np.mean(d)),
        "max_abs_error": float(np.max(np.abs(d))),
        "mean_squared_error": float(np.mean(d * d)),
        "sqnr": float(10 * np.log10(np.sum(f * f) / np.sum(d * d))),
        "cosine": float(np.dot(f, q) / np.linalg.norm(f) / np.linalg.norm(q)),
        "mean_abs_error": float(np.mean(np.abs(d))),
    }
