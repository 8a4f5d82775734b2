"""`benchmark.fit`: Neural Compressor's door to `quaver.profile`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaver.api import profile
from quaver.diagnosis import Profile
from quaver.errors import SettingsError
from quaver.neural_compressor.config import BenchmarkConfig
from quaver.neural_compressor.model import BridgedModel
from quaver.types import ModelLike

# So many inferences are timed if nobody says how many.
ITERATIONS = 50
# So many ops are printed.
ROWS = 20


def fit(
    model: ModelLike, conf: BenchmarkConfig, b_dataloader: Any = None, b_func: Callable[..., Any] | None = None
) -> Profile:
    """Time a model end to end and op by op; with `diagnosis=True` the ops are printed, those that take most first."""
    if b_func is not None:
        raise SettingsError(
            "b_func is not used: inferences are timed on the samples of b_dataloader, or on made-up ones"
        )
    if not isinstance(conf, BenchmarkConfig):
        raise SettingsError(f"conf must be a BenchmarkConfig, not {type(conf).__name__}")
    words = conf.words
    runs = words.get("iteration", -1)
    found = profile(
        model.SerializeToString() if isinstance(model, BridgedModel) else model,
        calib_dataloader=b_dataloader,
        threads=words.get("intra_num_of_threads") or words.get("cores_per_instance") or 0,
        warmup=words.get("warmup", 5),
        runs=runs if runs > 0 else ITERATIONS,
    )
    if words.get("diagnosis"):
        _print(found)
    print(f"latency p50 {1e3 * found.latency.p50:.3f} ms, throughput {found.latency.throughput:.1f} samples/s")
    return found


def _print(found: Profile) -> None:
    from quaver.api.display import tables

    rows = [
        [row.name, row.kernel, str(row.count), f"{1e3 * row.seconds:.3f}", f"{row.share:.1%}"] for row in found.rows
    ]
    tables.write(["op", "kernel", "count", "ms", "share"], rows[:ROWS], right=["count", "ms", "share"])
    if len(rows) > ROWS:
        print(f"... and {len(rows) - ROWS} more")
