"""Run the float and the quantized model on batches of bounded size for a diagnosis."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters import Adapter, Model, ModelView, StandaloneView, abilities
from quaver.adapters.data import InputSpec, count_samples, feeds, has_open_batch, head, split, tail
from quaver.adapters.inspection import as_list
from quaver.affine import QuantizedTensor
from quaver.diagnosis import DiagnosedModel, Diagnosis, Measurements, Recorder, make_diagnosis
from quaver.diagnosis.quantized_only import QuantizedOnlyRecorder, QuantizedStatistics
from quaver.diagnosis.statistics.integers import MAX_COUNTED_BITS, weight_row
from quaver.engine.event_base import Stage
from quaver.engine.events import Diagnosed, Progressed, StageStarted
from quaver.engine.inspection.part_errors import part_errors
from quaver.engine.inspection.what_if import mode_errors, repaired_errors
from quaver.engine.observers import Observer
from quaver.errors import CalibrationError, ModelError
from quaver.introspection import LocalRun, OpContext, QuantizedRun
from quaver.ops import DETAILS, FLOAT, QuantConfig
from quaver.space import TuningSpace
from quaver.trial import Trial
from quaver.types import Array, CalibrationData, Feed, PlainMapping

log = logging.getLogger(__name__)

# All tensors of one batch are in memory at once; batches are cut and joined so that they take about this much.
BATCH_BYTES = 96 * 2**20
# The number of samples unless the user sets another. Judgement: errors of ops change little with more.
SAMPLES = 128
# How often ops are timed in each precision; a cause must hold every time. Judgement.
TIMING_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class DiagnosisOptions:
    """The options of a diagnosis.

    Attributes:
        samples: the largest number of samples to use; None uses all.
        layer_metrics: functions of the differences (quantized minus float) of an op's output.
        model_metrics: functions of the outputs of the float and of the quantized model, called for each sample.
        timing: True to time the ops.
        space: advice stays within it: what the user's rules leave; None is all that the framework offers.
        sensitive: ops that are known to disturb the outputs, the most sensitive first.
    """

    samples: int | None = SAMPLES
    layer_metrics: PlainMapping = field(default_factory=dict)
    model_metrics: PlainMapping = field(default_factory=dict)
    timing: bool = True
    space: TuningSpace | None = None
    sensitive: Sequence[str] = ()


class Replayed:
    """A generator that can be iterated again: it stores what was read."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source, self._read = source, list[Any]()

    def __iter__(self) -> Iterator[Any]:
        yield from self._read
        for batch in self._source:
            self._read.append(batch)
            yield batch


def replayable(data: CalibrationData) -> CalibrationData:
    """Return data that can be iterated again: a generator is wrapped, all else is returned as it is.

    An iterator with `reset` is rewound by its readers.
    """
    return Replayed(data) if isinstance(data, Iterator) and not hasattr(data, "reset") else data


def examine(
    adapter: Adapter,
    view: ModelView,
    config: QuantConfig | None,
    data: CalibrationData | None,
    options: DiagnosisOptions,
    observer: Observer,
) -> Diagnosis:
    """Diagnose one quantized model.

    Args:
        adapter: the adapter of the float model.
        view: the inside of the quantized model.
        config: its configuration; None if it is not known.
        data: the samples; None takes the probe samples of the adapter.
        options: the options of the user.
        observer: gets the events.
    """
    ops = adapter.ops()
    names = [op.name for op in ops]
    contexts = view.contexts() or _empty_contexts(names)
    others = view.others()
    around = {name: other.context for name, other in others.items()}
    recorder = Recorder(contexts, options.layer_metrics, options.model_metrics, around)
    observer(StageStarted(Stage.DIAGNOSING))
    stream: Iterable[Feed] = adapter.probe_samples if data is None else feeds(data, adapter.inputs, options.samples)
    dynamic = config is not None and any(pick.mode == "dynamic" for pick in config.values())
    batches = Batches(adapter.inputs, keep_batches=dynamic)
    _record(_Recording(view, [*names, *others], recorder, options.samples), batches, stream, observer)
    seconds = _seconds(adapter, view, observer) if options.timing else ((), ())
    space = TuningSpace(ops) if options.space is None else options.space
    errors = {name: recorder.ops[name].error for name in names}
    model = DiagnosedModel(ops, space, view.precisions, contexts, config, others)
    measurements = Measurements(
        recorder,
        view.weights(),
        *seconds,
        repair_errors=repaired_errors(adapter, space, config) or {},
        mode_errors=mode_errors(adapter, space, config, contexts, errors) or {},
        part_errors=part_errors(adapter, config, options.sensitive or sorted(names, key=lambda name: -errors[name])),
    )
    return make_diagnosis(model, measurements)


