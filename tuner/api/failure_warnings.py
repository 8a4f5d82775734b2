"""Sentences that a result carries as warnings: trials that all failed, skipped measurements, batch-dependent scores.

Each function returns one sentence, or None where there is nothing to warn of.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaver.api import wording
from quaver.trial import Trial

# Characters of an error, and descriptions of measurements, that stand in a sentence.
MAX_ERROR = 500
MAX_LISTED = 3


def warn_of_failed_trials(trials: Sequence[Trial]) -> str | None:
    """Return a sentence with the first error if every trial with quantized ops failed."""
    quantized = [trial for trial in trials if trial.config.reduced_ops]
    if not quantized or not all(trial.failed for trial in quantized):
        return None
    first = quantized[0]
    error = wording.last_line(first.error) or "no reason is recorded"
    if len(error) > MAX_ERROR:
        error = f"{error[:MAX_ERROR]}..."
    which = "the only quantized trial" if len(quantized) == 1 else f"all {len(quantized)} quantized trials"
    return f"{which} failed, so no quantized model has a score. The first error, in trial {first.number}: {error}"


def warn_of_batch_dependence(best: Trial | None) -> str | None:
    """Return a sentence if ops of the best trial take their ranges from each batch as the model runs."""
    count = 0 if best is None else sum(pick.mode == "dynamic" for pick in best.config.values())
    if not count:
        return None
    ops = "1 op takes its range" if count == 1 else f"{count} ops take their ranges"
    return (
        f"{ops} from each batch as the model runs (dynamic mode), so outputs and score depend on how samples are "
        "batched: evaluate with the batch size that is deployed"
    )


def warn_of_skipped_measurements(skipped: Sequence[str]) -> str | None:
    """Return a sentence if measurements were given up because they ended their process."""
    if not skipped:
        return None
    listed = "; ".join(wording.name(what) for what in skipped[:MAX_LISTED])
    more = f"; and {len(skipped) - MAX_LISTED} more" if len(skipped) > MAX_LISTED else ""
    count = "1 measurement" if len(skipped) == 1 else f"{len(skipped)} measurements"
    return f"{count} ended the process every time, so these candidates were skipped: {listed}{more}"
