"""Calibrate a model on the user's data, and check that it runs at the batch that is timed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from quaver.adapters import Adapter
from quaver.adapters.base import SlowRewrites, no_rewrites
from quaver.adapters.data import count_samples
from quaver.api.config.config import Config
from quaver.engine.event_base import Stage
from quaver.engine.events import CalibrationCut, Progressed, StageStarted
from quaver.engine.observers import Observer
from quaver.engine.run.scheduling import Clock
from quaver.engine.timing.cache import timing_cache
from quaver.engine.timing.rewrites import slow_rewrites
from quaver.errors import SettingsError
from quaver.types import CalibrationData, PlainDict

log = logging.getLogger(__name__)

# Samples to calibrate on by default: fewer were worse on one model of three, more were better on none
# (benchmarks/results/sample_counts.json).
DEFAULT_SAMPLES = 256
# The share of the timeout that calibration may use. Judgement: half is left for trials.
MAX_SHARE_OF_TIMEOUT = 0.5


def calibrate(
    adapter: Adapter,
    config: Config,
    data: CalibrationData,
    observer: Observer,
    clock: Clock | None = None,
    times_rewrites: bool = False,
) -> PlainDict:
    """Calibrate a model, and emit `CalibrationCut` if not all of the data was used.

    Args:
        adapter: the model.
        config: says how many samples to use, and how long the run may take.
        data: the user's calibration data.
        observer: is told of the progress.
        clock: the time that the run has used; None for no limit.
        times_rewrites: leave out rewrites of the float graph that do not pay on this machine.

    Returns:
        The calibration, as a history records it.
    """
    max_samples, done = config.max_samples, 0
    limit = DEFAULT_SAMPLES if max_samples is None else max_samples
    total = expected_samples(data, max_samples)

    def progress(count: int, _: int | None) -> None:
        nonlocal done
        done = count
        observer(Progressed(Stage.CALIBRATING, count, total))

    observer(StageStarted(Stage.CALIBRATING))
    is_out_of_time = _out_of_time(config.timeout, clock)
    slow = _slow_rewrites_of(config) if times_rewrites else no_rewrites
    calibration = adapter.calibrate(data, limit, progress, is_out_of_time, slow)
    if is_out_of_time() and done < limit:
        observer(CalibrationCut(done, f"{MAX_SHARE_OF_TIMEOUT:.0%} of the timeout is used up"))
    elif max_samples is None and adapter.has_data_left:
        observer(CalibrationCut(done, "more rarely help; calibration_sampling_size sets another number"))
    return calibration


def _slow_rewrites_of(config: Config) -> SlowRewrites:
    """Return what measures which rewrites do not pay; the cache answers if an earlier run has measured it."""

    def slow(adapter: Adapter) -> tuple[str, ...]:
        cache = timing_cache(adapter, config.quant_format, config.optimise_float) if config.timing_cache else None
        return slow_rewrites(adapter, cache)

    return slow


def expected_samples(data: CalibrationData, limit: int | None) -> int | None:
    """Return how many samples will be used, if that is known without reading the data."""
    array = next(iter(data.values()), None) if isinstance(data, dict) else data
    if isinstance(array, np.ndarray) and array.ndim:
        return min(DEFAULT_SAMPLES if limit is None else limit, len(array))
    return limit


def _out_of_time(timeout: float, clock: Clock | None) -> Callable[[], bool]:
    return lambda: clock is not None and 0 < MAX_SHARE_OF_TIMEOUT * timeout <= clock.seconds


def check_timing_batch(adapter: Adapter, batch: int) -> None:
    """Refuse a `batch` at which the model does not run.

    A model with an open batch axis may still accept one sample only, which shows when it is run.
    """
    if not adapter.probe_samples:
        return
    feed = adapter.timing_feed
    if batch == 1:
        if count_samples(feed) != 1:
            log.info("latency is measured at batch %d: the model accepts no other", count_samples(feed))
        return
    if count_samples(feed) != batch:
        raise SettingsError(
            f"`batch={batch}`, but the model accepts the calibration data only in its own batches of "
            f"{count_samples(feed)} sample(s): leave `batch` out, or pass the data in batches of {batch}"
        )
    try:
        adapter.assemble(None).run(feed)
    except Exception as error:
        raise SettingsError(
            f"`batch={batch}`, but the model does not run on {batch} samples at once: {error!s:.300}. Leave `batch` "
            "out, or export the model with an open batch axis"
        ) from error
