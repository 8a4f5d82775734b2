"""One line of the comparison: what a tool spent, and what it gave for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.comparison.measuring import Measured
from benchmarks.comparison.runs import Run
from benchmarks.peers.job import RELATIVE

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """How one tool fared on one model.

    Attributes:
        ended: "finished", "crashed" or "stopped after N s"; `message` has the tool's words.
        evaluations: calls of eval_func over all samples, the one of the float model included.
        samples: samples scored in all, in evaluations of the whole set; calls over a part count as that part.
        first_success: how many evaluations it took to see a score within the criterion; None if none was.
        met: whether the final model, as measured by us, is within the criterion.
        score, held_out: of the final model, measured by us, beside the float model's.
        fp32_ops, compute_ops: convolutions and matrix products that run in fp32, and all of them.
        size: of the model file, as a fraction of the float one.
        latency_1, latency_2: quartiles of the time as a fraction of fp32, on one thread and on two.
        seconds: that the tool was busy, eval_func not counted.
        memory: peak in MB, eval_func not counted.
        calibration: time from taking the first calibration batch to asking for one after the last, by the time of plain
            inference of the same samples; the mean if there were more passes. Tools that read all samples before
            using any show less than they spend.
        calibrations: how often it went through the calibration data.
    """

    setup: str
    tool: str
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
    latency_1: tuple[float, float, float] | None
    latency_2: tuple[float, float, float] | None
    seconds: float
    memory: int
    calibration: float | None
    calibrations: int


def limit(fp32_score: float) -> float:
    """The least score within the criterion."""
    return fp32_score - RELATIVE * abs(fp32_score) - _TOLERANCE


def row(run: Run, fp32: Measured, measured: Measured | None) -> Row:
    """Put a run and the measurement of its model together."""
    events = run.ended.events
    return Row(
        setup=run.setup,
        tool=run.tool.name,
        ended=run.ended.how,
        message=run.ended.message,
        **_calls(_of(events, "evaluation")),
        met=measured is not None and measured.score >= limit(fp32.score),
        fp32_score=round(fp32.score, 4),
        score=None if measured is None else round(measured.score, 4),
        fp32_held_out=round(fp32.held_out, 4),
        held_out=None if measured is None else round(measured.held_out, 4),
        fp32_ops=None if measured is None else measured.computing.fp32,
        compute_ops=None if measured is None else measured.computing.fp32 + measured.computing.int8,
        size=None if measured is None else round(measured.size / fp32.size, 3),
        latency_1=None if measured is None else measured.latency[1],
        latency_2=None if measured is None else measured.latency[2],
        **_costs(events),
    )


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
    taken = [event["seconds"] / event["samples"] for event in passes]
    return {
        "seconds": round(max(busy - judging, 0.0), 1),
        "memory": max((event.get("memory", 0) for event in events), default=0),
        "calibration": round(sum(taken) / len(taken) / per_sample, 2) if taken and per_sample else None,
        "calibrations": len(passes),
    }
