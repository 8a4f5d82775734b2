"""A small history to record, with every kind of record: three ops, two runs, a baseline, four trials, a note.

Its frames: 1 header, 2 run, 3 header, 4 run, 5 baseline, 6 note, 7 begun, 8 trial 1, 9 items, 10 trial 2, 11 measured,
12 and 13 run, 14 and 15 begun, 16 dropped, 17 trial 3, 18 trial 4.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from quaver.history import Header, History, Run
from quaver.history.frames import PICKLED, FrameReader
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.scores import Samples
from quaver.trial import Trial, TrialState

MINMAX = OpConfig(INT8)
ENTROPY = OpConfig(INT8, "entropy", "per_tensor", "sym")
OPS = (
    Op("/stem/Conv", "Conv", ("/stem/Conv", "/stem/Relu"), (MINMAX, ENTROPY, FLOAT)),
    Op("/body/MatMul", "MatMul", ("/body/MatMul",), (MINMAX, FLOAT)),
    Op("/kopf/Gemm-ä", "Gemm", ("/kopf/Gemm-ä",), (ENTROPY,)),
)
ALL_INT8 = QuantConfig((op.name, op.choices[0]) for op in OPS)
ALL_FP32 = QuantConfig((op.name, FLOAT) for op in OPS)
NOTE = {
    "ranking": ["/stem/Conv", "/body/MatMul"],
    "mse": {"/stem/Conv": 0.25, 7: None},
    "raw": b"\0\1\2",
    "pair": (1, -2.5),
}
ADDED = {"/body/MatMul int8": 0.5, "raw": b"\3"}
SETTINGS = {"relative": 0.01, "seed": 7, "timeout": 0, "strategy": "auto", "rules": [("Conv.*", "fp32")]}
RUNS = (
    Run(1, "2025-01-31T12:00:01+00:00", SETTINGS, {"quaver": "0.1.0", "onnxruntime": "1.23.0"}),
    Run(2, "2025-02-01T08:30:00+00:00", SETTINGS | {"timeout": 600}, {"quaver": "0.2.0", "onnxruntime": "1.24.0"}),
)


def a_header(**changes: Any) -> Header:
    """A header in which every field says something."""
    values: dict[str, Any] = {
        "model_fingerprint": "ab" * 32,
        "adapter": "onnxrt",
        "ops": OPS,
        "calibration": {"x": {"min": -1.5, "max": 2.0, "histogram": bytes(range(64))}, "batches": 8},
        "created": "2025-01-31T12:00:00+00:00",
    }
    return Header(**{**values, **changes})


def a_trial(number: int, config: QuantConfig = ALL_INT8, **changes: Any) -> Trial:
    """A complete trial in which no field has its default value, but for the error."""
    values: dict[str, Any] = {
        "state": TrialState.COMPLETE,
        "score": 0.75 + number / 1000,
        "seconds": 61.5,
        "build_seconds": 0.5,
        "model_hash": "cd" * 32,
        "model_size": 123_456,
        "measured": {"latency": 0.41},
    }
    return Trial(number=number, config=config, **{**values, **changes})


def a_failure(number: int, config: QuantConfig = ALL_INT8) -> Trial:
    """A trial whose evaluation raised."""
    return Trial(number, config, TrialState.FAILED, seconds=2.0, error="Traceback ...\nValueError: labels")


BASELINE = a_trial(0, ALL_FP32)
LATER = {"user": 2.5}  # measured of trial 1 after it was recorded
TRIALS = (
    a_trial(1, measured={"latency": 0.41, **LATER}),
    a_trial(2, ALL_INT8.fallback("/stem/Conv")),
    a_failure(3, ALL_INT8.fallback("/body/MatMul")),
    a_trial(4, ALL_FP32),
)
# What no run in its own process has.
BY_A_WORKER = a_trial(
    5, ALL_INT8, worker="board:4711", started=1731801600.25, metrics={"top1": 0.5, "f1": 0.25},
    samples={"top1": Samples.of(np.array([0.0, 1.0]))},
)  # fmt: skip


def start(history: History, run: Run) -> None:
    """Record a run as it is."""
    assert history.start_run(run.settings, run.versions, run.started) == run


def record_sample(path: Path) -> bytes:
    """Write the sample history to `path`; the bytes of the file."""
    with History.create(path) as history:
        history.begin(a_header())
        start(history, RUNS[0])
        history.append(BASELINE)
        history.note("probe", NOTE)
        history.begin_trial(1, ALL_INT8)
        history.append(a_trial(1))
        history.extend_note("probe", ADDED)
        history.append(TRIALS[1])
        assert history.measure(1, LATER) == TRIALS[0]
        start(history, RUNS[1])
        history.begin_trial(3, ALL_INT8)
        history.begin_trial(4, ALL_FP32)
        history.drop_trial(3)
        history.append(TRIALS[2])
        history.append(TRIALS[3])
    return path.read_bytes()


def trials_after(frames: int) -> tuple[Trial, ...]:
    """The trials in the first frames of the sample."""
    if frames < 11:
        return (a_trial(1), TRIALS[1])[: (frames >= 8) + (frames >= 10)]
    return TRIALS[: 2 + (frames >= 17) + (frames >= 18)]


FRAMES = 18


def frame_bounds(path: Path) -> list[int]:
    """Where each frame of a whole snapshot begins, and where the last one ends."""
    with path.open("rb") as stream:
        reader = FrameReader(stream)
        return [len(reader.layout.magic), *(reader.position.end for _ in reader)]


def payloads(path: Path) -> list[bytes]:
    """The payload of each frame."""
    with path.open("rb") as stream:
        return list(FrameReader(stream))


def forged(record: Any) -> bytes:
    """A frame of whatever it is, with a right digest, as `pack` would make it if it checked nothing."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 4)
    pickler.fast = True
    pickler.dump(record)
    return PICKLED.frame(buffer.getvalue())


def next_number(history: History) -> int:
    """Return the highest number of a recorded trial, plus one."""
    return max((trial.number for trial in history.trials), default=0) + 1
