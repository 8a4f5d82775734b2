"""Configurations that end the process, by a segmentation fault in a kernel or for lack of memory.

A dying process records nothing. So a trial is recorded as begun, and one that has no record when the run is resumed
counts as a crash. A configuration that crashed too often is recorded as failed and not tried again.

Native work between trials is recorded the same way, as steps: measurements without labels (see
`quaver.engine.measurement_runner`), and what happens at the end of a run.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from quaver.engine.measurements import OUTPUT_ERROR, Measurement
from quaver.errors import EvaluationError, HistoryError
from quaver.history import RETRIES, History
from quaver.history.records.unfinished_trials import digest_step
from quaver.ops import OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

log = logging.getLogger(__name__)

# The note of measurements that are skipped because they end the process: digest of the name -> description.
DIED = "probe.died"
# The note of ops that end the process even if no other op is quantized: "precision mode op" -> True. Other
# calibrations and granularities of an op give the same graph, so they are not tried one by one.
FATAL_OPS = "probe.fatal_ops"
# The step in which `confirm` is called.
CONFIRMING = "scoring the winner on other data"
# Deaths after which a measurement or a step is skipped. Judgement: the first death may have another cause.
MAX_DEATHS = 2


def fatal_ops(history: History, config: QuantConfig) -> list[str]:
    """Return the quantized ops of a configuration that end the process even if no other op is quantized."""
    fatal = history.notes.get(FATAL_OPS, {})
    return [op for op, pick in config.items() if fatal_key(op, pick) in fatal] if fatal else []


def fatal_key(op: str, pick: OpConfig) -> str:
    """Return the key of an op in the note `FATAL_OPS`."""
    return f"{pick.precision} {pick.mode} {op}"


def is_fatal(history: History, config: QuantConfig) -> bool:
    """Return whether a configuration ended its process on calibration samples, or one of its ops does alone."""
    dead = history.notes.get(DIED, {})
    if not dead:  # usually there are none, and no digest is needed
        return False
    return digest_step(Measurement(OUTPUT_ERROR, (config,)).name) in dead or bool(fatal_ops(history, config))


def exceeded_crash_limit(history: History, number: int, config: QuantConfig, isolated: bool = False) -> Trial | None:
    """Record a configuration that ended the process too often as failed, and return its trial; None if it may be tried.

    Deaths of trials in other processes (`isolated`) are not counted here; those of measurements are.
    """
    crashes = 0 if isolated else history.crashes(config)
    if crashes <= RETRIES and not is_fatal(history, config):
        return None
    activity, crashes = ("built or evaluated", crashes) if crashes > RETRIES else ("run on samples", MAX_DEATHS)
    error = (
        f"the process ended {crashes} times while this configuration was {activity} (a crash, a kill, or no "
        "memory left), so it is not tried again"
    )
    trial = Trial(number, config, TrialState.FAILED, error=error)
    history.append(trial)
    return trial


def mark_released(history: History, number: int) -> None:
    """Note that a trial ended without a record while the process lives, so that it does not count as a crash."""
    with contextlib.suppress(HistoryError):
        history.drop_trial(number)


def check_baseline(history: History, config: QuantConfig) -> None:
    """Refuse to score the fp32 model again if the process ended too often while it was built or evaluated.

    Raises:
        EvaluationError: with what the user can do.
    """
    crashes = history.crashes(config)
    if crashes > RETRIES:
        raise EvaluationError(
            f"the process ended {crashes} times while the fp32 model was built or evaluated (a crash, a kill, or no "
            "memory left), so it is not tried again in this process. Resume with isolate=True, which evaluates in a "
            "process of its own and reports how that ends; or start a new run in another workspace"
        )


def check_confirming(history: History) -> None:
    """Refuse to score the winner on other data again if the process ended too often while that was done.

    Raises:
        EvaluationError: with what the user can do.
    """
    crashes = history.step_crashes(CONFIRMING)
    if crashes > RETRIES:
        raise EvaluationError(
            f"the process ended {crashes} times while `confirm` scored the winner (a crash, a kill, or no memory "
            "left): it is not called again. The run itself is complete, so resume it without `confirm`"
        )


@contextlib.contextmanager
def step(history: History, name: str) -> Iterator[None]:
    """Record a step as begun while it runs, so that the next run knows if the process ended during it.

    An exception ends a step in order: that is no crash.
    """
    history.begin_step(name)
    try:
        yield
    finally:
        with contextlib.suppress(HistoryError):
            history.end_step()


@contextlib.contextmanager
def last_step(history: History, name: str, consequence: str) -> Iterator[bool]:
    """Record a step at the end of a run as begun, and yield whether it may run.

    A step that ended the process `MAX_DEATHS` times may not: a warning says so, with the consequence.
    """
    crashes = history.step_crashes(name)
    if crashes >= MAX_DEATHS:
        message = f"the process ended {crashes} times while {name}, so this is skipped: {consequence}"
        log.warning("%s", message)
        warnings.warn(message, UserWarning, stacklevel=3)
        yield False
        return
    with step(history, name):
        yield True
