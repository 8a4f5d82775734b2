"""Inspect the best model at the end of a run, and note it in the history for the page and the report.

Notes, all builtins of bounded size:

    inside.about    the inspected trial, and the number of samples
    inside.ops      for each op: graph, errors, ranges, histograms of weights and activations
    inside.causes   the causes of large errors, from a diagnosis
    inside.profile  kernels of the fp32 model and of the best one
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quaver.adapters import Adapter, ModelView, TimingOptions, abilities
from quaver.adapters.abilities import SupportsProfiling, require
from quaver.adapters.data import count_samples
from quaver.diagnosis import Diagnosis, Histograms, OpHistogram
from quaver.diagnosis.histogram_file import from_arrays
from quaver.engine.inspection.diagnose import DiagnosisOptions, everything_quantized, examine
from quaver.engine.inspection.part_errors import most_sensitive
from quaver.engine.observers import Observer
from quaver.history import History
from quaver.introspection import KernelTime, OpContext, Timing
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.trial import Trial
from quaver.types import Array, PlainDict, PlainMapping

log = logging.getLogger(__name__)

ABOUT, OPS, CAUSES, PROFILE = "inside.about", "inside.ops", "inside.causes", "inside.profile"
# The number of probe samples to run, if the run has no diagnosis of its own. Judgement.
SAMPLES = 8
# Bytes for all histograms together: those of a large model are made coarser to fit. Judgement: a report stays small.
HISTOGRAM_BYTES = 4 * 2**20
# Bins of a histogram, rows x bins of one by channel, and channels with a range of their own; fine and coarse.
FINE, COARSE = (128, (32, 64), 1024), (64, (0, 0), 64)
FINE_BYTES = 16 * 2**10
# The number of rows of a profile, and of causes. Judgement.
MAX_ROWS = 5000
# Part of the names of kernels that convert between precisions, such as QuantizeLinear and QUANTIZE.
CONVERSIONS = ("QUANTIZE",)
# Seconds for the inferences of one profile, and their largest number. Judgement.
PROFILE_SECONDS, PROFILE_RUNS = 1.0, 20


@dataclass(frozen=True, slots=True)
class InspectedRun:
    """The run whose best model is inspected.

    Attributes:
        adapter: builds the models.
        space: the choices of all ops.
        history: where the notes go.
        observer: gets the events of the inspection.
        threads: the threads of one inference; 0 is one.
        fatal_ops: returns the ops of a configuration that would end the process if they were quantized.
    """

    adapter: Adapter
    space: TuningSpace
    history: History
    observer: Observer
    threads: int
    fatal_ops: Callable[[QuantConfig], Sequence[str]] = lambda config: ()


def note_inside(run: InspectedRun, best: Trial, diagnosis: Diagnosis | None) -> None:
    """Inspect the best trial, with the ops quantized that tuning sent back to fp32, and note the result.

    Ops that would end the process if they were quantized stay as they are in the trial. A failure does not end the run:
    the note is missing, and the log says why. The notes of an earlier run on the same trial are not replaced.

    Args:
        run: the run.
        best: its best trial.
        diagnosis: its diagnosis; without one the model is diagnosed on a few probe samples.
    """
    adapter, history = run.adapter, run.history
    about = {"trial": best.number, "fingerprint": best.config.fingerprint, "diagnosed": diagnosis is not None}
    if {name: _about(history).get(name) for name in about} == about:
        return
    config = everything_quantized(run.space, best)
    config = config.replace({name: best.config[name] for name in run.fatal_ops(config)})
    try:
        view = abilities.inspect_quantized(adapter, config)
        if diagnosis is None and adapter.probe_samples:
            sensitive = most_sensitive(history.notes, config)
            options = DiagnosisOptions(SAMPLES, timing=False, space=run.space, sensitive=sensitive)
            diagnosis = examine(adapter, view, config, list(adapter.probe_samples), options, run.observer)
        history.note(OPS, describe(view, diagnosis))
        if diagnosis is not None:
            history.note(CAUSES, causes(diagnosis))
        history.note(ABOUT, {**about, "samples": 0 if diagnosis is None else diagnosis.samples})
    except Exception:
        log.warning("the best model could not be inspected; the result of the run is complete", exc_info=True)
    try:
        history.note(PROFILE, _profile(adapter, best, history, run.threads))
    except Exception:
        log.info("the best model could not be profiled; the result of the run is complete", exc_info=True)


def _about(history: History) -> PlainMapping:
    note = history.notes.get(ABOUT)
    return note if isinstance(note, dict) else {}


def describe(view: ModelView, diagnosis: Diagnosis | None) -> PlainDict:
    """Return a record for each op."""
    contexts = view.contexts()
    histograms = Histograms({}, {}) if diagnosis is None else from_arrays(diagnosis.histograms)
    layers = {} if diagnosis is None else {row.op: row for row in diagnosis.layers if row.tunable}
    ranges = {} if diagnosis is None else {row.op: row for row in diagnosis.activations}
    bins, rows, channels = FINE if HISTOGRAM_BYTES / max(len(contexts), len(layers), 1) >= FINE_BYTES else COARSE
    records: PlainDict = {}
    for name in layers or contexts:
        record: PlainDict = _around(contexts.get(name))
        if name in layers:
            layer, reach = layers[name], ranges[name]
            record |= {"error": float(layer.error), "low": float(reach.low), "high": float(reach.high)}
            record |= {"sqnr": float(layer.local.get("sqnr", float("nan")))}
            record |= {"running": float(layer.cumulative.get("sqnr", float("nan")))}
        if diagnosis is not None and name in diagnosis.part_errors:
            record["parts"] = dict(diagnosis.part_errors[name])
        for kind, bars in (("activation", histograms.activations.get(name)), ("weight", histograms.weights.get(name))):
            if bars is not None and np.isfinite(bars.edges).all():
                record[kind] = _histogram(bars, bins, rows, channels)
        records[name] = record
    return records


def _around(context: OpContext | None) -> PlainDict:
    if context is None:
        return {}
    record: PlainDict = {"before": list(context.before), "between": list(context.between)}
    if context.module:
        record["module"] = context.module
    if context.writes is not None and context.writes.parameters.axis is None:
        low, high = context.writes.parameters.limits
        record["limits"] = [float(low), float(high), float(context.writes.parameters.scales[0])]
    return record


def _histogram(bars: OpHistogram, bins: int, rows: tuple[int, int], channels: int) -> PlainDict:
    """Return a histogram in few bytes: counts as uint32, ranges of channels as float32, rows of channels as 0..255."""
    table = np.atleast_2d(bars.counts).astype(np.float64)
    record: PlainDict = {
        "low": float(bars.edges[0]),
        "high": float(bars.edges[-1]),
        "counts": np.minimum(_fewer(table.sum(axis=0), bins), 2**32 - 1).astype("<u4").tobytes(),
    }
    if bars.channel_low.size > 1:
        run = -(-bars.channel_low.size // channels)
        starts = range(0, bars.channel_low.size, run)
        low, high = np.minimum.reduceat(bars.channel_low, starts), np.maximum.reduceat(bars.channel_high, starts)
        record["channels"] = np.stack([low, high]).astype("<f4").tobytes()
        record["run"] = run
    if len(table) > 1 and rows[0]:
        run = -(-len(table) // rows[0])
        joined = np.add.reduceat(table, range(0, len(table), run))
        shown = np.log1p(np.stack([_fewer(row, rows[1]) for row in joined]))
        record["rows"] = np.rint(255 * shown / max(float(shown.max()), 1e-9)).astype(np.uint8).tobytes()
        record["row_run"] = run
    if bars.scales.size:
        record["scale"], record["scales"] = float(bars.scales.max()), int(bars.scales.size)
    return record


def _fewer(counts: Array, bins: int) -> Array:
    """Return the counts in fewer bins, if the number of bins is a multiple of that."""
    return counts.reshape(bins, -1).sum(axis=1) if len(counts) > bins and len(counts) % bins == 0 else counts


def causes(diagnosis: Diagnosis) -> list[PlainDict]:
    """Return causes as builtins; rules both as text to paste and as JSON."""
    return [
        {
            "op": cause.op,
            "kind": cause.kind,
            "sentence": cause.sentence,
            "advice": cause.advice,
            "paste": cause.paste,
            "rules": json.dumps(dict(cause.rules), ensure_ascii=False),
        }
        for cause in diagnosis.causes[:MAX_ROWS]
    ]


def _profile(adapter: Adapter, best: Trial, history: History, threads: int) -> PlainDict:
    """Return the kernels of both models as builtins; conversions between precisions have rows of their own."""
    base = history.baseline
    usual = 1e-3 * (base.measured.get("latency_ms", 50.0) if base is not None else 50.0)
    runs = max(3, min(PROFILE_RUNS, int(PROFILE_SECONDS / max(usual, 1e-6))))
    profiler, data = require(adapter, SupportsProfiling), [adapter.timing_feed] if adapter.probe_samples else None
    options = TimingOptions(1 if data is None else count_samples(data[0]), threads or 1, 2, runs)
    fp32, other = (
        profiler.profile(adapter.assemble(config).SerializeToString(), data, options, adapter)
        for config in (None, best.config)
    )
    sides = _by_op(fp32), _by_op(other)
    rows: list[Any] = [
        [name, converts, *sides[0].get((name, converts), ("", 0.0)), *sides[1].get((name, converts), ("", 0.0))]
        for name, converts in dict.fromkeys([*sides[0], *sides[1]])
    ]
    rows.sort(key=lambda row: -max(row[3], row[5]))
    return {
        "trial": best.number,
        "how": fp32.how,
        "fp32": _whole(fp32),
        "best": _whole(other),
        "rows": rows[:MAX_ROWS],
    }


def _by_op(timing: Timing) -> dict[tuple[str, bool], tuple[str, float]]:
    """Return kernels and seconds by op (or by kernel if it belongs to none) and by True if they are conversions."""
    grouped: dict[tuple[str, bool], list[KernelTime]] = {}
    for kernel in timing.kernels:
        converts = any(word in kernel.kernel.upper() for word in CONVERSIONS)
        grouped.setdefault((kernel.op or kernel.name, converts), []).append(kernel)
    return {
        key: (", ".join(dict.fromkeys(part.kernel for part in parts)), float(sum(part.seconds for part in parts)))
        for key, parts in grouped.items()
    }


def _whole(timing: Timing) -> PlainDict:
    middle, high = np.percentile(timing.latencies, [50, 90])
    return {
        "p50": float(middle),
        "p90": float(high),
        "runs": len(timing.latencies),
        "threads": timing.threads,
        "samples": timing.samples,
    }