def examine_float(adapter: Adapter, data: CalibrationData, options: DiagnosisOptions, observer: Observer) -> Diagnosis:
    """Diagnose the float model alone, to see where it goes wrong."""
    config = QuantConfig((op.name, FLOAT) for op in adapter.ops())
    return examine(
        adapter,
        abilities.inspect_quantized(adapter, config),
        config,
        data,
        DiagnosisOptions(options.samples, timing=False),
        observer,
    )


def diagnose_run(
    adapter: Adapter,
    space: TuningSpace,
    best: Trial | None,
    data: CalibrationData | None,
    folder: Path,
    observer: Observer,
) -> Diagnosis | None:
    """Diagnose at the end of a run, and write the tables into its folder. A failure does not end the run.

    The best trial is diagnosed with the ops quantized that tuning sent back to fp32, to explain why it did.
    """
    config = everything_quantized(space, best)
    try:
        options = DiagnosisOptions(space=space)
        diagnosis = examine(adapter, abilities.inspect_quantized(adapter, config), config, data, options, observer)
        diagnosis.save(folder)
    except KeyboardInterrupt:
        log.warning("interrupted while diagnosing; the result of the run is complete")
        return None
    except Exception:
        log.warning("diagnosis failed; the result of the run is complete", exc_info=True)
        return None
    observer(Diagnosed(diagnosis))
    return diagnosis


def everything_quantized(space: TuningSpace, best: Trial | None) -> QuantConfig:
    """Return a configuration with all ops quantized as the trial quantizes most of its ops."""
    if best is None:
        return space.default_config()
    chosen = [best.config[name] for name in best.config.quantized_ops]
    usual = Counter(tuple((field, getattr(pick, field)) for field in DETAILS) for pick in chosen).most_common(1)
    wanted = {field: value for field, value in usual[0][0] if value} if usual else {}
    return space.default_config(**wanted).replace({name: best.config[name] for name in best.config.quantized_ops})


def _empty_contexts(names: Sequence[str]) -> Mapping[str, OpContext]:
    """Return contexts for an adapter that describes none."""
    return {name: OpContext(name, name) for name in names}


@dataclass(frozen=True, slots=True)
class _Recording:
    """A recording: of the tensors of these ops, by this recorder, on at most `limit` samples."""

    view: ModelView
    names: Sequence[str]
    recorder: Recorder
    limit: int | None


def _record(recording: _Recording, batches: Batches, stream: Iterable[Feed], observer: Observer) -> None:
    recorder, names = recording.recorder, recording.names
    local, quantized = recording.view.local(names, recorder.wanted), recording.view.quantized(names)
    for feed in batches.cut(stream):
        count = count_samples(feed)
        try:
            runs = local(feed), quantized(feed)
        except Exception as error:
            if batches.refuse():
                continue
            raise CalibrationError(f"the model fails on a batch of {count} sample(s): {error}") from error
        batches.sample_bytes = batches.sample_bytes or max(_bytes_of(*runs) / count, 1.0)
        recorder.add(*runs, count)
        del runs  # otherwise two batches would be in memory
        observer(Progressed(Stage.DIAGNOSING, recorder.samples, recording.limit))
    if not recorder.samples:
        raise CalibrationError("the data to diagnose on gave no samples; pass a list, an array or a new generator")


def _bytes_of(local: LocalRun, quantized: QuantizedRun) -> int:
    arrays: list[Array | QuantizedTensor | None] = [array for pair in local.ops.values() for array in pair]
    arrays += [*local.tensors.values(), *quantized.ops.values(), *local.outputs, *quantized.outputs]
    return sum(array.nbytes for array in arrays if array is not None)


