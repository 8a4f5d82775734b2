"""`make bench`: all quick measurements, as a table on the screen and as JSON in benchmarks/results/."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import (
    calibrating,
    coverage,
    diagnosing,
    early_stop,
    histories,
    litert,
    memory,
    overhead,
    repairs,
    result_files,
    scaling,
    side_by_side,
)

PARTS: dict[str, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
    "overhead": ("A trial besides eval_func", overhead.run),
    "calibration": ("Calibration by all methods", calibrating.run),
    "scaling": ("Growth with the number of ops", scaling.run),
    "histories": ("History of many trials of a model with 100 ops", histories.run),
    "memory": ("Memory over many trials", memory.run),
    "diagnosis": ("Diagnosis, in passes of the float model", diagnosing.run),
    "side_by_side": ("Trials side by side: two workers against one, one thread each", side_by_side.run),
    "early_stop": ("Early stop: trials on the border that are stopped, and samples saved", early_stop.run),
    "coverage": ("How often 95 % intervals hold the loss, on resampled real scores", coverage.run),
    "repairs": ("Repairs before fallback", repairs.run),
    "litert": ("TensorFlow and LiteRT", litert.run),
}


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; all by default")
    chosen = parser.parse_args().parts or list(PARTS)
    console = Console(width=140)
    for name in chosen:
        title, run = PARTS[name]
        rows = run()
        _show(console, title, rows)
        result_files.write(name, title, rows)


def _show(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    for columns in dict.fromkeys(tuple(row) for row in rows):
        table = Table(*columns, title=title)
        for row in rows:
            if tuple(row) == columns:
                table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
        console.print(table)


if __name__ == "__main__":
    main()
