"""Several metrics and the scores of samples, as fields of a trial. Trials with one number have none of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quaver.history.choices import utf8
from quaver.history.fields import Fields, figures, from_number
from quaver.history.opcodes import Malformed
from quaver.scores import BITS, UNNAMED, WIDTHS, Samples, Score
from quaver.trial import Trial

# Metrics of one trial.
MAX_METRICS = 1000


def from_scores(scored: Trial | Score) -> dict[str, Any]:
    """The fields, as far as there is something to say."""
    found: dict[str, Any] = {}
    if scored.metrics:
        found["metrics"] = {name: from_number(value) for name, value in scored.metrics.items()}
    if scored.samples:
        found["samples"] = {name: (one.coding, one.count, one.data) for name, one in scored.samples.items()}
    return found


def to_scores(taken: Fields) -> dict[str, Any]:
    """The same for a trial. The scores of samples stay bytes, which fit what is said about them."""
    metrics = figures(taken.take("metrics", dict), "metrics") if "metrics" in taken else {}
    given = taken.take("samples", dict) if "samples" in taken else {}
    if len(metrics) > MAX_METRICS or len(given) > MAX_METRICS:
        raise Malformed(f"it has more than {MAX_METRICS:,} metrics")
    for name, value in metrics.items():
        utf8(name, "metrics")
        if not math.isfinite(value):
            raise Malformed(f"metrics[{name!r:.80}] must be finite, not {value}")
    samples = {name: _to_samples(name, item) for name, item in given.items()}
    for name in samples:
        if name not in (metrics or (UNNAMED,)):
            raise Malformed(f"samples[{name!r:.80}] is of no metric of the trial")
    return {"metrics": metrics, "samples": samples}


def _to_samples(name: Any, item: Any) -> Samples:
    where = f"samples[{name!r:.80}]"
    if type(name) is not str or type(item) is not tuple or [type(part) for part in item] != [str, int, bytes]:
        raise Malformed(f"{where} must be a tuple of str, int, bytes under a str")
    utf8(name, "samples")
    coding, count, data = item
    if coding == BITS:
        size, wrong = (count + 7) // 8, bool(count % 8 and data and data[-1] & (0xFF >> count % 8))
    elif coding in WIDTHS:
        size, wrong = count * WIDTHS[coding], False
    else:
        raise Malformed(f"{where} is kept as {coding!r:.80}; known are {', '.join((BITS, *WIDTHS))}")
    if count < 1 or size != len(data) or wrong:
        raise Malformed(f"{where} says {count} samples, and has {len(data)} bytes that do not fit")
    if coding != BITS and not np.isfinite(np.frombuffer(data, f"<{coding}")).all():
        raise Malformed(f"{where} holds a score that is not finite")
    return Samples(coding, count, data)
