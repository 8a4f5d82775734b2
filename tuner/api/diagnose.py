"""`diagnose`: what is wrong with a quantized model, whichever way it is given."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter, AdapterOptions, open_model
from quaver.api.result import TuneResult
from quaver.api.settings import Config, make_config
from quaver.diagnosis import Diagnosis
from quaver.engine.diagnosing import SAMPLES, Wishes, examine, examine_float, reiterable
from quaver.engine.events import Observer, Observers, Progressed, Stage, StageStarted, make_observers
from quaver.engine.same_model import check_same_model
from quaver.errors import CalibrationError, SettingsError, StrategyError
from quaver.history import Snapshot, read_snapshot
from quaver.ops import QuantConfig
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.trial import Trial

log = logging.getLogger(__name__)


def diagnose(
    model: Any,
    quantized: Any = None,
    calib_dataloader: Any = None,
    *,
    history: str | os.PathLike[str] | None = None,
    samples: int | None = SAMPLES,
    layer_metrics: Mapping[str, Callable[[Any], Any]] | None = None,
    model_metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    timing: bool = True,
    workspace: str | os.PathLike[str] | None = None,
    observer: Observer | Iterable[Observer] | None = None,
    **settings: Any,
) -> Diagnosis:
    """Say which ops of a quantized model are bad, how bad, and why. eval_func and labels are not needed.

    Args:
        model: the float model, in any form that `fit` takes.
        quantized: what to look at: a `QuantConfig`, a `Trial`, a `TuneResult` (its best trial), the number of a trial
            in `history`, or an already quantized model (a file, bytes); None is all ops in int8, as the rules allow.
        calib_dataloader: typical inputs, as for `fit`. They are gone through twice, unless `history` holds the
            calibration; of a generator, which cannot be, the first few samples are used the second time.
        history: a snapshot, or the workspace it lies in, whose calibration and trials are used.
        samples: how many samples to look at; None is all.
        layer_metrics: {name: function}, each called with the differences (quantized minus float) of an op's output in
            a batch; averaged over all elements.
        model_metrics: {name: function}, each called with the lists of outputs of the float and of the quantized model
            for one sample; averaged over all samples.
        timing: whether to time the ops, to find those that int8 makes slower.
        workspace: a folder for the tables; None writes none (`Diagnosis.save` does it later).
        observer: called with an event for all that happens; a list for several.
        settings: `op_name_dict`, `op_type_dict`, `calibration_sampling_size` and `threads` of `Config`.

    Returns:
        A `Diagnosis`: tables, causes, rules.
    """
    chosen = make_config(None, **settings)
    if calib_dataloader is None:
        raise SettingsError("calib_dataloader is needed: typical inputs to run through both models, without labels")
    if samples is not None and (not isinstance(samples, int) or isinstance(samples, bool) or samples < 1):
        raise SettingsError(f"`samples` must be a whole number of at least 1, or None for all, not {samples!r}")
    if workspace is not None:
        _check_writable(Path(workspace))
    quantized, snapshot = _meant(quantized, history)
    watch = Observers(*make_observers(observer))
    watch(StageStarted(Stage.READING))
    wishes = Wishes(samples, layer_metrics or {}, model_metrics or {}, timing)
    again = calib_dataloader if reiterable(calib_dataloader) else None
    options = AdapterOptions(None, chosen.threads, chosen.quant_format)
    with contextlib.closing(open_model(model, options, chosen.framework)) as adapter:
        config = _config_of(quantized, adapter, chosen)
        try:
            _calibrate(adapter, config is not None, snapshot, calib_dataloader, chosen, watch)
        except CalibrationError as error:
            found = _float_alone(adapter, again, wishes, watch)
            if found is None or not found.causes:
                raise
            log.warning("the float model alone was looked at, because calibration failed: %s", error)
        else:
            view = adapter.look(quantized if config is None else config)
            found = examine(adapter, view, config, again, wishes, watch)
    if workspace is not None:
        found.save(workspace)
    return found


def _check_writable(folder: Path) -> None:
    """Better now than after all the work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise SettingsError(f"cannot write the tables into {str(folder)!r}: {error.strerror}") from error


def _float_alone(adapter: Adapter, data: Any, wishes: Wishes, watch: Observer) -> Diagnosis | None:
    """What the float model shows by itself; None if it cannot be run through either."""
    try:
        return None if data is None else examine_float(adapter, data, wishes, watch)
    except CalibrationError:
        return None


def _meant(quantized: Any, history: str | os.PathLike[str] | None) -> tuple[Any, Snapshot | None]:
    """What to look at, and the snapshot that it comes from."""
    if isinstance(quantized, TuneResult):
        history = quantized.history_path if history is None else history
        if quantized.best is None:
            raise SettingsError("the result has no best trial to diagnose")
        quantized = quantized.best
    snapshot = None if history is None else read_snapshot(history)
    if isinstance(quantized, int) and not isinstance(quantized, bool):
        if snapshot is None:
            raise SettingsError(f"trial {quantized} of which run? Pass its workspace as history")
        quantized = snapshot.trial(quantized)
    return quantized, snapshot


def _calibrate(
    adapter: Adapter, needed: bool, snapshot: Snapshot | None, data: Any, chosen: Config, watch: Observer
) -> None:
    """Get the ranges from the snapshot, or from the data; an already quantized model needs none."""
    if snapshot is not None:
        check_same_model(adapter, snapshot.header, snapshot.path)
        adapter.restore(snapshot.header.calibration)
    if snapshot is not None or not needed:
        adapter.keep(data)
        return
    watch(StageStarted(Stage.CALIBRATING))
    adapter.calibrate(
        data,
        chosen.calibration_sampling_size,
        lambda done, total: watch(Progressed(Stage.CALIBRATING, done, total)),
    )


def _config_of(quantized: Any, adapter: Adapter, chosen: Config) -> QuantConfig | None:
    """The configuration that is meant; None for a quantized model."""
    space = TuningSpace(apply_rules(adapter.inspect(), chosen.op_name_dict, chosen.op_type_dict))
    if quantized is None:
        return space.all_int8()
    config = quantized.config if isinstance(quantized, Trial) else quantized
    if not isinstance(config, QuantConfig):
        return None
    try:
        return TuningSpace(adapter.inspect()).check(config)
    except StrategyError as error:
        raise SettingsError(f"the configuration is one for another model: {error}") from None
