"""Print a diagnosis, for `fit` and the command line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from quaver import formatting
from quaver.api.display import tables
from quaver.diagnosis import Diagnosis, QuantizedStatistics
from quaver.diagnosis import tables as rows_of
from quaver.diagnosis.diagnosis import MAX_PRINTED_CAUSES


def write(diagnosis: Diagnosis, rows: int) -> None:
    """Print the top rows of both summary tables, and the causes."""
    print("Activations summary (each op's output against float, the largest MSE first)")
    _table(rows_of.activations(diagnosis.activations), rows)
    print("\nWeights summary (of the float model; the largest MSE first)")
    heads, table = rows_of.weights(diagnosis.weights)
    short = [head.removeprefix("Input model ").removeprefix("standard ") for head in heads[:7]]
    _table((short, [row[:7] for row in table]), rows)
    for name, value in diagnosis.model_statistics.items():
        print(f"{formatting.printable(name)}: {value:.6g}")
    print()
    causes(diagnosis)


def write_alone(diagnosis: QuantizedStatistics, rows: int) -> None:
    """Print the statistics of a quantized model alone: the most saturated tensors first, and what is suspicious."""
    print("Tensors in integers (the largest part at the ends of the range first)")
    heads = ("OP name", "kind", "low", "high", "saturated", "levels", "scale", "zero point")
    worst = sorted(diagnosis.tensors, key=lambda row: -row.saturated)
    table: list[list[Any]] = [
        [row.op, row.kind, row.low, row.high, row.saturated, row.levels, row.scale, row.zero_point] for row in worst
    ]
    _table((heads, table), rows)
    print()
    for line in str(diagnosis).splitlines():
        print(folded(formatting.printable(line), ""))


def causes(diagnosis: Diagnosis) -> None:
    """Print the verdict, and each cause with its rule."""
    print(folded(formatting.printable(str(diagnosis).splitlines()[0]) + ".", ""))
    for number, cause in enumerate(diagnosis.causes[:MAX_PRINTED_CAUSES], 1):
        print(f"\n{number}. {formatting.printable(cause.op)}")
        print(folded(formatting.printable(cause.sentence)))
        print(folded(formatting.printable(cause.advice) + (":" if cause.rules else ".")))
        if cause.rules:
            print(f"     {formatting.printable(cause.paste)}")
    if len(diagnosis.causes) > MAX_PRINTED_CAUSES:
        print(f"\n... and {len(diagnosis.causes) - MAX_PRINTED_CAUSES} more")


def folded(sentence: str, indent: str = "   ") -> str:
    """Return a sentence as a paragraph: folded in a terminal, on one line in a pipe."""
    if not sys.stdout.isatty():
        return indent + sentence
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(
        sentence, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


def _table(table: rows_of.Table, most: int) -> None:
    heads, rows = table
    shown: Sequence[Sequence[Any]] = rows[:most] if most else rows
    tables.write(heads, [[_cell(cell) for cell in row] for row in shown], right=heads[1:])
    if len(shown) < len(rows):
        print(f"... and {len(rows) - len(shown)} more")


def _cell(cell: Any) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)
