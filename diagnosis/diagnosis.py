"""The result of a diagnosis: tables, causes, histograms, and the files that hold them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from quaver.diagnosis import export, tables
from quaver.diagnosis.causes.advice import AllowedChoices
from quaver.diagnosis.causes.base import Cause, Rules, joined_rules
from quaver.diagnosis.causes.op_evidence import (
    BAD_ERROR,
    ErrorsByVariant,
    ModelEvidence,
    OpEvidence,
    best_repairs,
    input_reach,
    mode_improvements,
    readers,
)
from quaver.diagnosis.causes.registry import find_causes
from quaver.diagnosis.histogram_file import HISTOGRAMS_FILE, as_arrays
from quaver.diagnosis.recorder import OpRecord, Recorder
from quaver.diagnosis.statistics.weights import WeightHistogram, WeightRow, WeightShape, histogram, shape_of, summarize
from quaver.diagnosis.tables import ActivationRow, LayerRow, worst_first
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.formatting import disturbed_parts, percent
from quaver.introspection import ActivationContext, OpContext, OpWeight, UntunedOp
from quaver.ops import FP32, INT8, Op, Precision, QuantConfig
from quaver.space import TuningSpace
from quaver.types import Array, PlainDict

ACTIVATIONS_FILE = "activations_table.csv"
WEIGHTS_FILE = "weights_table.csv"
LAYERS_FILE = "layer_statistics.csv"
CAUSES_FILE = "causes.txt"
REPORT_FILE = "diagnosis.json"
# Judgement: causes that are printed; the file holds all of them.
MAX_PRINTED_CAUSES = 20


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """Which ops of a quantized model are inaccurate or slow, by how much, and why.

    Attributes:
        ops: the ops of the model, with all the choices that the framework offers.
        space: the same ops with the choices that the user's rules leave.
        precisions: the precision that each op runs in.
        samples: the number of samples.
        activations: the activations summary, the largest MSE first.
        weights: the weights summary, the largest MSE first.
        layers: the layer statistics, the largest error first; after the tunable ops, other operators that read or
            write a quantized tensor.
        causes: why ops are bad, the worst first; empty for a healthy model.
        model_statistics: the user's own figures of the model, by name.
        output_error: squared error over squared signal at the outputs of the model.
        histograms: arrays for figures; `quaver.diagnosis.read_histograms` reads them from the folder.
        config: the configuration that was diagnosed; None for a quantized file.
        part_errors: for the most sensitive ops, the error of each part of the outputs when only that op is quantized;
            empty if the outputs are of one part.
    """

    ops: tuple[Op, ...]
    space: TuningSpace
    precisions: Mapping[str, str]
    samples: int
    activations: tuple[ActivationRow, ...]
    weights: tuple[WeightRow, ...]
    layers: tuple[LayerRow, ...]
    causes: tuple[Cause, ...]
    model_statistics: Mapping[str, float] = field(default_factory=dict)
    output_error: float = float("nan")
    histograms: Mapping[str, Array] = field(default_factory=dict)
    config: QuantConfig | None = None
    part_errors: ErrorsByVariant = field(default_factory=dict)

    @property
    def layer_statistics(self) -> dict[str, dict[str, float]]:
        """The figures of each op: of its own error if it is quantized, and of the running model."""
        return {
            row.op: {**row.local, **{f"cumulative_{name}": value for name, value in row.cumulative.items()}}
            for row in self.layers
        }

    @property
    def rules(self) -> Rules:
        """The rules of all causes together, as `op_name_dict` for `fit`."""
        return joined_rules(self.causes)

    @property
    def fallback(self) -> tuple[str, ...]:
        """The ops that run in fp32 or should, according to the causes; in graph order."""
        rules = self.rules
        return tuple(op.name for op in self.ops if self._in_fp32(op.name) or rules.get(op.name) == FP32)

    def _in_fp32(self, name: str) -> bool:
        return self.precisions.get(name) == FP32

    def layer_statistics_dump(self, file: TextIO) -> None:
        """Write the layer statistics to an open file, as CSV."""
        file.write(tables.to_csv(tables.layers(self.layers)))

    def save(self, folder: str | os.PathLike[str]) -> dict[str, Path]:
        """Write everything into a folder; return the files by name."""
        place = Path(expanded(folder))
        try:
            return self._save(place)
        except OSError as error:
            raise SettingsError(f"cannot write the tables into {str(place)!r}: {error.strerror}") from error

    def _save(self, place: Path) -> dict[str, Path]:
        place.mkdir(parents=True, exist_ok=True)
        written = {}
        for name, text in self._texts():
            (place / name).write_text(text, encoding="utf-8")
            written[name] = place / name
        np.savez_compressed(place / HISTOGRAMS_FILE, **dict(self.histograms))  # type: ignore[arg-type]
        return written | {HISTOGRAMS_FILE: place / HISTOGRAMS_FILE}

    def _texts(self) -> Iterator[tuple[str, str]]:
        tunable = [row for row in self.layers if row.tunable]
        outputs = {row.op: row.tensor for row in tunable}
        errors = {row.op: row.error for row in tunable if Precision(row.precision).quantized}
        yield ACTIVATIONS_FILE, tables.to_csv(tables.activations(self.activations))
        yield WEIGHTS_FILE, tables.to_csv(tables.weights(self.weights))
        yield LAYERS_FILE, tables.to_csv(tables.layers(self.layers))
        yield CAUSES_FILE, "".join(f"{cause}\n" for cause in self.causes)
        yield REPORT_FILE, export.as_json(self.to_dict())
        yield "rules.yaml", export.rules_yaml({**self._rules_in_force(), **self.rules})
        yield "nodes_to_exclude.json", export.as_json(export.nodes_to_exclude(self.ops, self.fallback))
        yield "recipe.json", export.as_json(export.recipe(outputs, self.fallback, self.config))
        yield "error.node_data.json", export.as_json(export.error_data(self.ops, outputs, errors))
        yield "precision.node_data.json", export.as_json(export.precision_data(self.ops, outputs, self.precisions))

    def _rules_in_force(self) -> Rules:
        """Return rules for the ops that already run in fp32, and the user's rules op by op."""
        allowed, rules = AllowedChoices(self.ops, self.space), {}
        for op in self.ops:
            falls_back = self._in_fp32(op.name) and op.quantizable and allowed.allows(op.name, {"precision": FP32})
            rule = str(FP32) if falls_back else allowed.rule_in_force(op.name)
            if rule is not None:
                rules[op.name] = rule
        return rules

    def to_dict(self) -> PlainDict:
        """Return everything except the histograms as builtins."""
        return {
            "samples": self.samples,
            "output_error": self.output_error,
            "model_statistics": dict(self.model_statistics),
            "causes": [asdict(cause) for cause in self.causes],
            "part_errors": {op: dict(errors) for op, errors in self.part_errors.items()},
            "rules": self.rules,
            "fallback": list(self.fallback),
            "layers": [asdict(row) for row in self.layers],
            "activations": [asdict(row) for row in self.activations],
            "weights": [asdict(row) for row in self.weights],
        }

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.ops)} ops, {self.samples} samples, {len(self.causes)} causes)"

    def __str__(self) -> str:
        precision_counts = Counter(map(Precision, self.precisions.values()))
        counts = [f"{precision_counts[precision]} {precision}" for precision in sorted({*precision_counts, INT8, FP32})]
        head = (
            f"{' and '.join(counts)} ops on {self.samples} samples: "
            f"the output error is {percent(self.output_error)} of the output's power"
        )
        lines = [f"{head}; {self._verdict()}", *(f"- {cause}" for cause in self.causes[:MAX_PRINTED_CAUSES])]
        more = len(self.causes) - MAX_PRINTED_CAUSES
        disturbed = {op: disturbed_parts(errors) for op, errors in self.part_errors.items()}
        parts = [f"- {op} disturbs {words}" for op, words in disturbed.items() if words]
        return "\n".join([*lines, *([f"- ... and {more} more"] if more > 0 else []), *parts])

    def _verdict(self) -> str:
        slower = sum(cause.kind == "slower" for cause in self.causes)
        count = len(self.causes) - slower
        if count:
            words = f"{count} cause(s) found"
        else:
            words = "no op is bad by itself" + (", the errors of all add up" if self.output_error > BAD_ERROR else "")
        return f"{words}; {slower} op(s) slower than in fp32" if slower else words


