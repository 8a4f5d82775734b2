"""A small run to record: three ops, a baseline, four trials, a note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quaver.history import Header, History
from quaver.history.frames import MAGIC, FrameReader
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
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


def a_header(**changes: Any) -> Header:
    """A header in which every field says something."""
    values: dict[str, Any] = {
        "model_fingerprint": "ab" * 32,
        "adapter": "onnxrt",
        "versions": {"quaver": "0.1.0", "onnxruntime": "1.23.0"},
        "settings": {"relative": 0.01, "seed": 7, "timeout": 0, "strategy": "auto", "rules": [("Conv.*", "fp32")]},
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
        "loss": 0.0125,
        "met": True,
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


BASELINE = a_trial(0, ALL_FP32, loss=0.0)
TRIALS = (
    a_trial(1),
    a_trial(2, ALL_INT8.fallback("/stem/Conv")),
    a_failure(3, ALL_INT8.fallback("/body/MatMul")),
    a_trial(4, ALL_FP32),
)


def record_sample(path: Path) -> bytes:
    """Write the sample run to `path`; the bytes of the file."""
    with History.create(path) as history:
        history.begin(a_header())
        history.append(BASELINE)
        history.note("probe", NOTE)
        for trial in TRIALS:
            history.append(trial)
    return path.read_bytes()


def frame_bounds(path: Path) -> list[int]:
    """Where each frame of a whole snapshot begins, and where the last one ends."""
    with path.open("rb") as stream:
        reader = FrameReader(stream)
        return [len(MAGIC), *(reader.end for _ in reader)]


def payloads(path: Path) -> list[bytes]:
    """The payload of each frame."""
    with path.open("rb") as stream:
        return list(FrameReader(stream))
