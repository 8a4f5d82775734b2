"""How the cost of reading a model and of assembling a trial grows with the number of ops."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import quaver
from benchmarks import shapes
from quaver.adapters import AdapterOptions, open_model

SIZES = (100, 1000, 5000)


def measure(ops: int) -> dict[str, Any]:
    """Seconds of intake and of assembly for a graph of about so many ops."""
    model = shapes.chain(ops)
    start = time.perf_counter()
    adapter = open_model(model, AdapterOptions())
    intake = time.perf_counter() - start
    adapter.calibrate(shapes.feeds(model, 1))
    space = quaver.TuningSpace(adapter.inspect())
    configs = [space.all_int8().fallback(*space.tunable[shift::7]) for shift in range(7)]
    for config in configs:
        adapter.rebuild(config)
    assembly = statistics.median(_seconds(adapter.rebuild, config) for config in configs)
    row = {"ops": len(space), "intake s": intake, "assembly s": assembly, "both s": intake + assembly}
    adapter.close()
    return row


def _seconds(call: Callable[[Any], Any], argument: Any) -> float:
    start = time.perf_counter()
    call(argument)
    return time.perf_counter() - start


def run() -> list[dict[str, Any]]:
    """All sizes, and the exponent of the growth."""
    rows = [measure(ops) for ops in SIZES]
    sizes = np.log([row["ops"] for row in rows])
    growth = [
        {"growth of": part, "exponent": float(np.polyfit(sizes, np.log([row[part] for row in rows]), 1)[0])}
        for part in ("intake s", "assembly s", "both s")
    ]
    return [*rows, *growth]
