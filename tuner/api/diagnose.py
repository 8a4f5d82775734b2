"""`diagnose`: what is wrong with a quantized model, whichever way it is given."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter, AdapterOptions, abilities, adapter_for, load_unmodified, load_with
from quaver.adapters.abilities import SupportsStandaloneInspection, require
from quaver.adapters.options import recorded_quant_format
from quaver.api.arguments import check_metrics, check_samples, check_writable, keywords_checked
from quaver.api.calibration import calibrate
from quaver.api.config.config import Config
from quaver.api.config.resolve import make_config
from quaver.api.display.warnings import warn_of_notices
from quaver.api.subject import Target, find_target
from quaver.diagnosis import Diagnosis
from quaver.diagnosis.quantized_only import QuantizedStatistics
from quaver.diagnosis.statistics.errors import TensorMetric
from quaver.engine.compatibility import check_same_model, restore
from quaver.engine.event_base import Stage
from quaver.engine.events import StageStarted
from quaver.engine.inspection.diagnose import (
    SAMPLES,
    DiagnosisOptions,
    examine,
    examine_alone,
    examine_float,
    replayable,
)
from quaver.engine.observers import Observer, Observers, make_observers
from quaver.errors import CalibrationError, SettingsError, StrategyError
from quaver.files.paths import expanded
from quaver.files.temporary import temporary_folder
from quaver.ops import QuantConfig
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.types import ModelLike, PlainMapping

log = logging.getLogger(__name__)


@keywords_checked
def diagnose(
    model: ModelLike,
    quantized: Any = None,
    calib_dataloader: Any = None,
    *,
    history: str | os.PathLike[str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    samples: int | None = SAMPLES,
    calibration_sampling_size: int | None = None,
    op_name_dict: PlainMapping | None = None,
    op_type_dict: PlainMapping | None = None,
    layer_metrics: Mapping[str, Callable[[Any], Any]] | None = None,
    layer_direct_metrics: Mapping[str, Callable[[Any, Any, Any, Any], Any]] | None = None,
    model_metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    timing: bool = True,
    threads: int = 0,
    observer: Observer | Iterable[Observer] | None = None,
) -> Diagnosis:
    """Say which ops of a quantized model are bad, how bad, and why. eval_func and labels are not needed.

    Args:
        model: the float model, in any form that `fit` takes.
        quantized: what to look at: a `QuantConfig`, a `Trial`, a `TuneResult` (its best trial), the number of a trial
            in `history`, or an already quantized model (a file, bytes); None is all ops in int8, as the rules allow.
        calib_dataloader: typical inputs, as for `fit`. They are gone through twice, unless `history` holds the
            calibration; what is read of a generator is kept in memory meanwhile.
        history: an earlier run (a snapshot, or the workspace it lies in), whose calibration, trials and rules are used.
        workspace: a folder to write the tables into; None writes none (`Diagnosis.save` does it later).
        samples: how many samples to look at; None is all.
        calibration_sampling_size: how many samples to calibrate with; at most 256 if None.
        op_name_dict: rules by op name, as for `fit`. What is advised keeps to them; None and no `op_type_dict` either
            are the rules of `history`.
        op_type_dict: rules by op type.
        layer_metrics: {name: function}, each called with the differences (quantized minus float) of an op's output in
            a batch; averaged over all elements.
        layer_direct_metrics: {name: function}, each called with the float output of an op in a batch, the quantized one
            as it is kept (integers, where it is), its scale and its zero point; averaged likewise.
        model_metrics: {name: function}, each called with the lists of outputs of the float and of the quantized model
            for one sample; averaged over all samples.
        timing: whether to time the ops, to find those that are slower than in fp32.
        threads: threads of one inference; 0 lets the runtime decide.
        observer: called with an event for all that happens; a list for several.

    Returns:
        A `Diagnosis`: tables, causes, rules.
    """
    chosen = make_config(
        None,
        calibration_sampling_size=calibration_sampling_size,
        op_name_dict={} if op_name_dict is None else op_name_dict,
        op_type_dict={} if op_type_dict is None else op_type_dict,
        threads=threads,
    )
    if calib_dataloader is None:
        raise SettingsError("calib_dataloader is needed: typical inputs to run through both models, without labels")
    check_samples(samples)
    check_metrics(layer_metrics=layer_metrics, layer_direct_metrics=layer_direct_metrics, model_metrics=model_metrics)
    if workspace is not None:
        check_writable(Path(expanded(workspace)))
    target = find_target(quantized, history, "diagnose")
    watch = Observers(*(make_observers(observer) or [warn_of_notices]))
    watch(StageStarted(Stage.READING))
    direct = {name: TensorMetric(function) for name, function in (layer_direct_metrics or {}).items()}
    wishes = DiagnosisOptions(samples, {**(layer_metrics or {}), **direct}, model_metrics or {}, timing)
    calib_dataloader = again = replayable(calib_dataloader)
    model = expanded(model)
    kind = adapter_for(model, target.settings.get("framework"))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        options = AdapterOptions(
            folder,
            chosen.threads,
            recorded_quant_format(kind, target.settings),
            target.optimised,
            left_out=target.left_out,
            portable=target.portable,
            ops_version=target.ops_version,
        )
        adapter = stack.enter_context(contextlib.closing(load_with(kind, model, options)))
        given = op_name_dict is not None or op_type_dict is not None
        space = _space(adapter, chosen if given else None, target)
        config = _config(adapter, space, target)
        try:
            _calibrate(adapter, config is not None, target, calib_dataloader, chosen, watch)
        except CalibrationError as error:
            found = _float_alone(adapter, again, wishes, watch)
            if found is None or not found.causes:
                raise
            log.warning("the float model alone was looked at, because calibration failed: %s", error)
        else:
            if adapter.options != options:  # calibration has left out a rewrite, and with it ops may be others
                space = _space(adapter, chosen if given else None, target)
            if target.config is None and config is not None:
                config = space.without(abilities.ops_with_mask_values(adapter)).default_config()
            view = abilities.inspect_quantized(adapter, target.file if config is None else config)
            found = examine(adapter, view, config, again, wishes, watch, space)
    if workspace is not None:
        found.save(workspace)
    return found


def _float_alone(adapter: Adapter, data: Any, wishes: DiagnosisOptions, watch: Observer) -> Diagnosis | None:
    """What the float model shows by itself; None if it cannot be run through either."""
    try:
        return None if data is None else examine_float(adapter, data, wishes, watch)
    except CalibrationError:
        return None


def _space(adapter: Adapter, given: Config | None, target: Target) -> TuningSpace:
    """What the rules leave: those that are given, or those of the run."""
    ops = adapter.ops()
    if given is not None:
        return TuningSpace(apply_rules(ops, given.op_name_dict, given.op_type_dict))
    try:
        rules = (target.settings.get(name) or {} for name in ("op_name_dict", "op_type_dict"))
        return TuningSpace(apply_rules(ops, *rules))
    except SettingsError as error:
        log.warning("the rules of the run cannot be applied, and are left out: %s", error)
        return TuningSpace(ops)


def _config(adapter: Adapter, space: TuningSpace, target: Target) -> QuantConfig | None:
    """The configuration that is meant; None for a quantized model."""
    if target.config is None:
        return space.default_config() if target.file is None else None
    try:
        return TuningSpace(adapter.ops()).check(target.config)
    except StrategyError as error:
        raise SettingsError(f"the configuration is one for another model: {error}") from None


def _calibrate(adapter: Adapter, needed: bool, target: Target, data: Any, chosen: Config, watch: Observer) -> None:
    """Get the ranges from the snapshot, or from the data; an already quantized model needs none."""
    snapshot = target.snapshot
    if snapshot is not None:
        check_same_model(adapter, snapshot.header, snapshot.path)
        restore(adapter, snapshot.header, snapshot.path)
    if snapshot is not None or not needed:
        adapter.keep_probe_samples(data)
        return
    calibrate(adapter, chosen, data, watch)


@keywords_checked
def diagnose_quantized(
    quantized: Any,
    calib_dataloader: Any,
    *,
    workspace: str | os.PathLike[str] | None = None,
    samples: int | None = SAMPLES,
    layer_metrics: Mapping[str, Callable[[Any], Any]] | None = None,
    layer_direct_metrics: Mapping[str, Callable[[Any, Any, Any, Any], Any]] | None = None,
    model_metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    float_model: Any = None,
    threads: int = 0,
    observer: Observer | Iterable[Observer] | None = None,
) -> QuantizedStatistics:
    """Say how a quantized model uses its integers: scales, ranges, what sticks to their ends, levels that are used.

    Errors need the float model (`diagnose`), or a debug model of TensorFlow, which holds the float ops, too.

    Args:
        quantized: the quantized model: a file or bytes, ONNX or .tflite, whoever made it.
        calib_dataloader: typical inputs, as for `fit`, in float also where the model takes integers.
        workspace: a folder to write the tables into; None writes none (`QuantizedStatistics.save` does it later).
        samples: how many samples to look at; None is all.
        layer_metrics: {name: function} of the differences of an op's output; for a debug model.
        layer_direct_metrics: {name: function} of the float output, the integers, scale and zero point; likewise.
        model_metrics: {name: function} of the outputs of `float_model` and of this one, called for each sample.
        float_model: what `model_metrics` compare with; for nothing else. `diagnose` makes more of it.
        threads: threads of one inference; 0 lets the runtime decide.
        observer: called with an event for all that happens; a list for several.

    Returns:
        A `QuantizedStatistics`.
    """
    if calib_dataloader is None:
        raise SettingsError("calib_dataloader is needed: typical inputs to run through the model, without labels")
    check_samples(samples)
    check_metrics(layer_metrics=layer_metrics, layer_direct_metrics=layer_direct_metrics, model_metrics=model_metrics)
    if model_metrics and float_model is None:
        raise SettingsError(f"{', '.join(model_metrics)} compare with the outputs of the float model: give float_model")
    if workspace is not None:
        check_writable(Path(expanded(workspace)))
    watch = Observers(*make_observers(observer))
    watch(StageStarted(Stage.READING))
    quantized = expanded(quantized)
    view = require(adapter_for(quantized), SupportsStandaloneInspection).inspect_standalone(quantized, threads)
    direct = {name: TensorMetric(function) for name, function in (layer_direct_metrics or {}).items()}
    metrics = {**(layer_metrics or {}), **direct}
    beside = None if float_model is None else load_unmodified(expanded(float_model), threads=threads)
    found = examine_alone(view, calib_dataloader, samples, watch, metrics, model_metrics or {}, beside)
    if metrics and not found.layers:
        raise SettingsError(
            f"{', '.join(metrics)} compare with float values, and the model has none: call `diagnose` with the float "
            "model and this one"
        )
    if workspace is not None:
        found.save(workspace)
    return found