@dataclass(frozen=True)
class DiagnosedModel:
    """The quantized model that is diagnosed.

    Attributes:
        ops: the ops, with all the choices that the framework offers.
        space: the same ops with the choices that the user's rules leave.
        precisions: the precision that each op runs in.
        contexts: the tensors and ops around each op.
        config: the configuration; None for a quantized file.
        other_operators: operators that are not tunable ops, and read or write quantized tensors.
    """

    ops: Sequence[Op]
    space: TuningSpace
    precisions: Mapping[str, str]
    contexts: Mapping[str, OpContext]
    config: QuantConfig | None = None
    other_operators: Mapping[str, UntunedOp] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurements:
    """Everything that was measured of a quantized model.

    Attributes:
        recorder: the statistics of activations and errors.
        weights: the weights, read one by one and released.
        fp32_seconds: the seconds of each op in the float model, measured once or several times.
        quantized_seconds: the seconds of each op in the quantized model.
        repair_errors: the error of each op alone, with each repair that it offers and without.
        mode_errors: the error of each bad op alone, in each other mode that it offers and in its own.
        part_errors: the error of each part of the outputs, by op.
    """

    recorder: Recorder
    weights: Iterable[OpWeight]
    fp32_seconds: Sequence[Mapping[str, float]] = ()
    quantized_seconds: Sequence[Mapping[str, float]] = ()
    repair_errors: ErrorsByVariant = field(default_factory=dict)
    mode_errors: ErrorsByVariant = field(default_factory=dict)
    part_errors: ErrorsByVariant = field(default_factory=dict)


