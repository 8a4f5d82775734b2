"""What comes before the first trial: a calibrated adapter, and a history that was begun."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from quaver.adapters import Adapter
from quaver.adapters.batches import samples
from quaver.api.calibrating import calibrate
from quaver.api.phrases import CONVERSIONS, conversions
from quaver.api.settings import Config
from quaver.engine.clock import Clock
from quaver.engine.crashes import is_fatal
from quaver.engine.events import ModelConverted, Observer
from quaver.engine.same_model import check_same_ops, restore
from quaver.engine.versions import versions_of
from quaver.errors import HistoryError, SettingsError
from quaver.history import UNCALIBRATED, Header, Storage

log = logging.getLogger(__name__)


def prepare(
    adapter: Adapter, history: Storage, config: Config, data: Any, observer: Observer, heard: bool, clock: Clock
) -> None:
    """Calibrate and begin the history, or take the calibration from a history that was begun before."""
    header = history.header
    if header is None:
        if data is None and config.resume is not None:
            raise SettingsError(f"{history.path} ended before calibration was done: pass calib_dataloader to resume it")
        if data is None:
            calibration = dict(UNCALIBRATED)
            calibration["comparison"] = adapter.compare().to_dict()
            adapter.restore(calibration)
        else:
            calibration = calibrate(adapter, config, data, observer, heard, clock)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        history.begin(Header(adapter.fingerprint, adapter.name, adapter.inspect(), calibration, now))
        history.start_run(config.plain(), versions_of(adapter))
        return
    clock.go_on(history)
    check_same_ops(adapter, header, history.path)
    history.start_run(config.plain(), versions_of(adapter))
    restore(adapter, header, history.path)
    history.forget_trailing_failures(lambda tried: is_fatal(history, tried))
    if data is not None:
        adapter.keep(data)


def check_timing_batch(adapter: Adapter, batch: int) -> None:
    """Refuse a `batch` that the model does not run at; say so where the model has one of its own.

    Whether a model that leaves its batch open takes several samples at once shows only when it is run.
    """
    if not adapter.kept:
        return
    feed = adapter.timing_feed
    if batch == 1:
        if samples(feed) != 1:
            log.info("latency is measured at batch %d: the model takes no other", samples(feed))
        return
    if samples(feed) != batch:
        raise SettingsError(
            f"`batch={batch}`, but the model takes the calibration data only in batches as they are, of "
            f"{samples(feed)} sample(s): leave `batch` out, or give the data in batches of {batch}"
        )
    try:
        adapter.rebuild(None).run(feed)
    except Exception as error:
        raise SettingsError(
            f"`batch={batch}`, but the model does not run on so many samples at once: {error!s:.300}. Leave `batch` "
            "out, or export the model with an open batch axis"
        ) from error


def say_conversions(adapter: Adapter, history: Storage, observer: Observer) -> None:
    """Tell what was converted when the model was read, and note it once."""
    for what in adapter.conversions:
        observer(ModelConverted(what))
    if adapter.conversions != conversions(history.notes):
        history.note(CONVERSIONS, list(adapter.conversions))


@contextlib.contextmanager
def pointing_to(history: Storage) -> Iterator[None]:
    """Let an error on the way say how to go on."""
    try:
        yield
    except BaseException as error:
        if history.baseline is not None and not isinstance(error, HistoryError):
            error.add_note(f"Everything so far is in {history.path}; go on with fit(..., resume={str(history.path)!r})")
        raise
