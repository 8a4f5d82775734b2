"""Drives an adapter for diagnosis: batches of bounded size through the float and the quantized model, side by side."""

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
from quaver.engine.inspection.what_if import mode_errors, repaired_errors
from quaver.engine.observers import Observer
from quaver.errors import CalibrationError, ModelError
from quaver.introspection import LocalRun, OpContext, QuantizedRun
from quaver.ops import DETAILS, FLOAT, QuantConfig
from quaver.space import TuningSpace
from quaver.trial import Trial
from quaver.types import Array, Feed, PlainMapping

log = logging.getLogger(__name__)

# All tensors of one batch are held at once; batches are cut and joined so that they take about this much.
HELD_BYTES = 96 * 2**20
# So many samples tell enough, unless the user asks for more.
SAMPLES = 128
# How often ops are timed in each precision; a verdict must hold every time.
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class DiagnosisOptions:
    """What the user wants to know.

    Attributes:
        samples: how many samples to use at most.
        layer_metrics: functions of the differences (quantized minus float) of an op's output.
        model_metrics: functions of the outputs of the float and of the quantized model, called for each sample.
        timing: whether to time the ops.
    """

    samples: int | None = SAMPLES
    layer_metrics: PlainMapping = field(default_factory=dict)
    model_metrics: PlainMapping = field(default_factory=dict)
    timing: bool = True


class Replayed:
    """A generator that can be gone through again: what was read of it is kept."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source, self._read = source, list[Any]()

    def __iter__(self) -> Iterator[Any]:
        yield from self._read
        for batch in self._source:
            self._read.append(batch)
            yield batch


def replayable(data: Any) -> Any:
    """Data that can be gone through again: a generator cannot, a list, an array, a function or a dataloader can.

    An iterator with `reset` is rewound by those who read it.
    """
    return Replayed(data) if isinstance(data, Iterator) and not hasattr(data, "reset") else data


def examine(
    adapter: Adapter,
    view: ModelView,
    config: QuantConfig | None,
    data: Any,
    wishes: DiagnosisOptions,
    observer: Observer,
    space: TuningSpace | None = None,
) -> Diagnosis:
    """Diagnose one quantized model on `data`, or on the samples that the adapter keeps.

    What is advised lies in `space`, which holds what the user's rules leave; None is all that the framework offers.
    """
    ops = adapter.ops()
    names = [op.name for op in ops]
    contexts = view.contexts() or _bare(names)
    others = view.others()
    around = {name: other.context for name, other in others.items()}
    recorder = Recorder(contexts, wishes.layer_metrics, wishes.model_metrics, around)
    observer(StageStarted(Stage.DIAGNOSING))
    stream: Iterable[Feed] = adapter.probe_samples if data is None else feeds(data, adapter.inputs, wishes.samples)
    dynamic = config is not None and any(pick.mode == "dynamic" for pick in config.values())
    _record(
        Batches(adapter.inputs, as_given=dynamic), view, [*names, *others], stream, recorder, wishes.samples, observer
    )
    seconds = _seconds(adapter, view, observer) if wishes.timing else ((), ())
    left = TuningSpace(ops) if space is None else space
    errors = {name: recorder.ops[name].error for name in names}
    model = DiagnosedModel(ops, left, view.precisions, contexts, config, others)
    measurements = Measurements(
        recorder,
        view.weights(),
        *seconds,
        repair_errors=repaired_errors(adapter, left, config) or {},
        mode_errors=mode_errors(adapter, left, config, contexts, errors) or {},
    )
    return make_diagnosis(model, measurements)


def examine_float(adapter: Adapter, data: Any, wishes: DiagnosisOptions, observer: Observer) -> Diagnosis:
    """Diagnose the float model alone, to see where it goes wrong."""
    config = QuantConfig((op.name, FLOAT) for op in adapter.ops())
    return examine(
        adapter,
        abilities.inspect_quantized(adapter, config),
        config,
        data,
        DiagnosisOptions(wishes.samples, timing=False),
        observer,
    )


def diagnose_run(
    adapter: Adapter, space: TuningSpace, best: Trial | None, data: Any, folder: Path, observer: Observer
) -> Diagnosis | None:
    """Diagnose at the end of a run, and write the tables into its folder. A failure here does not cost the run.

    Looked at is the best trial, but with the ops reduced that tuning sent back: why had they to go?
    """
    config = everything_reduced(space, best)
    try:
        found = examine(
            adapter, abilities.inspect_quantized(adapter, config), config, data, DiagnosisOptions(), observer, space
        )
        found.save(folder)
    except KeyboardInterrupt:
        log.warning("interrupted while diagnosing; the result of the run is complete")
        return None
    except Exception:
        log.warning("diagnosis failed; the result of the run is complete", exc_info=True)
        return None
    observer(Diagnosed(found))
    return found


def everything_reduced(space: TuningSpace, best: Trial | None) -> QuantConfig:
    """A trial's way of quantizing for all ops, also those that it runs in fp32."""
    if best is None:
        return space.default_config()
    chosen = [best.config[name] for name in best.config.quantized_ops]
    usual = Counter(tuple((field, getattr(pick, field)) for field in DETAILS) for pick in chosen).most_common(1)
    wanted = {field: value for field, value in usual[0][0] if value} if usual else {}
    return space.default_config(**wanted).replace({name: best.config[name] for name in best.config.quantized_ops})


def _bare(names: Sequence[str]) -> Mapping[str, OpContext]:
    """What is known of ops by an adapter that tells nothing."""
    return {name: OpContext(name, name) for name in names}


