"""One line of the comparison: what a tool spent, and what it gave for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.comparison.measuring import Measured
from benchmarks.comparison.runs import Run
from benchmarks.models.fetch import CACHE
from benchmarks.peers.job import RELATIVE

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """How one tool fared on one model, in one runtime.

    Attributes:
        runtime: where the final model was measured. A tool has a row for each runtime that opens its model.
        own: whether the tool tuned the model for this runtime and precision.
        ended: "finished", "crashed" or "stopped after N s"; `message` has the tool's or the runtime's words.
        evaluations: calls of eval_func over all samples, the one of the float model included.
        samples: samples scored in all, in evaluations of the whole set; calls over a part count as that part.
        first_success: how many evaluations it took to see a score within the criterion; None if none was.
        met: whether the final model, as measured by us, is within the criterion.
        score, held_out: of the final model, measured by us, beside the float model's in ONNX Runtime.
        fp32_ops, compute_ops: convolutions and matrix products that run in float, and all of them.
        size: of the model file, as a fraction of the float one.
        latency: quartiles of the time on one thread, as a fraction of fp32 in ONNX Runtime.
        seconds: processor time of the tool, eval_func not counted.
        memory: peak in MB, eval_func not counted.
        calibration: time from taking the first calibration batch to asking for one after the last, by the time of plain
            inference of the same samples; the mean if there were more passes. Tools that read all samples before
            using any show less than they spend.
        calibrations: how often it went through the calibration data.
    """

    setup: str
    tool: str
    runtime: str
    own: bool
    ended: str
    message: str
    evaluations: int
    samples: float
    first_success: int | None
    met: bool
    fp32_score: float
    score: float | None
    fp32_held_out: float
    held_out: float | None
    fp32_ops: int | None
    compute_ops: int | None
    size: float | None
    latency: tuple[float, float, float] | None
    seconds: float
    memory: int
    calibration: float | None
    calibrations: int


def limit(fp32_score: float) -> float:
    """Return the lowest score within the criterion."""
    return fp32_score - RELATIVE * abs(fp32_score) - _TOLERANCE


def row(run: Run, runtime: str, fp32: Measured, measured: Measured | str | None) -> Row:
    """Put a run and the measurement of its model together.

    Args:
        run: the run.
        runtime: where its model was measured.
        fp32: the float model in ONNX Runtime.
        measured: its model; a text is the runtime's error message; None if the tool gave no model.
    """
    events, message = run.ended.events, run.ended.message
    if isinstance(measured, str):
        message = f"{message}; {measured}".removeprefix("; ")
    figures = measured if isinstance(measured, Measured) else None
    return Row(
        setup=run.setup,
        tool=run.tool.name,
        runtime=runtime,
        own=runtime == runtimes_of(run)[0],
        ended=run.ended.how,
        message=message.replace(f"{CACHE}{os.sep}", ""),
        **_calls(_of(events, "evaluation")),
        met=figures is not None and figures.score >= limit(fp32.score),
        fp32_score=round(fp32.score, 4),
        score=None if figures is None else round(figures.score, 4),
        fp32_held_out=round(fp32.held_out, 4),
        held_out=None if figures is None else round(figures.held_out, 4),
        fp32_ops=None if figures is None else figures.computing.fp32,
        compute_ops=None if figures is None else figures.computing.fp32 + figures.computing.int8,
        size=None if figures is None else round(figures.size / fp32.size, 3),
        latency=None if figures is None else figures.latency,
        **_costs(events),
    )


def all_rows(runs: Sequence[Run], measured: Sequence[Measured | str]) -> Iterator[Row]:
    """Yield the rows of a setup from the measurements of the float model and of `candidates(runs)`, in order."""
    fp32, *others = measured
    if not isinstance(fp32, Measured):
        raise ValueError(f"the float model does not run: {fp32}")
    left = iter(others)
    for run in runs:
        for runtime in runtimes_of(run):
            yield row(run, runtime, fp32, next(left) if run.ended.model is not None else None)


def runtimes_of(run: Run) -> tuple[str, ...]:
    """Return where the model of a run is measured, the runtime it was made for first.

    Others follow only if the tool met the criterion in its own. A model with bf16 ops is made for that precision.
    """
    runtimes = run.tool.runtimes
    if run.ended.more.get("precision") == "bf16":
        runtimes = ("openvino bf16", *(runtime for runtime in runtimes if not runtime.startswith("openvino")))
    met = run.ended.model is not None and _calls(_of(run.ended.events, "evaluation"))["first_success"] is not None
    return runtimes if met else runtimes[:1]


def _of(events: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == kind]


def _calls(calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    full = [call["score"] for call in calls if call["samples"] == call["of"]]
    good = [number for number, score in enumerate(full, 1) if number > 1 and score >= limit(full[0])]
    return {
        "evaluations": len(full),
        "samples": round(sum(call["samples"] / call["of"] for call in calls), 2),
        "first_success": min(good, default=None),
    }


def _costs(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    busy = sum(event["seconds"] for event in _of(events, "tool"))
    judging = sum(event["seconds"] for event in _of(events, "evaluation"))
    passes, plain = _of(events, "calibration"), _of(events, "inference")
    per_sample = plain[0]["seconds"] / plain[0]["samples"] if plain else None
    passed = [event["seconds"] / event["samples"] for event in passes]
    return {
        "seconds": round(max(busy - judging, 0.0), 1),
        "memory": max((event.get("memory", 0) for event in events), default=0),
        "calibration": round(sum(passed) / len(passed) / per_sample, 2) if passed and per_sample else None,
        "calibrations": len(passes),
    }
