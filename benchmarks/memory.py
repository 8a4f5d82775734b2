"""Whether memory stays flat over many trials."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import quaver
from benchmarks import shapes

TRIALS = 300


class Flips(quaver.Strategy):
    """Another random half of the ops in fp32 each time."""

    name = "flips"

    def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Iterator[quaver.QuantConfig]:
        rng = random.Random(self.seed)
        while True:
            names = [name for name in space.tunable if rng.random() < 0.5]
            yield space.default_config().fallback(*names)


def resident_megabytes() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def run() -> list[dict[str, Any]]:
    """Resident memory after 50 and after 300 trials."""
    model = shapes.mobilenet_v2()
    feeds = list(shapes.feeds(model, 2))
    seen: list[float] = []

    def evaluate(built: Any) -> float:
        built.run(feeds[0])
        seen.append(resident_megabytes())
        return 1.0 if len(seen) == 1 else 0.0

    with tempfile.TemporaryDirectory() as folder:
        quaver.fit(
            model, calib_dataloader=feeds, eval_func=evaluate, strategy=Flips, max_trials=TRIALS, threads=1,
            workspace=Path(folder) / "run",
        )  # fmt: skip
    return [
        {"MB after 50 trials": seen[50], f"MB after {TRIALS} trials": seen[TRIALS], "ratio": seen[TRIALS] / seen[50]}
    ]
