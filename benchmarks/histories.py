"""How the cost of a history grows: opening, appending to and following one of few and of many trials.

What counts is `growth`: what a trial costs in a long history compared with one in a short one, 1 being proportional.
Times are this thread's on a processor, so that neither other programs nor the disk have a part in them.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quaver.history import Header, History, Snapshot, SnapshotReader, read_snapshot
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

OPS, SHORT, LONG, ROUNDS = 100, 500, 5000, 3
MEASUREMENTS = 2000
CHOICES = (OpConfig(INT8), OpConfig(INT8, "entropy"), FLOAT)


def trials(ops: tuple[Op, ...], count: int) -> list[Trial]:
    """Trials of configurations drawn at random."""
    rng = random.Random(1)
    return [
        Trial(
            number,
            QuantConfig((op.name, rng.choice(CHOICES)) for op in ops),
            TrialState.COMPLETE,
            rng.random(),
            seconds=60.0,
            model_hash=hashlib.sha256(bytes([number % 256])).hexdigest(),
            model_size=10**7,
        )
        for number in range(1, count + 1)
    ]


def milliseconds(count: int, path: Path) -> dict[str, float]:
    """Return the time that each step takes for a trial in a history of a given length."""
    ops = tuple(Op(f"/encoder/layer.{index}/MatMul", "MatMul", (), CHOICES) for index in range(OPS))
    seconds = {"append": 0.0, "follow": 0.0}
    reader = SnapshotReader(path)
    with History.create(path) as history:
        history.begin(Header("ab" * 32, "onnxrt", ops, {}, "now"))
        history.start_run({}, {})
        for trial in trials(ops, count):
            seconds["append"] += _seconds(history.append, trial)
            seconds["follow"] += _seconds(reader.poll)
    seconds["open"] = _seconds(_resume, path)
    seconds["read"] = _seconds(read_snapshot, path)
    seconds["look up"] = _seconds(_look_up, read_snapshot(path))
    path.unlink()
    return {step: 1000 * taken / count for step, taken in seconds.items()}


def _resume(path: Path) -> None:
    History.resume(path).close()


def _look_up(snapshot: Snapshot) -> None:
    for trial in snapshot.trials:
        assert snapshot.trial(trial.number) is trial and snapshot.run_of(trial.number).number == 1


def note_bytes(path: Path) -> int:
    """The size of a snapshot with many measurements that were noted one by one."""
    with History.create(path) as history:
        history.begin(Header("ab" * 32, "onnxrt", (), {}, "now"))
        for index in range(MEASUREMENTS):
            history.extend_note("probe.output_error", {hashlib.sha256(str(index).encode()).hexdigest(): index / 7})
    return path.stat().st_size


def run() -> list[dict[str, Any]]:
    """All figures: the best of a few rounds, in which short and long histories take turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.snapshot"
        rounds = [(milliseconds(SHORT, path), milliseconds(LONG, path)) for _ in range(ROUNDS)]
        noted = note_bytes(path)
    rows: list[dict[str, Any]] = []
    for step in rounds[0][0]:
        short, long = (min(taken[which][step] for taken in rounds) for which in (0, 1))
        rows.append({"step": step, f"ms a trial of {SHORT}": short, f"of {LONG}": long, "growth": long / short})
    return [*rows, {"measurements": MEASUREMENTS, "bytes": noted}]


def _seconds(call: Callable[..., Any], *args: Any) -> float:
    start = time.thread_time()
    call(*args)
    return time.thread_time() - start
