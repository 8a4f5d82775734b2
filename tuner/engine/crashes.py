"""Configurations that end the process: a segmentation fault in a kernel, or more memory than there is.

Nothing can be said when it happens. A trial that was begun, and is not in the history when the next run goes on, is
counted then; one that was counted too often is recorded as failed and not asked for any more.
"""

from __future__ import annotations

import contextlib

from quaver.errors import HistoryError
from quaver.history import RETRIES, Storage
from quaver.ops import QuantConfig
from quaver.trial import Trial, TrialState


def given_up(history: Storage, number: int, config: QuantConfig) -> Trial | None:
    """The failed trial, recorded, of a configuration that ended the process too often; None if it may be tried."""
    crashes = history.crashes(config)
    if crashes <= RETRIES:
        return None
    error = (
        f"the process ended {crashes} times while this configuration was built or evaluated (a crash, a kill, or no "
        "memory left), so it is not tried again"
    )
    trial = Trial(number, config, TrialState.FAILED, error=error)
    history.append(trial)
    return trial


def let_go(history: Storage, number: int) -> None:
    """A trial ends without a record, and the process goes on: that is no crash. Nothing else goes wrong here."""
    with contextlib.suppress(HistoryError):
        history.drop_trial(number)
