"""Statistics of a quantized model without a float model to compare it with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import TextIO

from quaver.diagnosis import export, tables
from quaver.diagnosis.recorder import OpRecord
from quaver.diagnosis.statistics.errors import ModelFigures
from quaver.diagnosis.statistics.integers import IntegerCounts, QuantizedTensorRow, QuantizedWeightRow, tensor_row
from quaver.diagnosis.tables import LayerRow
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.formatting import percent
from quaver.introspection import OpContext, QuantizedOp, QuantizedPair
from quaver.ops import INT8
from quaver.types import PlainDict, PlainMapping

TENSORS_FILE, WEIGHTS_FILE = "quantized_tensors.csv", "quantized_weights.csv"
# Judgement: a tensor is suspicious if this part of it, and at least this many values, lie at the ends of its range (the
# largest value always does), or if it has more values than levels and uses fewer levels than this.
MIN_SATURATED_PART, MIN_SATURATED_VALUES, MIN_USED_LEVELS = 0.01, 16, 16


class QuantizedOnlyRecorder:
    """Record the outputs of a quantized model's operators, batch by batch, in constant memory."""

    def __init__(self, ops: tuple[QuantizedOp, ...], metrics: PlainMapping, model_metrics: PlainMapping) -> None:
        self.ops, self.samples = ops, 0
        self.model = ModelFigures(model_metrics)
        self._levels = {op.name: IntegerCounts(op.parameters) for op in ops}
        self._float_records = {
            op.name: OpRecord(OpContext(op.name, op.tensor), None, metrics, histogram=False) for op in ops
        }

    def add(self, outputs: Mapping[str, QuantizedPair], samples: int) -> None:
        """Add one batch."""
        for name, (integers, real) in outputs.items():
            self._levels[name].add(integers)
            if real is not None:
                self._float_records[name].add(real, integers, None, samples, self.samples)
        self.samples += samples

    def tensors(self) -> Iterator[QuantizedTensorRow]:
        """Yield the rows of tensors, in graph order."""
        for op in self.ops:
            yield tensor_row(op.name, op.kind, op.tensor, op.parameters, self._levels[op.name], op.tensor_id)

    def layers(self) -> Iterator[LayerRow]:
        """Yield the errors of the ops whose float values the model computes too."""
        for op in self.ops:
            record, parameters = self._float_records[op.name], op.parameters
            if record.local.count:
                yield LayerRow(
                    op.name, op.tensor, op.kind, str(INT8), record.local.figures(), {}, record.error,
                    record.local.not_finite, parameters.scales, parameters.zero_points, tensor_id=op.tensor_id,
                )  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class QuantizedStatistics:
    """The statistics of a quantized model by itself.

    Attributes:
        samples: the number of samples.
        tensors: a row for each quantized tensor, in graph order.
        weights: a row for each quantized weight.
        layers: the layer statistics, if the model also holds the float ops, as a debug model of TensorFlow does;
            otherwise empty, because the correct output of an op is not known.
        model_statistics: the user's own figures of the model, by name, if a float model was given for them.
    """

    samples: int
    tensors: tuple[QuantizedTensorRow, ...]
    weights: tuple[QuantizedWeightRow, ...]
    layers: tuple[LayerRow, ...] = ()
    model_statistics: Mapping[str, float] = field(default_factory=dict)

    @property
    def layer_statistics(self) -> dict[str, dict[str, float]]:
        """The figures of each op."""
        return {row.op: dict(row.local) for row in self.layers}

    @property
    def suspicious(self) -> tuple[QuantizedTensorRow, ...]:
        """The tensors that saturate, the worst first, and those that use few levels."""
        rows = [row for row in self.tensors if _is_saturated(row) or _is_coarse(row)]
        return tuple(sorted(rows, key=lambda row: (-row.saturated, row.levels)))

    def layer_statistics_dump(self, file: TextIO) -> None:
        """Write the statistics to an open file as CSV: those of layers if there are any, else those of tensors."""
        file.write(tables.to_csv(tables.layers(self.layers) if self.layers else _table(self.tensors)))

    def save(self, folder: str | os.PathLike[str]) -> dict[str, Path]:
        """Write all tables into a folder; return the files by name."""
        place = Path(expanded(folder))
        texts = {
            TENSORS_FILE: tables.to_csv(_table(self.tensors)),
            WEIGHTS_FILE: tables.to_csv(_table(self.weights)),
            "quantized.json": export.as_json(self.to_dict()),
        }
        if self.layers:
            texts["layer_statistics.csv"] = tables.to_csv(tables.layers(self.layers))
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (place / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"cannot write the tables into {str(place)!r}: {error.strerror}") from error
        return {name: place / name for name in texts}

    def to_dict(self) -> PlainDict:
        """Return everything as builtins."""
        return {
            "samples": self.samples,
            "model_statistics": dict(self.model_statistics),
            "tensors": [asdict(row) for row in self.tensors],
            "weights": [asdict(row) for row in self.weights],
            "layers": [asdict(row) for row in self.layers],
        }

    def __repr__(self) -> str:
        return f"QuantizedStatistics({len(self.tensors)} tensors, {len(self.weights)} weights, {self.samples} samples)"

    def __str__(self) -> str:
        counts = f"{len(self.tensors)} quantized tensors and {len(self.weights)} quantized weights"
        head = f"{counts}, on {self.samples} samples"
        lines = [f"- {row.op}: {_describe(row)}" for row in self.suspicious]
        return "\n".join([head + ("; none is suspicious" if not lines else ":"), *lines])


def _is_saturated(row: QuantizedTensorRow) -> bool:
    return row.saturated > MIN_SATURATED_PART and row.saturated * row.elements >= MIN_SATURATED_VALUES


def _is_coarse(row: QuantizedTensorRow) -> bool:
    return row.levels < MIN_USED_LEVELS and row.elements > row.of_levels


def _describe(row: QuantizedTensorRow) -> str:
    parts = []
    if _is_saturated(row):
        ends = f"{row.lowest:.3g} .. {row.highest:.3g}"
        parts.append(f"{percent(row.saturated)} of its output lie at the ends of the range {ends}")
    if _is_coarse(row):
        parts.append(f"its output uses {row.levels} of {row.of_levels} levels")
    return ", and ".join(parts)


def _table(rows: tuple[QuantizedTensorRow, ...] | tuple[QuantizedWeightRow, ...]) -> tables.Table:
    if not rows:
        return (), []
    heads = ["op_name" if entry.name == "op" else entry.name for entry in fields(rows[0])]
    return heads, [["" if cell is None else cell for cell in astuple(row)] for row in rows]
