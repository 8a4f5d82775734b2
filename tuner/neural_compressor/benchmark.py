"""`benchmark.fit` of Neural Compressor, on `quaver.profile`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaver.api import profile
from quaver.diagnosis import Profile
from quaver.errors import SettingsError
from quaver.neural_compressor.config import BenchmarkConfig
from quaver.neural_compressor.model import BridgedModel
from quaver.types import CalibrationData, ModelLike

# Inferences that are timed if the configuration sets no `iteration`; the default of `quaver.profile`.
DEFAULT_ITERATIONS = 50
# Ops printed with `diagnosis=True`: a screenful (judgement).
MAX_ROWS = 20


def fit(
    model: ModelLike,
    conf: BenchmarkConfig,
    b_dataloader: CalibrationData = None,
    b_func: Callable[..., Any] | None = None,
) -> Profile:
    """Time a model end to end and op by op; with `diagnosis=True` print the ops, slowest first."""
    if b_func is not None:
        raise SettingsError(
            "b_func is not supported: pass b_dataloader to time its samples, or leave it out to time random samples"
        )
    if not isinstance(conf, BenchmarkConfig):
        raise SettingsError(f"conf must be a BenchmarkConfig, not {type(conf).__name__}")
    options = conf.options
    runs = options.get("iteration", -1)
    timing = profile(
        model.SerializeToString() if isinstance(model, BridgedModel) else model,
        calib_dataloader=b_dataloader,
        threads=options.get("intra_num_of_threads") or options.get("cores_per_instance") or 0,
        warmup=options.get("warmup", 5),
        runs=runs if runs > 0 else DEFAULT_ITERATIONS,
    )
    if options.get("diagnosis"):
        _print_ops(timing)
    print(f"latency p50 {1e3 * timing.latency.p50:.3f} ms, throughput {timing.latency.throughput:.1f} samples/s")
    return timing


def _print_ops(timing: Profile) -> None:
    from quaver.api.display import tables

    rows = [
        [row.name, row.kernel, str(row.count), f"{1e3 * row.seconds:.3f}", f"{row.share:.1%}"] for row in timing.rows
    ]
    tables.write(["op", "kernel", "count", "ms", "share"], rows[:MAX_ROWS], right=["count", "ms", "share"])
    if len(rows) > MAX_ROWS:
        print(f"... and {len(rows) - MAX_ROWS} more")
