"""From what was recorded to what is reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from quaver.diagnosis.causes import find_causes
from quaver.diagnosis.pictures import as_arrays
from quaver.diagnosis.recorder import Recorder
from quaver.diagnosis.report import Diagnosis
from quaver.diagnosis.suspects import BAD, Suspect, carried, readers
from quaver.diagnosis.tables import ActivationRow, LayerRow, worst_first
from quaver.diagnosis.weights import WeightHistogram, WeightRow, WeightShape, histogram, shape_of, summarize
from quaver.introspection import OpInside, OpWeight
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
        histograms=as_arrays(recorder.ops, pictures),
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
