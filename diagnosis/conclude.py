"""From what was recorded to what is reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from quaver.diagnosis.causes import find_causes
from quaver.diagnosis.pictures import as_arrays
from quaver.diagnosis.recorder import OpRecord, Recorder
from quaver.diagnosis.relief import Errors, best_relief, mode_reliefs
from quaver.diagnosis.remedies import Leeway
from quaver.diagnosis.report import Diagnosis
from quaver.diagnosis.suspects import BAD, Suspect, carried, readers
from quaver.diagnosis.tables import ActivationRow, LayerRow, worst_first
from quaver.diagnosis.weights import WeightHistogram, WeightRow, WeightShape, histogram, shape_of, summarize
from quaver.introspection import ActivationContext, OpContext, OpWeight, OtherOp
from quaver.ops import FP32, Op, OpConfig, Precision, QuantConfig
from quaver.space import TuningSpace

Seconds = Sequence[Mapping[str, float]]


def conclude(
    ops: Sequence[Op],
    space: TuningSpace,
    precisions: Mapping[str, str],
    config: QuantConfig | None,
    contexts: Mapping[str, OpContext],
    recorder: Recorder,
    weights: Iterable[OpWeight],
    seconds: tuple[Seconds, Seconds] = ((), ()),
    repaired: Errors | None = None,
    modes: Errors | None = None,
    others: Mapping[str, OtherOp] | None = None,
) -> Diagnosis:
    """Put everything together.

    Args:
        ops: the ops, with all the choices that the framework offers.
        space: the same ops with the choices that the user's rules leave.
        precisions: what each runs in.
        config: the configuration, if there is one.
        contexts: what surrounds each op.
        recorder: what was seen of them.
        weights: their weights, taken one by one and let go.
        seconds: of each op in the float and in the quantized model, each measured once or several times.
        repaired: the error of ops by themselves with each repair that they offer, and without.
        modes: the error of bad ops by themselves in each other mode that they offer, and as they are.
        others: operators that are no ops, and read or write quantized tensors.
    """
    rows: list[WeightRow] = []
    shapes: dict[str, WeightShape] = {}
    pictures: list[WeightHistogram] = []
    for weight in weights:
        rows.append(summarize(weight))
        record, context = recorder.ops.get(weight.op), contexts.get(weight.op)
        if record is not None and context is not None and record.error > BAD:
            shape = shape_of(weight, carried(context, recorder))
            if shape is not None:
                shapes[weight.op] = shape
        picture = histogram(weight)
        if picture is not None:
            pictures.append(picture)
    by_reader, leeway = readers(contexts), Leeway(ops, space)
    reliefs = best_relief(repaired or {}, {op.name: op.reads for op in ops})
    other_modes = mode_reliefs(modes or {})
    suspects = [
        Suspect(
            op, _pick(config, op.name), Precision(precisions.get(op.name, FP32)), contexts[op.name],
            recorder.ops[op.name], shapes.get(op.name), recorder.read, by_reader, recorder.samples, leeway,
            reliefs.get(op.name), other_modes.get(op.name, ()),
        )
        for op in ops
    ]  # fmt: skip
    return Diagnosis(
        ops=tuple(ops),
        space=space,
        precisions=dict(precisions),
        samples=recorder.samples,
        activations=tuple(sorted(map(_activation, suspects), key=lambda row: worst_first(row.mse))),
        weights=tuple(sorted(rows, key=lambda row: worst_first(row.mse))),
        layers=(*sorted(map(_layer, suspects), key=_badness), *_other_layers(others or {}, recorder)),
        causes=find_causes(suspects, *seconds),
        model_statistics=recorder.model_figures(),
        output_error=recorder.outputs.relative,
        histograms=as_arrays(recorder.ops, pictures),
        config=config,
    )


def _pick(config: QuantConfig | None, name: str) -> OpConfig | None:
    return None if config is None else config[name]


def _activation(suspect: Suspect) -> ActivationRow:
    return ActivationRow(suspect.name, suspect.record.cumulative.mean_squared_error, *suspect.record.output.range)


def _layer(suspect: Suspect) -> LayerRow:
    return _row(suspect.context, suspect.op.kind, str(suspect.precision), suspect.record)


def _other_layers(others: Mapping[str, OtherOp], recorder: Recorder) -> list[LayerRow]:
    """The rows of what is no op."""
    rows = [
        replace(_row(other.context, other.kind, other.precision, recorder.others[name]), tunable=False)
        for name, other in others.items()
    ]
    return sorted(rows, key=_badness)


def _row(context: OpContext, kind: str, precision: str, record: OpRecord) -> LayerRow:
    written = () if context.writes is None else (context.writes,)
    return LayerRow(
        op=context.op,
        tensor=context.output,
        kind=kind,
        precision=precision,
        local=record.local.figures(),
        cumulative=record.cumulative.figures(),
        error=record.error,
        not_finite=max(record.local.not_finite, record.cumulative.not_finite),
        scales=_scales(written),
        zero_points=_zero_points(written),
        input_scales=_scales(context.reads),
        input_zero_points=_zero_points(context.reads),
        tensor_id=context.tensor_id,
    )


def _scales(tensors: Iterable[ActivationContext]) -> tuple[float, ...]:
    return tuple(scale for tensor in tensors for scale in tensor.parameters.scales)


def _zero_points(tensors: Iterable[ActivationContext]) -> tuple[int, ...]:
    return tuple(zero for tensor in tensors for zero in tensor.parameters.zero_points)


def _badness(row: LayerRow) -> tuple[bool, bool, float]:
    """Values that are no numbers first, then the largest error; ops without one of their own come last."""
    return (not row.not_finite, math.isnan(row.error), 0.0 if math.isnan(row.error) else -row.error)
