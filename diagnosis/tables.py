"""Tables as rows and as CSV, with the column names that Neural Compressor and the TensorFlow Lite debugger use."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quaver.diagnosis.statistics.weights import Summary, WeightRow

ACTIVATIONS = ("OP name", "MSE", "Activation min", "Activation max")
_PARTS = ("min", "max", "mean", "standard deviation", "variance")
WEIGHTS = ("OP name", "MSE", *(f"{model} model {part}" for model in ("Input", "Optimized") for part in _PARTS))

Cell = str | int | float | bool
Table = tuple[Sequence[str], Sequence[Sequence[Cell]]]


@dataclass(frozen=True, slots=True)
class ActivationRow:
    """One row of the activations summary.

    Attributes:
        op: the op's name.
        mse: mean squared error of its output in the quantized model against the float model.
        low: the smallest value of its output in the float model.
        high: the largest value of its output in the float model.
    """

    op: str
    mse: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One row of the layer statistics.

    Attributes:
        op: the op's name.
        tensor: the name of its output.
        kind: its op type.
        precision: the precision it runs in.
        local: statistics of its quantized output against its float output, both from the same float inputs.
        cumulative: statistics of its output in the running quantized model against the float model.
        error: its own squared error over its squared signal: over all values, in the median channel or in the median
            sample, whichever is largest.
        not_finite: the number of values that are NaN or infinite in the quantized model and not in the float model.
        scales, zero_points: the parameters of its output, if that is quantized.
        input_scales, input_zero_points: the parameters of the tensors that it reads.
        tensor_id: the number of its output in the quantized model, where tensors have numbers.
        tunable: True if rules can name it; pools, reshapes and the like follow their neighbours.
    """

    op: str
    tensor: str
    kind: str
    precision: str
    local: Mapping[str, float]
    cumulative: Mapping[str, float]
    error: float
    not_finite: int
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    input_scales: tuple[float, ...] = ()
    input_zero_points: tuple[int, ...] = ()
    tensor_id: int | None = None
    tunable: bool = True


def worst_first(value: float) -> tuple[bool, float]:
    """Return a sort key: values that are not numbers first, then the largest."""
    return (not math.isnan(value), -value)


def activations(rows: Iterable[ActivationRow]) -> Table:
    """Return the activations summary."""
    return ACTIVATIONS, [[row.op, row.mse, row.low, row.high] for row in rows]


def weights(rows: Iterable[WeightRow]) -> Table:
    """Return the weights summary."""
    return WEIGHTS, [[row.op, row.mse, *_cells(row.before), *_cells(row.after)] for row in rows]


def _cells(summary: Summary) -> list[float]:
    return [summary.low, summary.high, summary.mean, summary.deviation, summary.variance]


def layers(rows: Sequence[LayerRow]) -> Table:
    """Return the layer statistics. YAML reads the lists of scales back as numbers."""
    names = list(rows[0].local) if rows else []
    heads = [
        "op_name", "tensor_name", "kind", "precision", *names, *(f"cumulative_{name}" for name in names), "error",
        "not_finite", "scales", "zero_points", "input_scales", "input_zero_points", "tensor_id",
        "tunable",
    ]  # fmt: skip
    table = [
        [
            row.op, row.tensor, row.kind, row.precision, *row.local.values(), *row.cumulative.values(), row.error,
            row.not_finite, _list(row.scales), _list(row.zero_points), _list(row.input_scales),
            _list(row.input_zero_points), "" if row.tensor_id is None else row.tensor_id,
            row.tunable,
        ]
        for row in rows
    ]  # fmt: skip
    return heads, table


def _list(values: Iterable[float]) -> str:
    return f"[{', '.join(_plain(value) for value in values)}]"


def _plain(value: float) -> str:
    """Return a number as YAML 1.1 reads it: with a point before the exponent."""
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


# Characters with which a formula begins in some spreadsheet.
_FORMULA = ("=", "+", "-", "@")


def to_csv(table: Table) -> str:
    """Return a table as CSV. NaN becomes an empty cell, which readers turn into NaN again."""
    heads, rows = table
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(list(_written(row)) for row in rows)
    return text.getvalue()


def _written(row: Iterable[Cell]) -> Iterator[Cell]:
    for cell in row:
        if isinstance(cell, float):
            yield "" if math.isnan(cell) else repr(cell)
        else:
            yield harmless(cell) if isinstance(cell, str) else cell


def harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula and no terminal for a command.

    Names come from model files, which may be hostile.
    """
    shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
