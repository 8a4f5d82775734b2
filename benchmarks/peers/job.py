"""What every tool's process does in the same way: options, counting of evaluations, clocks, the report.

Each call of eval_func becomes a line of `events.jsonl` at once, so that a run that is stopped has its count, too.
All seconds are processor time of the process and its children, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import models, unseen
from benchmarks.models import Bench
from benchmarks.peers import memory

RELATIVE = 0.01
EVENTS, REPORT, LOG = "events.jsonl", "report.json", "log.txt"
MODEL, FLOAT = "model", "float"  # names of model files
Runnable = Callable[[Any], Any]
Shapes = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one tool on one model.

    Attributes:
        bench: the model and its data.
        variant: which strategy or setting of the tool.
        transformer: whether the model is one; some tools want to be told.
        folder: where the report and the model go.
    """

    bench: Bench
    variant: str
    transformer: bool
    folder: Path

    @property
    def target(self) -> Path:
        """Return where the model goes if it is an ONNX file."""
        return self.folder / f"{MODEL}.onnx"


def find_bench(name: str) -> Bench:
    """Return a model of either collection."""
    return models.load(name) if name in models.MODELS else unseen.load(name)


def fixed_shapes(bench: Bench) -> Shapes:
    """Return the shape of each input for a batch of one sample; -1 for a size in which the samples differ."""
    shapes: Shapes = {}
    for evaluation in (bench.eval_func, bench.held_out_eval_func):
        for name, values in evaluation.inputs.items():
            samples = [value.shape for value in values] if evaluation.batch == 0 else [(1, *values[0].shape)]
            for shape in (*samples, *(batch[name].shape for batch in bench.calib)):
                merged = shapes.setdefault(name, list(shape))
                shapes[name] = [size if size == other else -1 for size, other in zip(merged, shape, strict=True)]
    return shapes


def read() -> Job:
    """Return the job that the command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("variant")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--file", type=Path, help="the model in another format")
    parser.add_argument("--transformer", action="store_true")
    options = parser.parse_args()
    bench = find_bench(options.model)
    if options.file is not None:
        bench = replace(bench, model_path=options.file)
    return Job(bench, options.variant, options.transformer, options.folder)


class Recorder:
    """An eval_func that writes down its calls.

    Args:
        job: the run.
        open_model: makes the tool's form of a model callable with a feed.
    """

    def __init__(self, job: Job, open_model: Callable[[Any], Runnable]) -> None:
        self._evaluation, self._open, self._events = job.bench.eval_func, open_model, job.folder / EVENTS
        memory.reset()

    def __call__(self, model: Any) -> float:
        """Score a model on all samples."""
        return self.on(model, self.starts)

    @property
    def starts(self) -> range:
        """Return where each batch of samples begins."""
        return self._evaluation.starts

    def on(self, model: Any, starts: Sequence[int]) -> float:
        """Score a model on the batches that begin at these samples."""
        before, start, everything = memory.peak(), clock(), len(self._evaluation.labels)
        score = self._evaluation.on(self._open(model), starts)
        samples = sum(min(self._evaluation.batch or 1, everything - first) for first in starts)
        note(self._events, "evaluation", start, memory=before, samples=samples, of=everything, score=score)
        memory.reset()
        return score


class Batches:
    """The calibration batches, with a clock on how long the tool is busy with them."""

    def __init__(self, job: Job) -> None:
        self._batches, self._events = job.bench.calib, job.folder / EVENTS

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the batches out; when the tool comes back for more than there are, the pass is over."""
        start = clock()
        for batch in self._batches:
            yield dict(batch)
        note(self._events, "calibration", start, samples=len(self._batches))

    def __len__(self) -> int:
        return len(self._batches)


def plain_inference(job: Job, runnable: Runnable) -> None:
    """Note how long the float model takes for the calibration samples in this very process."""
    batches = [dict(batch) for batch in job.bench.calib]
    runnable(batches[0])
    start = clock()
    for batch in batches:
        runnable(batch)
    note(job.folder / EVENTS, "inference", start, samples=len(batches))


def tuning(job: Job, call: Callable[[], Any]) -> Any:
    """Do the tool's own work between two clock readings."""
    start = clock()
    result = call()
    note(job.folder / EVENTS, "tool", start, memory=memory.peak())
    return result


def report(job: Job, model: Path | None, message: str = "", **more: Any) -> None:
    """Say how it ended. No model means that the tool gave none."""
    content = {"model": model.name if model else None, "message": message, **more}
    (job.folder / REPORT).write_text(json.dumps(content) + "\n", encoding="utf-8")


def note(events: Path, kind: str, start: float, **more: Any) -> None:
    """Append a line to the events."""
    line = {"kind": kind, "seconds": round(clock() - start, 4), **more}
    with events.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def clock() -> float:
    """Return the processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
