"""Does an executor keep its contract? For whoever brings one of their own, and for ours."""

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
from quaver.types import ModelLike, PlainMapping

# Trials of each run, and how many the strategy proposes at once.
TRIALS, WIDTH = 8, 4
# The score of a trial comes after up to so many seconds, so that the first asked for is not the first to end.
PAUSE = 0.05
# An evaluation that hangs is ended after so many seconds; the others take far less.
LIMIT = 3.0
# Workers may outlive the run by so many seconds.
GRACE = 10.0


def check_executor(executor: Any = None, **settings: Any) -> None:
    """Tune a small model with this executor, and see whether the run is what it would be in this process.

    Give what you would give to `fit`: `check_executor(my_executor)`, `check_executor(n_jobs=2)` or
    `check_executor(backend="dask", scheduler="tcp://...")`. That is: the same trials with the same scores and the same
    winner, answered in the order asked; an exception of eval_func is a failed trial and not repeated. If evaluations
    have processes of their own: one that dies is repeated once, by itself, and then a failed trial that says how; one
    that hangs is ended; the others are not touched; and no worker of this machine outlives the run.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen = {**settings, "executor": executor}
        alone = _run(Path(folder) / "alone", {}, {})
        beside = _run(Path(folder) / "beside", chosen, {})
        assert _summary(beside) == _summary(alone), (
            f"the trials differ from those in this process: {_summary(beside)}, not {_summary(alone)}"
        )
        _check_exceptions(Path(folder), chosen, alone)
        if all(trial.worker for trial in beside.trials):
            _check_deaths(Path(folder), chosen, alone)
            _check_hang(Path(folder), chosen, alone)
            _check_gone(beside)


class InLists(Strategy):
    """Each op alone in fp32, then pairs of them: lists that are wider than there are workers."""

    name = "in_lists"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        start, names = space.default_config(), space.able_to_fall_back(space.default_config())
        singles: list[QuantConfig] = [start.fallback(name) for name in names]
        for first in range(0, len(singles), WIDTH):
            asked = singles[first : first + WIDTH]
            trials = yield asked
            assert [trial.config for trial in trials] == asked, "the trials do not come in the order asked"


def _run(workspace: Path, chosen: PlainMapping, faults: Mapping[str, str], **more: Any) -> TuneResult:
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
            **{**chosen, **more},
        )


def _images() -> Any:
    return np.random.default_rng(0).random((16, 1, 8, 8), np.float32)


def _score(journal: str, faults: Mapping[str, str], model: ModelLike) -> float:
    """The eval_func: what a model puts out, summed up; unless something is to go wrong."""
    with open(journal, "a") as file:
        file.write(f"{model.sha256}\n")
    time.sleep(PAUSE * int(model.sha256[:2], 16) / 255)
    match faults.get(model.sha256):
        case "exception":
            raise ValueError("this one is not to my liking")
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "hang":
            time.sleep(3600)
    return float(np.square(model(_images())).mean())


def _summary(result: TuneResult) -> Any:
    trials = [(trial.number, trial.config.fingerprint, trial.score, trial.model_hash) for trial in result.trials]
    return trials, result.best and result.best.number, str(result.reason), result.baseline


def _calls(result: TuneResult) -> Counter[str]:
    return Counter(Path(str(result.workspace) + ".calls").read_text().split())


def _check_exceptions(folder: Path, chosen: PlainMapping, alone: TuneResult) -> None:
    victim = alone.trials[2]
    result = _run(folder / "exception", chosen, {victim.model_hash: "exception"})
    _check_only(result, alone, {victim.number: "this one is not to my liking"})
    assert _calls(result)[victim.model_hash] == 1, "an evaluation that raised an exception was repeated"


def _check_deaths(folder: Path, chosen: PlainMapping, alone: TuneResult) -> None:
    one, other, third = alone.trials[1], alone.trials[3], alone.trials[6]
    faults = {one.model_hash: "segfault", other.model_hash: "kill", third.model_hash: "exit"}
    result = _run(folder / "deaths", chosen, faults)
    said = {one.number: "SIGSEGV", other.number: "SIGKILL", third.number: "exit code 3"}
    _check_only(result, alone, said)
    calls = _calls(result)
    for trial in (one, other, third):
        assert calls[trial.model_hash] == 2, f"an evaluation that died was tried {calls[trial.model_hash]} times, not 2"


def _check_hang(folder: Path, chosen: PlainMapping, alone: TuneResult) -> None:
    victim = alone.trials[4]
    result = _run(folder / "hang", chosen, {victim.model_hash: "hang"}, trial_timeout=LIMIT)
    _check_only(result, alone, {victim.number: "trial_timeout"})


def _check_only(result: TuneResult, alone: TuneResult, said: Mapping[int, str]) -> None:
    """These trials have failed, with these words; the others are as they would be."""
    failed = {trial.number: trial.error or "" for trial in result.trials if trial.failed}
    assert failed.keys() == said.keys(), f"trials {sorted(failed)} failed, not {sorted(said)}: {failed}"
    for number, words in said.items():
        assert words in failed[number], f"trial {number} does not say {words!r}: {failed[number]}"
    others = [(trial.number, trial.score) for trial in result.trials if not trial.failed]
    expected = [(trial.number, trial.score) for trial in alone.trials if trial.number not in said]
    assert others == expected, f"the other trials differ: {others}, not {expected}"


def _check_gone(result: TuneResult) -> None:
    """No process that evaluated is left, as far as it was on this machine."""
    named = {trial.worker.rpartition(":")[::2] for trial in result.trials}
    pids = {int(pid) for host, pid in named if host == socket.gethostname()}
    end = time.monotonic() + GRACE
    while any(map(_is_alive, pids)):
        assert time.monotonic() < end, f"a worker process is still there {GRACE:.0f} s after the run: {pids}"
        time.sleep(0.1)


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
