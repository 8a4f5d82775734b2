"""From what was recorded to what is reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.diagnosis.causes import find_causes
from quaver.diagnosis.recorder import OpRecord, Recorder
from quaver.diagnosis.report import Diagnosis
from quaver.diagnosis.suspects import BAD, Suspect, carried, readers
from quaver.diagnosis.tables import ActivationRow, LayerRow, worst_first
from quaver.diagnosis.weights import WeightHistogram, WeightRow, WeightShape, histogram, shape_of, summarize
from quaver.inside import OpInside, OpWeight
from quaver.ops import Op, OpConfig, QuantConfig

Seconds = Sequence[Mapping[str, float]]


def conclude(
    ops: Sequence[Op],
    precisions: Mapping[str, str],
    config: QuantConfig | None,
    insides: Mapping[str, OpInside],
    recorder: Recorder,
    weights: Iterable[OpWeight],
    seconds: tuple[Seconds, Seconds] = ((), ()),
) -> Diagnosis:
    """Put everything together.

    Args:
        ops: the ops, with all the choices that the framework offers.
        precisions: how each runs.
        config: the configuration, if there is one.
        insides: what surrounds each op.
        recorder: what was seen of them.
        weights: their weights, taken one by one and let go.
        seconds: of each op in fp32 and in int8, each measured once or several times.
    """
    rows: list[WeightRow] = []
    shapes: dict[str, WeightShape] = {}
    pictures: list[WeightHistogram] = []
    for weight in weights:
        rows.append(summarize(weight))
        record, inside = recorder.ops.get(weight.op), insides.get(weight.op)
        if record is not None and inside is not None and record.error > BAD and weight.scales:
            shape = shape_of(weight, carried(inside, recorder))
            if shape is not None:
                shapes[weight.op] = shape
        picture = histogram(weight)
        if picture is not None:
            pictures.append(picture)
    by_reader = readers(insides)
    suspects = [
        Suspect(
            op, _pick(config, op.name), precisions.get(op.name, "fp32"), insides[op.name], recorder.ops[op.name],
            shapes.get(op.name), recorder.read, by_reader, recorder.samples,
        )
        for op in ops
    ]  # fmt: skip
    return Diagnosis(
        ops=tuple(ops),
        precisions=dict(precisions),
        samples=recorder.samples,
        activations=tuple(sorted(map(_activation, suspects), key=lambda row: worst_first(row.mse))),
        weights=tuple(sorted(rows, key=lambda row: worst_first(row.mse))),
        layers=tuple(sorted((_layer(suspect) for suspect in suspects), key=_badness)),
        causes=find_causes(suspects, *seconds),
        model_statistics=recorder.model_figures(),
        output_error=recorder.outputs.relative,
        histograms=_pictures(recorder.ops, pictures),
    )


def _pick(config: QuantConfig | None, name: str) -> OpConfig | None:
    return None if config is None else config[name]


def _activation(suspect: Suspect) -> ActivationRow:
    return ActivationRow(suspect.name, suspect.record.whole.mean_squared_error, *suspect.record.output.range)


def _layer(suspect: Suspect) -> LayerRow:
    record, inside = suspect.record, suspect.inside
    written = () if inside.writes is None else (inside.writes,)
    return LayerRow(
        op=suspect.name,
        tensor=inside.output,
        kind=suspect.op.kind,
        precision=suspect.precision,
        local=record.local.figures(),
        cumulative=record.whole.figures(),
        error=record.error,
        strange=max(record.local.strange, record.whole.strange),
        scales=tuple(tensor.scale for tensor in written),
        zero_points=tuple(tensor.zero_point for tensor in written),
        input_scales=tuple(tensor.scale for tensor in inside.reads),
        input_zero_points=tuple(tensor.zero_point for tensor in inside.reads),
    )


def _badness(row: LayerRow) -> tuple[bool, bool, float]:
    """Values that are no numbers first, then the largest error; ops without one of their own come last."""
    return (not row.strange, math.isnan(row.error), 0.0 if math.isnan(row.error) else -row.error)


def _pictures(records: Mapping[str, OpRecord], weights: Sequence[WeightHistogram]) -> dict[str, NDArray[Any]]:
    """All histograms as arrays of plain types. The n-th weight's are under weight_counts_<n> and weight_edges_<n>."""
    seen = {name: record.output for name, record in records.items() if record.output.histogram is not None}
    arrays: dict[str, NDArray[Any]] = {
        "ops": np.array(list(seen), dtype=np.str_),
        "activation_counts": np.array([one.histogram.counts for one in seen.values() if one.histogram is not None]),
        "activation_edges": np.array([one.histogram.edges for one in seen.values() if one.histogram is not None]),
        "weight_ops": np.array([picture.op for picture in weights], dtype=np.str_),
    }
    for number, output in enumerate(seen.values()):
        if output.channel_low.size > 1:
            arrays[f"activation_channels_{number}"] = np.stack([output.channel_low, output.channel_high])
    for number, picture in enumerate(weights):
        arrays[f"weight_counts_{number}"] = picture.counts.astype(np.uint32)
        arrays[f"weight_edges_{number}"] = picture.edges
    return arrays