def _seconds(
    adapter: Adapter, view: ModelView, observer: Observer
) -> tuple[Sequence[Mapping[str, float]], Sequence[Mapping[str, float]]]:
    """Return the seconds of each op in fp32 and quantized, interleaved. If timing fails, only one cause is missing."""
    if not adapter.probe_samples:
        return (), ()
    observer(StageStarted(Stage.TIMING))
    try:
        rounds = [(adapter.op_seconds(None), view.seconds()) for _ in range(TIMING_ROUNDS)]
    except Exception:
        log.warning("ops cannot be timed", exc_info=True)
        return (), ()
    return [fp32 for fp32, _ in rounds], [quantized for _, quantized in rounds]


class Batches:
    """Cuts and joins feeds so that all tensors of one run take about `BATCH_BYTES`.

    The first sample is run alone, to learn how large its tensors are; the caller sets `sample_bytes`. A model that has
    a fixed batch, or refuses a batch of one, gets the feeds unchanged; so does one whose ranges depend on the batch.
    """

    def __init__(self, inputs: Sequence[InputSpec], keep_batches: bool = False) -> None:
        self.sample_bytes = 0.0
        self._open = has_open_batch(inputs) and not keep_batches
        self._alone = self._refused = False

    def refuse(self) -> bool:
        """Report that the batch could not be run. Return True if it comes again in another size."""
        again, self._alone, self._refused = self._alone, False, self._alone
        return again

    def cut(self, stream: Iterable[Feed]) -> Iterator[Feed]:
        """Yield the samples in other batches."""
        waiting: list[Feed] = []
        count = 0
        for feed in stream:
            if self._open and not self.sample_bytes and count_samples(feed) > 1:
                self._alone = True
                yield head(feed, 1)
                self._alone = False
                if self._refused:
                    self._open = False
                else:
                    feed = tail(feed, 1)
            if not self._open or not self.sample_bytes:
                yield feed
                continue
            if waiting and not _can_join(waiting[0], feed):
                yield from split(_joined(waiting), self._batch_size)
                waiting, count = [], 0
            waiting.append(feed)
            count += count_samples(feed)
            if count >= self._batch_size:
                *full, remainder = split(_joined(waiting), self._batch_size)
                yield from full
                waiting, count = [remainder], count_samples(remainder)
        if waiting:
            yield from split(_joined(waiting), self._batch_size)

    @property
    def _batch_size(self) -> int:
        return max(1, int(BATCH_BYTES / self.sample_bytes))


def _joined(feeds: Sequence[Feed]) -> Feed:
    """Return feeds joined into one."""
    if len(feeds) == 1:
        return feeds[0]
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def _can_join(first: Feed, second: Feed) -> bool:
    """Return True if all arrays of two feeds have the batch axis, and agree in all others."""
    batched = all(
        array.ndim and len(array) == count_samples(feed) for feed in (first, second) for array in feed.values()
    )
    return batched and all(first[name].shape[1:] == second[name].shape[1:] for name in first)


def examine_standalone(
    view: StandaloneView,
    data: CalibrationData,
    options: DiagnosisOptions,
    observer: Observer,
    float_model: Model | None = None,
) -> QuantizedStatistics:
    """Return the statistics of a quantized model on `data`; batches are run unchanged.

    The model metrics of `options` compare its outputs with those of the float model.
    """
    if not view.ops:
        raise ModelError("no tensor of the model is in integers with a scale: is it the quantized model?")
    observer(StageStarted(Stage.DIAGNOSING))
    recorder = QuantizedOnlyRecorder(tuple(view.ops), options.layer_metrics, options.model_metrics)
    for feed in feeds(data, view.inputs, options.samples):
        try:
            run = view.run(feed)
            real = None if float_model is None else as_list(float_model.run(feed))
        except Exception as error:
            raise CalibrationError(f"the model fails on a batch of {count_samples(feed)} sample(s): {error}") from error
        recorder.add(run.ops, count_samples(feed))
        if real is not None:
            recorder.model.add(real, run.outputs, count_samples(feed))
        observer(Progressed(Stage.DIAGNOSING, recorder.samples, options.samples))
    if not recorder.samples:
        raise CalibrationError("the data to diagnose on gave no samples; pass a list, an array or a new generator")
    weights = (pair for pair in view.weights() if 8 * pair[1].values.dtype.itemsize <= MAX_COUNTED_BITS)
    return QuantizedStatistics(
        recorder.samples,
        tuple(recorder.tensors()),
        tuple(weight_row(name, weight) for name, weight in weights),
        tuple(recorder.layers()),
        recorder.model.figures(),
    )