def _record(
    batches: Batches,
    view: ModelView,
    names: Sequence[str],
    stream: Iterable[Feed],
    recorder: Recorder,
    limit: int | None,
    observer: Observer,
) -> None:
    local, quantized = view.local(names, recorder.wanted), view.quantized(names)
    for feed in batches.cut(stream):
        count = count_samples(feed)
        try:
            runs = local(feed), quantized(feed)
        except Exception as error:
            if batches.refuse():
                continue
            raise CalibrationError(f"the model fails on a batch of {count} sample(s): {error}") from error
        batches.sample_bytes = batches.sample_bytes or max(_held(*runs) / count, 1.0)
        recorder.add(*runs, count)
        del runs  # or there would be two batches of them
        observer(Progressed(Stage.DIAGNOSING, recorder.samples, limit))
    if not recorder.samples:
        raise CalibrationError("the data to diagnose on gave no samples; pass a list, an array or a new generator")


def _held(local: LocalRun, quantized: QuantizedRun) -> int:
    arrays: list[Array | QuantizedTensor | None] = [array for pair in local.ops.values() for array in pair]
    arrays += [*local.tensors.values(), *quantized.ops.values(), *local.outputs, *quantized.outputs]
    return sum(array.nbytes for array in arrays if array is not None)


def _seconds(
    adapter: Adapter, view: ModelView, observer: Observer
) -> tuple[Sequence[Mapping[str, float]], Sequence[Mapping[str, float]]]:
    """Seconds of each op in fp32 and in the quantized model, in turns. Without them there is just one cause less."""
    if not adapter.probe_samples:
        return (), ()
    observer(StageStarted(Stage.TIMING))
    try:
        rounds = [(adapter.op_seconds(None), view.seconds()) for _ in range(ROUNDS)]
    except Exception:
        log.warning("ops cannot be timed", exc_info=True)
        return (), ()
    return [fp32 for fp32, _ in rounds], [quantized for _, quantized in rounds]


class Batches:
    """Cuts and joins feeds so that all tensors of one run take about `HELD_BYTES`.

    The first sample goes alone, to see how large they are; whoever runs it sets `sample_bytes`. A model that fixes its
    batch, or refuses a batch of one, gets the feeds as they come; so does one whose ranges depend on the batch.
    """

    def __init__(self, inputs: Sequence[InputSpec], as_given: bool = False) -> None:
        self.sample_bytes = 0.0
        self._open = has_open_batch(inputs) and not as_given
        self._alone = self._refused = False

    def refuse(self) -> bool:
        """The batch could not be run. Returns whether it comes again in another size."""
        again, self._alone, self._refused = self._alone, False, self._alone
        return again

    def cut(self, stream: Iterable[Feed]) -> Iterator[Feed]:
        """The same samples in other batches."""
        waiting: list[Feed] = []
        held = 0
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
            if waiting and not _fit(waiting[0], feed):
                yield from split(_joined(waiting), self._room)
                waiting, held = [], 0
            waiting.append(feed)
            held += count_samples(feed)
            if held >= self._room:
                *full, rest = split(_joined(waiting), self._room)
                yield from full
                waiting, held = [rest], count_samples(rest)
        if waiting:
            yield from split(_joined(waiting), self._room)

    @property
    def _room(self) -> int:
        return max(1, int(HELD_BYTES / self.sample_bytes))


def _joined(feeds: Sequence[Feed]) -> Feed:
    """Feeds that belong together as one."""
    if len(feeds) == 1:
        return feeds[0]
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def _fit(one: Feed, other: Feed) -> bool:
    """Whether two feeds can be joined: all their arrays have the batch axis, and agree in the others."""
    batched = all(array.ndim and len(array) == count_samples(feed) for feed in (one, other) for array in feed.values())
    return batched and all(one[name].shape[1:] == other[name].shape[1:] for name in one)


def examine_alone(
    view: StandaloneView,
    data: Any,
    limit: int | None,
    observer: Observer,
    metrics: PlainMapping,
    model_metrics: PlainMapping,
    beside: Model | None = None,
) -> QuantizedStatistics:
    """The statistics of a quantized model on `data`; batches are run as they come.

    `model_metrics` compare its outputs with those of the float model `beside`.
    """
    if not view.ops:
        raise ModelError("no tensor of the model is in integers with a scale: is it the quantized model?")
    observer(StageStarted(Stage.DIAGNOSING))
    recorder = QuantizedOnlyRecorder(tuple(view.ops), metrics, model_metrics)
    for feed in feeds(data, view.inputs, limit):
        try:
            seen = view.run(feed)
            real = None if beside is None else as_list(beside.run(feed))
        except Exception as error:
            raise CalibrationError(f"the model fails on a batch of {count_samples(feed)} sample(s): {error}") from error
        recorder.add(seen.ops, count_samples(feed))
        if real is not None:
            recorder.model.add(real, seen.outputs, count_samples(feed))
        observer(Progressed(Stage.DIAGNOSING, recorder.samples, limit))
    if not recorder.samples:
        raise CalibrationError("the data to look at gave no samples; pass a list, an array or a new generator")
    weights = (found for found in view.weights() if 8 * found[1].values.dtype.itemsize <= MAX_COUNTED_BITS)
    return QuantizedStatistics(
        recorder.samples,
        tuple(recorder.tensors()),
        tuple(weight_row(name, weight) for name, weight in weights),
        tuple(recorder.layers()),
        recorder.model.figures(),
    )
