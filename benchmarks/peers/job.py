"""What every tool's process does in the same way: options, counting of evaluations, clocks, the report.

Each call of eval_func becomes a line of `events.jsonl` at once, so that a run that is stopped has its count, too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import Bench, load
from benchmarks.peers import memory

RELATIVE = 0.01
EVENTS, REPORT, LOG = "events.jsonl", "report.json", "log.txt"
MODEL, FLOAT = "model", "float"  # names of model files
Runnable = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one tool on one model.

    Attributes:
        bench: the model and its data.
        variant: which strategy or setting of the tool.
        per_tensor: whether weights may have one scale only.
        transformer: whether the model is one; some tools want to be told.
        folder: where the report and the model go.
        limit: seconds after which the run is stopped from outside.
    """

    bench: Bench
    variant: str
    per_tensor: bool
    transformer: bool
    folder: Path
    limit: float


def read() -> Job:
    """The job that the command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("variant")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--per-tensor", action="store_true")
    parser.add_argument("--transformer", action="store_true")
    parser.add_argument("--limit", type=float, required=True)
    given = parser.parse_args()
    bench = load(given.model)
    return Job(bench, given.variant, given.per_tensor, given.transformer, given.folder, given.limit)


class Recorder:
    """An eval_func that writes down its calls.

    Args:
        job: the run.
        open_model: makes the tool's form of a model callable with a feed.
    """

    def __init__(self, job: Job, open_model: Callable[[Any], Runnable]) -> None:
        self._evaluation, self._open, self._events = job.bench.eval_func, open_model, job.folder / EVENTS
        self._all = len(self._evaluation.labels)
        memory.reset()

    def __call__(self, model: Any) -> float:
        """Score a model on all samples."""
        return self.on(model, [slice(start, start + self._evaluation.batch) for start in self.starts])

    @property
    def starts(self) -> range:
        """Where each batch of samples begins."""
        return range(0, self._all, self._evaluation.batch)

    def on(self, model: Any, parts: list[slice]) -> float:
        """Score a model on some batches of samples."""
        before, start = memory.peak(), time.time()
        given, runnable = self._evaluation, self._open(model)
        outputs = [runnable({name: values[part] for name, values in given.inputs.items()}) for part in parts]
        labels = np.concatenate([given.labels[part] for part in parts])
        score = given.score(np.concatenate(outputs), labels)
        note(self._events, "evaluation", start, memory=before, samples=len(labels), of=self._all, score=score)
        memory.reset()
        return score


class Batches:
    """The calibration batches, with a clock on how long the tool is busy with them."""

    def __init__(self, job: Job) -> None:
        self._batches, self._events = job.bench.calib, job.folder / EVENTS

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the batches out; when the tool comes back for more than there are, the pass is over."""
        start = time.time()
        for batch in self._batches:
            yield dict(batch)
        note(self._events, "calibration", start, samples=len(self._batches))

    def __len__(self) -> int:
        return len(self._batches)


def plain_inference(job: Job, runnable: Runnable) -> None:
    """Note how long the float model takes for the calibration samples in this very process."""
    batches = [dict(batch) for batch in job.bench.calib]
    runnable(batches[0])
    start = time.time()
    for batch in batches:
        runnable(batch)
    note(job.folder / EVENTS, "inference", start, samples=len(batches))


def tuning(job: Job, call: Callable[[], Any]) -> Any:
    """Do the tool's own work between two clock readings."""
    start = time.time()
    result = call()
    note(job.folder / EVENTS, "tool", start, memory=memory.peak())
    return result


def report(job: Job, model: Path | None, message: str = "", **more: Any) -> None:
    """Say how it ended. No model means that the tool gave none."""
    said = {"model": model.name if model else None, "message": message, **more}
    (job.folder / REPORT).write_text(json.dumps(said) + "\n", encoding="utf-8")


def note(events: Path, kind: str, start: float, **more: Any) -> None:
    """Append a line to the events."""
    line = {"kind": kind, "seconds": round(time.time() - start, 4), **more}
    with events.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
