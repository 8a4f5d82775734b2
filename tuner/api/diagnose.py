"""Diagnose a quantized model: `diagnose` and `diagnose_quantized`."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
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
from quaver.api.subject import Subject, find_subject
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
    examine_float,
    examine_standalone,
    replayable,
)
from quaver.engine.observers import Observer, Observers, make_observers
from quaver.errors import CalibrationError, SettingsError, StrategyError
from quaver.files.paths import expanded
from quaver.files.temporary import temporary_folder
from quaver.ops import QuantConfig
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.types import CalibrationData, ModelLike, PlainMapping

log = logging.getLogger(__name__)


@keywords_checked
def diagnose(
    model: ModelLike,
    quantized: ModelLike = None,
    calib_dataloader: CalibrationData = None,
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
    runtime: str | None = None,
    observer: Observer | Iterable[Observer] | None = None,
) -> Diagnosis:
    """Find the bad ops of a quantized model, and the causes. No eval_func and no labels are needed.

    Args:
        model: the float model, in any form that `fit` takes.
        quantized: what to diagnose: a `QuantConfig`, a `Trial`, a `TuneResult` (its best trial), the number of a trial
            in `history`, or an already quantized model (a file, bytes); None is every op in int8 that the rules allow.
        calib_dataloader: typical inputs, as for `fit`. They are read twice, unless `history` holds the
            calibration; a generator is kept in memory meanwhile.
        history: an earlier run (a snapshot, or the workspace it lies in), whose calibration, trials and rules are used.
        workspace: a folder to write the tables into; None writes none (`Diagnosis.save` does it later).
        samples: how many samples to run; None is all.
        calibration_sampling_size: how many samples to calibrate with; at most 256 if None.
        op_name_dict: rules by op name, as for `fit`, which the advice respects; None without `op_type_dict` uses the
            rules of `history`.
        op_type_dict: rules by op type.
        layer_metrics: {name: function}, each called with the differences (quantized minus float) of an op's output in
            a batch; averaged over all elements.
        layer_direct_metrics: {name: function}, each called with the float output of an op in a batch, the quantized one
            as it is stored (integers or floats), its scale and its zero point; averaged over all elements.
        model_metrics: {name: function}, each called with the lists of outputs of the float and of the quantized model
            for one sample; averaged over all samples.
        timing: whether to time the ops, which finds those that are slower than in fp32.
        threads: threads of one inference; 0 lets the runtime decide.
        runtime: the runtime that times the ops; by default that of `history`, or the usual one of the framework.
        observer: called with each event; a list for several observers.

    Returns:
        A `Diagnosis`: tables, causes, rules.
    """
    settings = make_config(
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
    subject = find_subject(quantized, history, "diagnose")
    observers = Observers(*(make_observers(observer) or [warn_of_notices]))
    observers(StageStarted(Stage.READING))
    direct = {name: TensorMetric(function) for name, function in (layer_direct_metrics or {}).items()}
    diagnosis_options = DiagnosisOptions(samples, {**(layer_metrics or {}), **direct}, model_metrics or {}, timing)
    data = replayable(calib_dataloader)
    model = expanded(model)
    kind = adapter_for(model, subject.settings.get("framework"), runtime or subject.settings.get("runtime"))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        options = AdapterOptions(
            folder,
            settings.threads,
            recorded_quant_format(kind, subject.settings),
            subject.optimised,
            left_out=subject.left_out,
            portable=subject.portable,
            ops_version=subject.ops_version,
            name_modules=subject.snapshot is None,
        )
        adapter = stack.enter_context(contextlib.closing(load_with(kind, model, options)))
        rules = settings if op_name_dict is not None or op_type_dict is not None else None
        space = _space(adapter, rules, subject)
        config = _config(adapter, space, subject)
        try:
            _calibrate(adapter, config is not None, subject, data, settings, observers)
        except CalibrationError as error:
            diagnosis = _diagnose_float(adapter, data, diagnosis_options, observers)
            if diagnosis is None or not diagnosis.causes:
                raise
            log.warning("only the float model was diagnosed, because calibration failed: %s", error)
        else:
            if adapter.options != options:  # calibration left out a rewrite, so the ops may have changed
                space = _space(adapter, rules, subject)
            if subject.config is None and config is not None:
                config = space.without(abilities.ops_with_mask_values(adapter)).default_config()
            view = abilities.inspect_quantized(adapter, subject.file if config is None else config)
            diagnosis = examine(adapter, view, config, data, replace(diagnosis_options, space=space), observers)
    if workspace is not None:
        diagnosis.save(workspace)
    return diagnosis


def _diagnose_float(
    adapter: Adapter, data: CalibrationData, options: DiagnosisOptions, observer: Observer
) -> Diagnosis | None:
    """Diagnose the float model by itself; return None if it cannot be run on the data."""
    try:
        return None if data is None else examine_float(adapter, data, options, observer)
    except CalibrationError:
        return None


def _space(adapter: Adapter, settings: Config | None, subject: Subject) -> TuningSpace:
    """Return the space that the rules leave: those of the settings, or else those of the run."""
    ops = adapter.ops()
    if settings is not None:
        float_types = {item.kind for item in abilities.unquantizable(adapter)}
        return TuningSpace(apply_rules(ops, settings.op_name_dict, settings.op_type_dict, float_types))
    try:
        names, types = (subject.settings.get(name) or {} for name in ("op_name_dict", "op_type_dict"))
        return TuningSpace(apply_rules(ops, names, types, float_types=None))
    except SettingsError as error:
        log.warning("the rules of the run cannot be applied and are ignored: %s", error)
        return TuningSpace(ops)


def _config(adapter: Adapter, space: TuningSpace, subject: Subject) -> QuantConfig | None:
    """Return the configuration to diagnose; None for a quantized model."""
    if subject.config is None:
        return space.default_config() if subject.file is None else None
    try:
        return TuningSpace(adapter.ops()).check(subject.config)
    except StrategyError as error:
        raise SettingsError(f"the configuration belongs to another model: {error}") from None


def _calibrate(
    adapter: Adapter, needed: bool, subject: Subject, data: CalibrationData, settings: Config, observer: Observer
) -> None:
    """Calibrate from the snapshot, or else on the data; a quantized model needs no calibration (`needed`)."""
    snapshot = subject.snapshot
    if snapshot is not None:
        check_same_model(adapter, snapshot.header, snapshot.path)
        restore(adapter, snapshot.header, snapshot.path)
    if snapshot is not None or not needed:
        adapter.keep_probe_samples(data)
        return
    calibrate(adapter, settings, data, observer)


@keywords_checked
def diagnose_quantized(
    quantized: ModelLike,
    calib_dataloader: CalibrationData,
    *,
    workspace: str | os.PathLike[str] | None = None,
    samples: int | None = SAMPLES,
    layer_metrics: Mapping[str, Callable[[Any], Any]] | None = None,
    layer_direct_metrics: Mapping[str, Callable[[Any, Any, Any, Any], Any]] | None = None,
    model_metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    float_model: ModelLike = None,
    threads: int = 0,
    observer: Observer | Iterable[Observer] | None = None,
) -> QuantizedStatistics:
    """Measure how a quantized model uses its integers: scales, ranges, saturation, and the levels in use.

    Errors need the float model (`diagnose`), or a debug model of TensorFlow, which also holds the float ops.

    Args:
        quantized: the quantized model: a file or bytes, ONNX or .tflite, made by any tool.
        calib_dataloader: typical inputs, as for `fit`, in float even if the model takes integers.
        workspace: a folder to write the tables into; None writes none (`QuantizedStatistics.save` does it later).
        samples: how many samples to run; None is all.
        layer_metrics: {name: function} of the differences of an op's output; for a debug model.
        layer_direct_metrics: {name: function} of the float output, the integers, scale and zero point; for a debug
            model.
        model_metrics: {name: function} of the outputs of `float_model` and of this one, called for each sample.
        float_model: what `model_metrics` compare with. `diagnose` uses it for everything else.
        threads: threads of one inference; 0 lets the runtime decide.
        observer: called with each event; a list for several observers.

    Returns:
        A `QuantizedStatistics`.
    """
    if calib_dataloader is None:
        raise SettingsError("calib_dataloader is needed: typical inputs to run through the model, without labels")
    check_samples(samples)
    check_metrics(layer_metrics=layer_metrics, layer_direct_metrics=layer_direct_metrics, model_metrics=model_metrics)
    if model_metrics and float_model is None:
        raise SettingsError(f"{', '.join(model_metrics)} compare with the outputs of the float model: pass float_model")
    if workspace is not None:
        check_writable(Path(expanded(workspace)))
    observers = Observers(*make_observers(observer))
    observers(StageStarted(Stage.READING))
    quantized = expanded(quantized)
    view = require(adapter_for(quantized), SupportsStandaloneInspection).inspect_standalone(quantized, threads)
    direct = {name: TensorMetric(function) for name, function in (layer_direct_metrics or {}).items()}
    metrics = {**(layer_metrics or {}), **direct}
    float_reference = None if float_model is None else load_unmodified(expanded(float_model), threads=threads)
    options = DiagnosisOptions(samples, metrics, model_metrics or {})
    statistics = examine_standalone(view, calib_dataloader, options, observers, float_reference)
    if metrics and not statistics.layers:
        raise SettingsError(
            f"{', '.join(metrics)} compare with float values, and the model has none: call `diagnose` with the float "
            "model and this one"
        )
    if workspace is not None:
        statistics.save(workspace)
    return statistics