def make_diagnosis(model: DiagnosedModel, measured: Measurements) -> Diagnosis:
    """Return tables, causes and histograms from the measurements of a quantized model."""
    recorder = measured.recorder
    weights = _read_weights(measured.weights, model.contexts, recorder)
    ops = _op_evidence(model, measured, weights.shapes)
    return Diagnosis(
        ops=tuple(model.ops),
        space=model.space,
        precisions=dict(model.precisions),
        samples=recorder.samples,
        activations=tuple(sorted(map(_activation_row, ops), key=lambda row: worst_first(row.mse))),
        weights=tuple(sorted(weights.rows, key=lambda row: worst_first(row.mse))),
        layers=(*sorted(map(_layer_row, ops), key=_badness), *_other_rows(model.other_operators, recorder)),
        causes=find_causes(ModelEvidence(ops, measured.fp32_seconds, measured.quantized_seconds)),
        model_statistics=recorder.model_figures(),
        output_error=recorder.outputs.relative,
        histograms=as_arrays(recorder.ops, weights.histograms),
        config=model.config,
        part_errors=measured.part_errors,
    )


@dataclass(frozen=True)
class _Weights:
    """The results that are needed of the weights after their release."""

    rows: list[WeightRow] = field(default_factory=list)
    shapes: dict[str, WeightShape] = field(default_factory=dict)
    histograms: list[WeightHistogram] = field(default_factory=list)


def _read_weights(weights: Iterable[OpWeight], contexts: Mapping[str, OpContext], recorder: Recorder) -> _Weights:
    """Return the rows, the histograms and, for bad ops, the shapes of the weights."""
    result = _Weights()
    for weight in weights:
        result.rows.append(summarize(weight))
        record, context = recorder.ops.get(weight.op), contexts.get(weight.op)
        if record is not None and context is not None and record.error > BAD_ERROR:
            shape = shape_of(weight, input_reach(context, recorder))
            if shape is not None:
                result.shapes[weight.op] = shape
        weight_histogram = histogram(weight)
        if weight_histogram is not None:
            result.histograms.append(weight_histogram)
    return result


def _op_evidence(model: DiagnosedModel, measured: Measurements, shapes: Mapping[str, WeightShape]) -> list[OpEvidence]:
    recorder, by_op = measured.recorder, readers(model.contexts)
    allowed = AllowedChoices(model.ops, model.space)
    repairs = best_repairs(measured.repair_errors, {op.name: op.reads for op in model.ops})
    modes = mode_improvements(measured.mode_errors)
    return [
        OpEvidence(
            op=op,
            choice=None if model.config is None else model.config[op.name],
            precision=Precision(model.precisions.get(op.name, FP32)),
            context=model.contexts[op.name],
            record=recorder.ops[op.name],
            weight=shapes.get(op.name),
            activations=recorder.read,
            readers=by_op,
            samples=recorder.samples,
            allowed=allowed,
            repair=repairs.get(op.name),
            modes=modes.get(op.name, ()),
        )
        for op in model.ops
    ]


def _activation_row(op: OpEvidence) -> ActivationRow:
    return ActivationRow(op.name, op.record.cumulative.mean_squared_error, *op.record.output.range)


def _layer_row(op: OpEvidence) -> LayerRow:
    return _row(op.context, op.op.kind, str(op.precision), op.record)


def _other_rows(operators: Mapping[str, UntunedOp], recorder: Recorder) -> list[LayerRow]:
    """Return the rows of operators that are not tunable ops."""
    rows = [
        replace(
            _row(operator.context, operator.kind, operator.precision, recorder.other_operators[name]), tunable=False
        )
        for name, operator in operators.items()
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
    """Return a sort key: values that are not finite first, then the largest error; ops without an error come last."""
    return (not row.not_finite, math.isnan(row.error), 0.0 if math.isnan(row.error) else -row.error)
