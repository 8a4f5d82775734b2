"""The one calibration of a run: on how many samples, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quaver.adapters import Adapter
from quaver.api.settings import Config
from quaver.api.telling import tell
from quaver.engine.clock import Clock
from quaver.engine.events import CalibrationCut, Observer, Progressed, Stage, StageStarted

# So many samples are taken if nobody says how many: fewer were worse on one model of three, more were no better on any
# (benchmarks/results/sample_counts.json), and a loader may be endless.
MOST_SAMPLES = 256
# What calibration may take of the timeout.
SHARE = 0.5


def calibrate(
    adapter: Adapter, config: Config, data: Any, watch: Observer, heard: bool, clock: Clock | None = None
) -> dict[str, Any]:
    """Calibrate, and say so if not all of the data was used."""
    wanted, seen = config.most_samples, 0
    limit = MOST_SAMPLES if wanted is None else wanted
    total = count_samples(data, wanted)

    def progress(done: int, _: int | None) -> None:
        nonlocal seen
        seen = done
        watch(Progressed(Stage.CALIBRATING, done, total))

    watch(StageStarted(Stage.CALIBRATING))
    enough = _out_of_time(config.timeout, clock)
    found = adapter.calibrate(data, limit, progress, enough)
    if enough() and seen < limit:
        tell(CalibrationCut(seen, f"{SHARE:.0%} of the timeout is used up"), watch, heard)
    elif wanted is None and adapter.data_left:
        advice = "more rarely help, and calibration_sampling_size sets another number"
        tell(CalibrationCut(seen, advice), watch, heard)
    return found


def count_samples(data: Any, limit: int | None) -> int | None:
    """How many samples will be calibrated on, if that can be told without reading them."""
    whole = next(iter(data.values()), None) if isinstance(data, dict) else data
    if isinstance(whole, np.ndarray) and whole.ndim:
        return min(MOST_SAMPLES if limit is None else limit, len(whole))
    return limit


def _out_of_time(timeout: float, clock: Clock | None) -> Callable[[], bool]:
    return lambda: clock is not None and 0 < SHARE * timeout <= clock.seconds
