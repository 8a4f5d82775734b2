"""A run in miniature, with all that a run writes: it takes milliseconds, so that it can go wrong at each call."""

from __future__ import annotations

import json
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fake import FakeAdapter, FakeFloat, FakeModel
from faulty_io import FaultyIO

import quaver
from quaver.adapters import registry
from quaver.engine.event_base import Event
from quaver.engine.events import TrialFinished

MODEL = FakeFloat({"a": 0.0, "b": 0.03, "c": 0.02})
FILES = ["best_model.fake", "history.snapshot", "quaver.log", "quaver.yaml"]


@dataclass
class Attempt:
    """How one attempt ended.

    Attributes:
        result: of a run that came to its end; else None.
        error: what it raised, if it did.
        evaluated: fingerprints of what was scored.
        acknowledged: of what was told to observers, so that it must be on the disk.
        code: the exit code of a process that did not come back; 0 for one that did.
        calls: that changed the disk.
    """

    result: Any = None
    error: BaseException | None = None
    evaluated: tuple[str, ...] = ()
    acknowledged: tuple[str, ...] = ()
    code: int = 0
    calls: tuple[str, ...] = ()


def tune(folder: Path, evaluated: Callable[[str], None], acknowledged: Callable[[str], None]) -> Any:
    """Start or resume a run in a folder; return what must not depend on how often it was stopped."""

    def eval_func(model: FakeModel) -> float:
        evaluated(model.config.fingerprint if model.config is not None else "fp32")
        return model.quality

    def observer(event: Event) -> None:
        if isinstance(event, TrialFinished):
            acknowledged(event.trial.config.fingerprint)

    path = folder / "history.snapshot"
    begun = path.exists() and path.stat().st_size > 0
    registry.register_adapter(FakeAdapter)
    with warnings.catch_warnings(action="ignore"):
        result = quaver.fit(
            MODEL,
            calib_dataloader=np.zeros((4, 2), np.float32),
            eval_func=eval_func,
            observer=observer,
            strategy="basic",
            absolute=0.0,
            objective="size",
            timeout=1000,
            framework="fake",
            report=False,
            **({"resume": folder} if begun else {"workspace": folder}),
        )
    trials = [[trial.config.fingerprint, trial.score, trial.model_hash] for trial in result.trials if not trial.failed]
    best = result.best and result.best.config.fingerprint
    return {"trials": trials, "best": best, "baseline": result.baseline, "met": result.met}


def attempt(folder: Path, number: int | None = None, fault: str = "") -> Attempt:
    """One attempt in this process, with a fault at one of its calls."""
    evaluated: list[str] = []
    acknowledged: list[str] = []
    faulty = FaultyIO(folder, number, fault)
    made = Attempt()
    try:
        with faulty.watching():
            made.result = tune(folder, evaluated.append, acknowledged.append)
    except Exception as error:
        made.error = error
    made.evaluated, made.acknowledged, made.calls = tuple(evaluated), tuple(acknowledged), tuple(faulty.calls)
    return made


def attempt_in_child(folder: Path, number: int, fault: str) -> Attempt:
    """One attempt in a forked process that is killed at one of its calls."""
    notes = folder.with_name(f"{folder.name}.notes")
    descriptor = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o644)
    write = os.write

    def note(kind: str) -> Callable[[str], None]:
        return lambda what: (write(descriptor, f"{json.dumps([kind, what])}\n".encode()), None)[1]

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with FaultyIO(folder, number, fault).watching():
                tune(folder, note("evaluated"), note("acknowledged"))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = [json.loads(line) for line in notes.read_text().splitlines()]
    notes.unlink()
    return Attempt(
        evaluated=tuple(what for kind, what in said if kind == "evaluated"),
        acknowledged=tuple(what for kind, what in said if kind == "acknowledged"),
        code=code,
    )


def recorded(folder: Path) -> list[str]:
    """What is on the disk, by fingerprint."""
    try:
        return [trial.config.fingerprint for trial in quaver.read_snapshot(folder).trials]
    except quaver.HistoryError:  # not begun yet
        return []


def check(whole: Attempt, made: Attempt, folder: Path) -> list[str]:
    """What is wrong after an attempt that met a fault, and after a second one that met none."""
    wrong = []
    if made.error is not None and not isinstance(made.error, quaver.QuaverError):
        wrong.append(f"a raw exception: {made.error!r}")
    if made.code not in (0, -signal.SIGKILL):
        wrong.append(f"exit code {made.code}")
    known = recorded(folder)
    if missing := set(made.acknowledged) - set(known):
        wrong.append(f"{len(made.acknowledged)} trials were told of, and {len(missing)} of them are not on the disk")
    again = attempt(folder)
    if again.error is not None:
        return [*wrong, f"it does not resume: {again.error!r}"]
    if again.result != whole.result:
        wrong.append(f"it ends otherwise: {again.result}")
    twice = [one for one in again.evaluated if one in known]
    if twice or len(made.evaluated) + len(again.evaluated) > len(whole.evaluated) + 1:
        wrong.append(f"evaluated {len(made.evaluated)} + {len(again.evaluated)} times, not {len(whole.evaluated)} + 1")
    left = sorted(path.name for path in folder.iterdir())
    if left != FILES:
        wrong.append(f"it leaves {left}")
    return wrong
