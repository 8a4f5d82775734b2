"""The space of a run: the ops of a model, narrowed by rules and by what is known of it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters import Adapter, abilities
from quaver.adapters.data import count_samples
from quaver.api.config.config import Config
from quaver.api.display.format import CONVERSIONS, conversions
from quaver.engine.compatibility import check_same_ops, restore, versions_of
from quaver.engine.event_base import Stage
from quaver.engine.events import CalibrationCut, ModelConverted, Progressed, StageStarted, StartedFrom
from quaver.engine.observers import Observer
from quaver.engine.run.crashes import is_fatal
from quaver.engine.run.scheduling import Clock
from quaver.engine.scoring.judge import judge_snapshot
from quaver.engine.timing.objective import Objective
from quaver.errors import HistoryError, SettingsError
from quaver.files.paths import expanded
from quaver.history import UNCALIBRATED, Header, History, read_snapshot
from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.choices import from_choice, to_choices
from quaver.history.records.header import OPS_VERSION_KEY
from quaver.ops import QuantConfig
from quaver.rules import apply_rules
from quaver.space import TuningSpace, smallest_first, without_calibration
from quaver.types import PlainDict


def space_of(adapter: Adapter, config: Config, objective: Objective, calibrated: bool) -> TuningSpace:
    """What may be chosen. Where size counts, by default all that gets smaller is reduced, and nothing else."""
    offered = adapter.ops()
    if objective.traits.rewards_small_files:  # before the rules, which may leave no choice by which a weight is known
        offered = smallest_first(offered)
    ops = apply_rules(offered, config.op_name_dict, config.op_type_dict)
    if not any(op.quantizable for op in ops):
        raise SettingsError("op_name_dict and op_type_dict leave nothing to quantize")
    ops = tuple(replace(op, smaller=()) for op in ops)  # who did not ask for what only gets smaller does not get it
    space = TuningSpace(ops if calibrated else without_calibration(ops))
    if not calibrated and not space.quantizable:
        raise SettingsError(
            "calib_dataloader is needed for this model: none of its ops can run in 8 bits without calibrated ranges. A "
            "few hundred typical inputs will do, without labels"
        )
    if not calibrated and not space.default_config().quantized_ops:
        raise SettingsError(
            "without calibration data nothing in this model gets faster in 8 bits, only smaller: pass calib_dataloader "
            '(a few hundred typical inputs, without labels), or objective="size"'
        )
    return space


# The note that keeps the configuration, so that a resumed run needs the other snapshot no more.
NOTE = "start_from"


def first_config(
    start_from: str | os.PathLike[str] | None, space: TuningSpace, history: History, observer: Observer
) -> QuantConfig | None:
    """The configuration to try first; None if there is none. What is new in the model runs in int8."""
    known = _noted(history, space)
    if known is not None or start_from is None:
        return known
    snapshot = read_snapshot(Path(expanded(start_from)))
    best = judge_snapshot(snapshot).best
    if best is None:
        raise HistoryError(f"`start_from`: {snapshot.path} has no trial with a score to start from")
    kinds = {op.name: op.kind for op in snapshot.header.ops}
    same = [op for op in space.ops if kinds.get(op.name) == op.kind]
    if not same:
        raise SettingsError(
            f"`start_from`: no op of this model has the name and the kind of one in {snapshot.path}; is it a run of "
            "this model's last version?"
        )
    offered = [op.name for op in same if best.config[op.name] in op.choices]
    lost = tuple(op.name for op in same if op.name not in set(offered))
    config = space.default_config().replace({name: best.config[name] for name in offered})
    history.note(NOTE, {name: from_choice(choice) for name, choice in config.items()})
    observer(StartedFrom(snapshot.path, best.number, len(offered), len(space.ops), lost))
    return config


def _noted(history: History, space: TuningSpace) -> QuantConfig | None:
    noted: Any = history.notes.get(NOTE)
    if not isinstance(noted, dict) or [*noted] != [op.name for op in space.ops]:
        return None
    try:
        config = QuantConfig((name, to_choices([choice])[0]) for name, choice in noted.items())
    except MalformedRecord:
        return None
    return config if space.allows(config) else None


# So many samples are taken if nobody says how many: fewer were worse on one model of three, more were no better on any
# (benchmarks/results/sample_counts.json), and a loader may be endless.
MOST_SAMPLES = 256
# What calibration may take of the timeout.
SHARE = 0.5


def calibrate(adapter: Adapter, config: Config, data: Any, watch: Observer, clock: Clock | None = None) -> PlainDict:
    """Calibrate, and say so if not all of the data was used."""
    wanted, seen = config.max_samples, 0
    limit = MOST_SAMPLES if wanted is None else wanted
    total = expected_samples(data, wanted)

    def progress(done: int, _: int | None) -> None:
        nonlocal seen
        seen = done
        watch(Progressed(Stage.CALIBRATING, done, total))

    watch(StageStarted(Stage.CALIBRATING))
    enough = _out_of_time(config.timeout, clock)
    found = adapter.calibrate(data, limit, progress, enough)
    if enough() and seen < limit:
        watch(CalibrationCut(seen, f"{SHARE:.0%} of the timeout is used up"))
    elif wanted is None and adapter.has_data_left:
        advice = "more rarely help, and calibration_sampling_size sets another number"
        watch(CalibrationCut(seen, advice))
    return found


def expected_samples(data: Any, limit: int | None) -> int | None:
    """Return how many samples calibration will use, if that can be told without reading them."""
    whole = next(iter(data.values()), None) if isinstance(data, dict) else data
    if isinstance(whole, np.ndarray) and whole.ndim:
        return min(MOST_SAMPLES if limit is None else limit, len(whole))
    return limit


def _out_of_time(timeout: float, clock: Clock | None) -> Callable[[], bool]:
    return lambda: clock is not None and 0 < SHARE * timeout <= clock.seconds


log = logging.getLogger(__name__)


def prepare(adapter: Adapter, history: History, config: Config, data: Any, observer: Observer, clock: Clock) -> None:
    """Calibrate and begin the history, or take the calibration from a history that was begun before."""
    header = history.header
    if header is None:
        if data is None and config.resume is not None:
            raise SettingsError(f"{history.path} ended before calibration was done: pass calib_dataloader to resume it")
        if data is None:
            calibration = dict(UNCALIBRATED)
            calibration["comparison"] = abilities.compare_with_unmodified(adapter).to_dict()
            adapter.restore(calibration)
        else:
            calibration = calibrate(adapter, config, data, observer, clock)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        calibration[OPS_VERSION_KEY] = adapter.options.ops_version
        history.begin(Header(adapter.fingerprint, adapter.name, adapter.ops(), calibration, now))
        history.start_run(config.to_dict(), versions_of(adapter))
        return
    clock.go_on(history)
    check_same_ops(adapter, header, history.path)
    history.start_run(config.to_dict(), versions_of(adapter))
    restore(adapter, header, history.path)
    history.forget_trailing_failures(lambda tried: is_fatal(history, tried))
    if data is not None:
        adapter.keep_probe_samples(data)


def check_timing_batch(adapter: Adapter, batch: int) -> None:
    """Refuse a `batch` that the model does not run at; say so where the model has one of its own.

    Whether a model that leaves its batch open takes several samples at once shows only when it is run.
    """
    if not adapter.probe_samples:
        return
    feed = adapter.timing_feed
    if batch == 1:
        if count_samples(feed) != 1:
            log.info("latency is measured at batch %d: the model takes no other", count_samples(feed))
        return
    if count_samples(feed) != batch:
        raise SettingsError(
            f"`batch={batch}`, but the model takes the calibration data only in batches as they are, of "
            f"{count_samples(feed)} sample(s): leave `batch` out, or give the data in batches of {batch}"
        )
    try:
        adapter.assemble(None).run(feed)
    except Exception as error:
        raise SettingsError(
            f"`batch={batch}`, but the model does not run on so many samples at once: {error!s:.300}. Leave `batch` "
            "out, or export the model with an open batch axis"
        ) from error


def say_conversions(adapter: Adapter, history: History, observer: Observer) -> None:
    """Tell what was converted when the model was read, and note it once."""
    for what in abilities.conversions(adapter):
        observer(ModelConverted(what))
    if abilities.conversions(adapter) != conversions(history.notes):
        history.note(CONVERSIONS, list(abilities.conversions(adapter)))


@contextlib.contextmanager
def pointing_to(history: History) -> Iterator[None]:
    """Let an error on the way say how to go on."""
    try:
        yield
    except BaseException as error:
        if history.baseline is not None and not isinstance(error, HistoryError):
            error.add_note(f"Everything so far is in {history.path}; go on with fit(..., resume={str(history.path)!r})")
        raise
