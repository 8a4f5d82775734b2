"""How cost grows: with the number of ops, of calibration samples and of trials, each from small to large.

Every series is fitted by a power law; its exponent is what matters, 1 being proportional. The curves are drawn in
`benchmarks/results/scaling.svg`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import quaver
from benchmarks import shapes
from benchmarks.memory import Flips
from quaver.adapters import AdapterOptions, load_model

OPS = (100, 200, 500, 1000, 2000, 5000)
SAMPLES = (10, 20, 50, 100, 200, 400)
TRIALS = (10, 20, 50, 100, 200)
ROUNDS, SMALL = 5, 1000  # larger graphs are measured twice
PICTURE = Path(__file__).parent / "results" / "scaling.svg"


def with_ops(count: int) -> dict[str, Any]:
    """Return the seconds of each step for a graph of about `count` ops: the best of a few.

    A trial is assembly, creation of the session, which is ONNX Runtime's own work and grows faster, and one run.
    """
    model = shapes.chain(count)
    feeds = list(shapes.feeds(model, 2))
    start = time.perf_counter()
    adapter = load_model(model, AdapterOptions(threads=1))
    intake = time.perf_counter() - start
    calibration = _best(lambda: adapter.calibrate(feeds), ROUNDS if count <= SMALL else 2)
    space = quaver.TuningSpace(adapter.ops())
    rounds = ROUNDS if count <= SMALL else 2
    configs = [space.default_config().fallback(*space.tunable[shift::7]) for shift in range(rounds)]
    for config in configs:
        adapter.assemble(config).close()
    assembly = min(_seconds(lambda config=config: adapter.assemble(config)) for config in configs)
    trial = min(_seconds(lambda config=config: adapter.build(config).run(feeds[0])) for config in configs)
    adapter.close()
    return {"ops": len(space), "intake": intake, "calibration": calibration, "assembly": assembly, "trial": trial}


def with_samples(model: onnx.ModelProto, count: int) -> dict[str, Any]:
    """Return the seconds of calibration with all methods at once, on a number of samples."""
    feeds = list(shapes.feeds(model, 8))
    adapter = load_model(model, AdapterOptions(threads=1))
    samples = [feeds[index % len(feeds)] for index in range(count)]
    seconds = _best(lambda: adapter.calibrate(samples), 2)
    adapter.close()
    return {"samples": count, "calibration": seconds}


def with_trials(model: onnx.ModelProto, count: int) -> dict[str, Any]:
    """Return the seconds of a whole run, the snapshot included, with an eval_func that runs one sample."""
    feeds = list(shapes.feeds(model, 2))
    scores = iter([1.0])
    with tempfile.TemporaryDirectory() as folder:
        seconds = _seconds(
            lambda: quaver.fit(
                model, calib_dataloader=feeds, eval_func=lambda built: (built.run(feeds[0]), next(scores, 0.0))[1],
                strategy=Flips, max_trials=count, threads=1, workspace=Path(folder) / "run",
            )
        )  # fmt: skip
    return {"trials": count, "run": seconds}


def _best(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    return min(_seconds(call) for _ in range(rounds))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Of the power law that fits best."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def run() -> list[dict[str, Any]]:
    """All series, and the exponent of each."""
    model = shapes.mobilenet_v2()
    series = [
        [with_ops(count) for count in OPS],
        [with_samples(model, count) for count in SAMPLES],
        [with_trials(shapes.chain(100), count) for count in TRIALS],
    ]
    draw(series)
    return [*(row for rows in series for row in rows), *(row for rows in series for row in growth(rows))]


def growth(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The exponent of each step of a series."""
    size, *steps = rows[0]
    sizes = [row[size] for row in rows]
    return [
        {"growth of": step, "with": size, "exponent": exponent(sizes, [row[step] for row in rows])} for step in steps
    ]


def draw(series: Sequence[Sequence[dict[str, Any]]]) -> None:
    """The curves, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "quaver"
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(1, len(series), figsize=(11, 3.4))
    for axes, rows in zip(grid, series, strict=True):
        size = next(iter(rows[0]))
        for law in growth(rows):
            step, sizes = law["growth of"], [row[size] for row in rows]
            label = f"{step}: {size} to the power of {law['exponent']:.2f}"
            axes.loglog(sizes, [row[step] for row in rows], "o-", markersize=4, label=label)
        axes.set_xlabel(size)
        axes.legend(frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0].set_ylabel("seconds")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)
