"""What diagnosis found: tables, causes, histograms, and the files that hold them."""

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
from quaver.diagnosis.causes.base import Cause, Rules, joined
from quaver.diagnosis.causes.find import find_causes
from quaver.diagnosis.causes.op_evidence import BAD, OpEvidence, carried, readers
from quaver.diagnosis.causes.what_if import Errors, best_relief, mode_reliefs
from quaver.diagnosis.histogram_file import HISTOGRAMS_FILE, as_arrays
from quaver.diagnosis.recorder import OpRecord, Recorder
from quaver.diagnosis.statistics.weights import WeightHistogram, WeightRow, WeightShape, histogram, shape_of, summarize
from quaver.diagnosis.tables import ActivationRow, LayerRow, worst_first
from quaver.diagnosis.text import percent
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.introspection import ActivationContext, OpContext, OpWeight, OtherOp
from quaver.ops import FP32, INT8, Op, OpConfig, Precision, QuantConfig
from quaver.space import TuningSpace
from quaver.types import Array, PlainDict

ACTIVATIONS_FILE = "activations_table.csv"
WEIGHTS_FILE = "weights_table.csv"
LAYERS_FILE = "layer_statistics.csv"
CAUSES_FILE = "causes.txt"
REPORT_FILE = "diagnosis.json"
# So many causes are told at once; the file holds all.
TOLD = 20


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """Which op, how bad, and why.

    Attributes:
        ops: the ops of the model, with all the choices that the framework offers.
        space: the same ops with the choices that the user's rules leave.
        precisions: what each runs in.
        samples: how many samples were used.
        activations: the activations summary, the largest MSE first.
        weights: the weights summary, the largest MSE first.
        layers: the layer statistics, the largest error first; behind the ops what is no op to tune, and reads or writes
            a quantized tensor.
        causes: why ops are bad, the worst first; empty for a healthy model.
        model_statistics: the user's own figures of the model, by name.
        output_error: squared error over squared signal at the outputs of the model.
        histograms: arrays for pictures; `quaver.diagnosis.read_histograms` reads them again from the folder.
        config: the configuration that was looked at; None for a quantized file.
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

    @property
    def layer_statistics(self) -> dict[str, dict[str, float]]:
        """For each op its figures: its own where it is not in fp32, those of the running model besides."""
        return {
            row.op: {**row.local, **{f"cumulative_{name}": value for name, value in row.cumulative.items()}}
            for row in self.layers
        }

    @property
    def rules(self) -> Rules:
        """The rules of all causes together, to be given to `fit` as `op_name_dict`."""
        return joined(self.causes)

    @property
    def fallback(self) -> tuple[str, ...]:
        """The ops that run in fp32, and those that should by what was found; in graph order."""
        rules = self.rules
        return tuple(op.name for op in self.ops if self._in_fp32(op.name) or rules.get(op.name) == FP32)

    def _in_fp32(self, name: str) -> bool:
        return self.precisions.get(name) == FP32

    def layer_statistics_dump(self, file: TextIO) -> None:
        """Write the layer statistics to an open file, as CSV."""
        file.write(tables.to_csv(tables.layers(self.layers)))

    def save(self, folder: str | os.PathLike[str]) -> dict[str, Path]:
        """Write everything into a folder; returns the files by name."""
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
        yield "rules.yaml", export.rules_yaml({**self._standing(), **self.rules})
        yield "nodes_to_exclude.json", export.as_json(export.nodes_to_exclude(self.ops, self.fallback))
        yield "recipe.json", export.as_json(export.recipe(outputs, self.fallback, self.config))
        yield "error.node_data.json", export.as_json(export.error_data(self.ops, outputs, errors))
        yield "precision.node_data.json", export.as_json(export.precision_data(self.ops, outputs, self.precisions))

    def _standing(self) -> Rules:
        """Rules for the ops that run in fp32 already, and those that were given, op by op."""
        leeway, rules = AllowedChoices(self.ops, self.space), {}
        for op in self.ops:
            falls_back = self._in_fp32(op.name) and op.quantizable and leeway.allows(op.name, {"precision": FP32})
            rule = str(FP32) if falls_back else leeway.standing(op.name)
            if rule is not None:
                rules[op.name] = rule
        return rules

    def to_dict(self) -> PlainDict:
        """Everything but the histograms as builtins."""
        return {
            "samples": self.samples,
            "output_error": self.output_error,
            "model_statistics": dict(self.model_statistics),
            "causes": [asdict(cause) for cause in self.causes],
            "rules": self.rules,
            "fallback": list(self.fallback),
            "layers": [asdict(row) for row in self.layers],
            "activations": [asdict(row) for row in self.activations],
            "weights": [asdict(row) for row in self.weights],
        }

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.ops)} ops, {self.samples} samples, {len(self.causes)} causes)"

    def __str__(self) -> str:
        found = Counter(map(Precision, self.precisions.values()))
        counts = [f"{found[precision]} {precision}" for precision in sorted({*found, INT8, FP32})]
        head = (
            f"{' and '.join(counts)} ops on {self.samples} samples: "
            f"the output is off by {percent(self.output_error)} of its power"
        )
        lines = [f"{head}; {self._verdict()}", *(f"- {cause}" for cause in self.causes[:TOLD])]
        more = len(self.causes) - TOLD
        return "\n".join([*lines, *([f"- ... and {more} more"] if more > 0 else [])])

    def _verdict(self) -> str:
        slower = sum(cause.kind == "slower" for cause in self.causes)
        found = len(self.causes) - slower
        if found:
            words = f"{found} cause(s) found"
        else:
            words = "no op is bad by itself" + (", the errors of all add up" if self.output_error > BAD else "")
        return f"{words}; {slower} op(s) slower than in fp32" if slower else words


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
    by_reader, leeway = readers(contexts), AllowedChoices(ops, space)
    reliefs = best_relief(repaired or {}, {op.name: op.reads for op in ops})
    other_modes = mode_reliefs(modes or {})
    suspects = [
        OpEvidence(
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


def _activation(suspect: OpEvidence) -> ActivationRow:
    return ActivationRow(suspect.name, suspect.record.cumulative.mean_squared_error, *suspect.record.output.range)


def _layer(suspect: OpEvidence) -> LayerRow:
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
