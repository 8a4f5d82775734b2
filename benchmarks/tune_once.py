"""Tune a model with whichever version of quaver is on the path, and write what it took.

    python -m benchmarks.tune_once NAME FOLDER

It imports nothing of quaver but what every version has, so that `benchmarks.versions` can run older ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import quaver
from benchmarks import models, unseen
from benchmarks.models import Bench
from benchmarks.peers import memory

RELATIVE = 0.01


def load(name: str) -> Bench:
    """Return a model of either collection."""
    return models.load(name) if name in models.MODELS else unseen.load(name)


def tune(name: str, folder: Path) -> None:
    """Tune a model with whichever quaver is on the path; write the figures into the folder."""
    bench = load(name)
    spent: list[float] = []

    def eval_func(model: Any) -> float:
        start = time.process_time()
        score = bench.eval_func(model)
        spent.append(time.process_time() - start)
        return score

    memory.reset()
    start = time.process_time()
    result = quaver.fit(
        str(bench.model_path),
        calib_dataloader=bench.calib,
        eval_func=eval_func,
        relative=RELATIVE,
        threads=1,
        workspace=folder / "workspace",
        report=False,
        verbose=0,
    )
    seconds = time.process_time() - start
    path = folder / "model.onnx"
    figures: dict[str, Any] = {
        "met": result.met,
        "fp32": round(result.baseline or math.nan, 4),
        "evaluations": result.evaluations,
        "processor_seconds": round(seconds - sum(spent), 1),
        "evaluation_seconds": round(statistics.median(spent), 2) if spent else None,
        "peak_memory_mb": memory.peak(),
    }
    if result.model is not None and result.best is not None:
        result.model.save(path)
        figures |= {
            "score": round(result.best.score or math.nan, 4),
            "held_out": round(bench.held_out_eval_func(result.model), 4),
            "fp32_ops": len(result.best.config.fp32_ops),
            "ops": len(result.best.config),
            "bytes": hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        }
    (folder / "figures.json").write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    tune(sys.argv[1], Path(sys.argv[2]))
