"""Check that an executor keeps its contract."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import socket
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from quaver.api import TuneResult, fit
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Proposals, Strategy
from quaver.types import Array, ModelLike, PlainMapping

# Trials of each run, and how many the strategy proposes at once.
TRIALS, WIDTH = 8, 4
# Longest pause of an evaluation in seconds. Pauses differ, so trials do not end in the order they were asked for.
MAX_PAUSE = 0.05
# Seconds after which a hanging evaluation is ended; the others take far less.
TRIAL_TIMEOUT = 3.0
# Seconds by which workers may outlive the run.
GRACE = 10.0


def check_executor(executor: Any = None, **settings: Any) -> None:
    """Tune a small model with an executor and compare the run with one in this process.

    Pass the arguments of `fit`: `check_executor(my_executor)`, `check_executor(n_jobs=2)` or
    `check_executor(backend="dask", scheduler="tcp://...")`.

    The run must give the same trials, scores and winner, with trials answered in the order they were asked for. An
    exception of eval_func makes a failed trial and is not repeated. If evaluations run in processes of their own: one
    that dies is repeated once, alone, and then is a failed trial with the reason; one that hangs is ended; the others
    are not affected; and no worker on this machine outlives the run.

    Raises:
        AssertionError: the executor breaks the contract; the message says how.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen = {**settings, "executor": executor}
        reference = _run(Path(folder) / "in_process", {}, {})
        checked = _run(Path(folder) / "executor", chosen, {})
        assert _summary(checked) == _summary(reference), (
            f"the trials differ from those in this process: {_summary(checked)}, not {_summary(reference)}"
        )
        _check_exceptions(Path(folder), chosen, reference)
        if all(trial.worker for trial in checked.trials):
            _check_deaths(Path(folder), chosen, reference)
            _check_hang(Path(folder), chosen, reference)
            _check_workers_ended(checked)


class InLists(Strategy):
    """Propose each op alone in fp32, in lists that are longer than the number of workers."""

    name = "in_lists"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Yield the lists."""
        start, names = space.default_config(), space.able_to_fall_back(space.default_config())
        singles: list[QuantConfig] = [start.fallback(name) for name in names]
        for first in range(0, len(singles), WIDTH):
            proposed = singles[first : first + WIDTH]
            trials = yield proposed
            assert [trial.config for trial in trials] == proposed, "the trials come in another order than proposed"


def _run(workspace: Path, chosen: PlainMapping, faults: Mapping[str, str], **overrides: Any) -> TuneResult:
    journal = str(workspace) + ".calls"
    with as_file(files("quaver.demo") / "digits_dscnn.onnx") as model, warnings.catch_warnings(action="ignore"):
        return fit(
            str(model),
            calib_dataloader=_images(),
            eval_func=functools.partial(_score, journal, dict(faults)),
            strategy=InLists,
            absolute=0.5,
            objective="int8_ops",
            timeout=3600,
            max_trials=TRIALS,
            threads=1,
            width=WIDTH,
            workspace=workspace,
            **{**chosen, **overrides},
        )


def _images() -> Array:
    return np.random.default_rng(0).random((16, 1, 8, 8), np.float32)


def _score(journal: str, faults: Mapping[str, str], model: ModelLike) -> float:
    """Return the mean square of the outputs, or fail in the way that `faults` asks for; this is the eval_func."""
    with open(journal, "a") as file:
        file.write(f"{model.sha256}\n")
    time.sleep(MAX_PAUSE * int(model.sha256[:2], 16) / 255)
    match faults.get(model.sha256):
        case "exception":
            raise ValueError("this evaluation fails on purpose")
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "hang":
            time.sleep(3600)
    return float(np.square(model(_images())).mean())


def _summary(result: TuneResult) -> tuple[object, ...]:
    trials = [(trial.number, trial.config.fingerprint, trial.score, trial.model_hash) for trial in result.trials]
    return trials, result.best and result.best.number, str(result.reason), result.baseline


def _calls(result: TuneResult) -> Counter[str]:
    return Counter(Path(str(result.workspace) + ".calls").read_text().split())


def _check_exceptions(folder: Path, chosen: PlainMapping, reference: TuneResult) -> None:
    victim = reference.trials[2]
    result = _run(folder / "exception", chosen, {victim.model_hash: "exception"})
    _check_only_failed(result, reference, {victim.number: "this evaluation fails on purpose"})
    assert _calls(result)[victim.model_hash] == 1, "an evaluation that raised an exception was repeated"


def _check_deaths(folder: Path, chosen: PlainMapping, reference: TuneResult) -> None:
    segfault, kill, leave = reference.trials[1], reference.trials[3], reference.trials[6]
    faults = {segfault.model_hash: "segfault", kill.model_hash: "kill", leave.model_hash: "exit"}
    result = _run(folder / "deaths", chosen, faults)
    messages = {segfault.number: "SIGSEGV", kill.number: "SIGKILL", leave.number: "exit code 3"}
    _check_only_failed(result, reference, messages)
    calls = _calls(result)
    for trial in (segfault, kill, leave):
        assert calls[trial.model_hash] == 2, f"an evaluation that died ran {calls[trial.model_hash]} times, not 2"


def _check_hang(folder: Path, chosen: PlainMapping, reference: TuneResult) -> None:
    victim = reference.trials[4]
    result = _run(folder / "hang", chosen, {victim.model_hash: "hang"}, trial_timeout=TRIAL_TIMEOUT)
    _check_only_failed(result, reference, {victim.number: "trial_timeout"})


def _check_only_failed(result: TuneResult, reference: TuneResult, messages: Mapping[int, str]) -> None:
    """Check that exactly these trials failed with these messages, and that the others are unchanged."""
    failed = {trial.number: trial.error or "" for trial in result.trials if trial.failed}
    assert failed.keys() == messages.keys(), f"trials {sorted(failed)} failed, not {sorted(messages)}: {failed}"
    for number, message in messages.items():
        assert message in failed[number], f"the error of trial {number} lacks {message!r}: {failed[number]}"
    completed = [(trial.number, trial.score) for trial in result.trials if not trial.failed]
    expected = [(trial.number, trial.score) for trial in reference.trials if trial.number not in messages]
    assert completed == expected, f"the other trials differ: {completed}, not {expected}"


def _check_workers_ended(result: TuneResult) -> None:
    """Check that no worker process on this machine is left."""
    workers = {trial.worker.rpartition(":")[::2] for trial in result.trials}
    pids = {int(pid) for host, pid in workers if host == socket.gethostname()}
    end = time.monotonic() + GRACE
    while any(map(_is_alive, pids)):
        assert time.monotonic() < end, f"a worker process still runs {GRACE:.0f} s after the run: {pids}"
        time.sleep(0.1)


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
