"""Trials side by side, end to end: on a real network, with an eval_func that does what it should not."""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import joblib
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.engine.event_base import Event
from quaver.engine.events import TrialFinished, TrialStarted
from quaver.errors import EvaluationError, ExecutorError, SettingsError

MODEL = chain(6)
CLOSENESS = Closeness(MODEL)
LIMIT = 8.0


def tune(workspace: Path, eval_func: Any = CLOSENESS, **settings: Any) -> quaver.TuneResult:
    settings = {"strategy": "random", "absolute": 0.0, "timeout": 3600, "max_trials": 10, **settings}
    settings = {"objective": "size", "threads": 1, **settings}
    return quaver.fit(MODEL, calib_dataloader=inputs(), eval_func=eval_func, workspace=workspace, **settings)


def summary(result: quaver.TuneResult) -> Any:
    trials = [(trial.number, trial.config.fingerprint, trial.score, trial.model_hash) for trial in result.trials]
    return trials, result.best and result.best.number, result.reason, result.baseline


@pytest.mark.parametrize("strategy", ["basic", "random", "conservative", "auto", "bayesian"])
def test_the_same_width_gives_the_same_trials_on_1_2_and_8_workers(strategy: str, tmp_path: Path) -> None:
    chosen = {"strategy": strategy, "max_trials": 12, "width": 4}
    alone = summary(tune(tmp_path / "alone", **chosen))
    for jobs in (2, 8):
        assert summary(tune(tmp_path / f"on {jobs}", n_jobs=jobs, **chosen)) == alone


def test_a_run_that_stops_at_the_first_success_is_the_same_too(tmp_path: Path) -> None:
    chosen = {"absolute": 0.02, "timeout": 0, "max_trials": 30, "width": 3}
    alone = tune(tmp_path / "alone", **chosen)
    assert alone.met
    assert summary(tune(tmp_path / "beside", n_jobs=2, **chosen)) == summary(alone)


def misbehaving(faults: dict[str, str], model: Any) -> float:
    match faults.get(model.sha256):
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            time.sleep(3600)
        case "leak":  # the system would end it; here its address space has an end
            most = 4096 * int(Path("/proc/self/statm").read_text().split()[0]) + 2**28
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            hoard = []
            try:
                while True:
                    hoard.append(bytearray(2**24))
            except MemoryError:
                os.kill(os.getpid(), 9)
        case "exit":
            os._exit(7)
        case "raise":
            raise RuntimeError("out of patience")
    return CLOSENESS(model)


def test_an_eval_func_that_crashes_hangs_leaks_and_exits_costs_its_trials_alone(tmp_path: Path) -> None:
    alone = tune(tmp_path / "alone", width=2)
    kinds = ["segfault", "", "hang", "", "leak", "", "exit", "", "raise"]
    faults = {trial.model_hash: kind for trial, kind in zip(alone.trials, kinds, strict=False)}
    eval_func = functools.partial(misbehaving, faults)
    result = tune(tmp_path / "beside", eval_func, n_jobs=2, trial_timeout=LIMIT)
    said = {trial.number: trial.error or "" for trial in result.trials if trial.failed}
    assert sorted(said) == [1, 3, 5, 7, 9]
    assert "SIGSEGV" in said[1] and "string_at" in said[1]  # the last lines of stderr tell where
    assert "trial_timeout" in said[3] and "SIGKILL" in said[5] and "exit code 7" in said[7]
    assert "RuntimeError: out of patience" in said[9]
    good = [trial for trial in alone.trials if trial.number not in said]
    assert [(trial.number, trial.score) for trial in result.trials if not trial.failed] == [
        (trial.number, trial.score) for trial in good
    ]
    assert result.best is not None and result.best.number in {trial.number for trial in good}


def test_ten_times_the_baseline_is_a_limit_too_and_needs_no_n_jobs(tmp_path: Path) -> None:
    alone = tune(tmp_path / "alone", max_trials=3)
    faults = {alone.trials[1].model_hash: "hang"}
    result = tune(tmp_path / "isolated", functools.partial(misbehaving, faults), max_trials=3, trial_timeout="10x")
    assert [trial.failed for trial in result.trials] == [False, True, False]
    assert all(trial.worker and trial.started for trial in result.trials)


def test_a_baseline_that_kills_its_worker_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match=r"no score for the fp32 model: the worker process .*exit code 7"):
        tune(tmp_path / "run", lambda model: os._exit(7), isolate=True)


def test_a_function_written_here_that_uses_a_local_variable_gets_to_the_workers(tmp_path: Path) -> None:
    offset = 0.5
    result = tune(tmp_path / "run", lambda model: CLOSENESS(model) + offset, isolate=True, max_trials=2)
    assert result.baseline == pytest.approx(1.5)


class Holding:
    """Has a lock, which no other process can have."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def score(self, model: Any) -> float:
        return 1.0


def test_what_cannot_be_sent_is_named_before_anything_is_evaluated(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(model: Any) -> float:
        with lock:
            return 1.0

    with pytest.raises(
        ExecutorError, match=r"the variable 'lock' it uses is of type lock, which cannot be pickled\. Create"
    ):
        tune(tmp_path / "one", locked, n_jobs=2)
    with pytest.raises(ExecutorError, match=r"its attribute 'lock' is of type lock"):
        tune(tmp_path / "other", Holding().score, n_jobs=2)
    session = quaver.adapters.load_model(MODEL, quaver.adapters.AdapterOptions()).assemble(None).session
    with pytest.raises(ExecutorError, match=r"'session' it uses, .* is of type InferenceSession"):
        tune(tmp_path / "third", lambda model: float(session is not None), n_jobs=2)


def test_jobs_and_backend_come_from_joblib_where_nothing_is_said(tmp_path: Path) -> None:
    with joblib.parallel_config("loky", n_jobs=2):
        assert tune(tmp_path / "loky", max_trials=2).trials[0].worker
    with joblib.parallel_config("threading", n_jobs=2), pytest.raises(SettingsError, match="ThreadingBackend"):
        tune(tmp_path / "threads")


def test_wrong_settings_are_named() -> None:
    for wrong, words in (
        ({"n_jobs": 0}, "`n_jobs` must be"),
        ({"backend": "loki"}, "did you mean 'loky'"),
        ({"trial_timeout": "10"}, "`trial_timeout` must be seconds above 0"),
        ({"width": 0}, "`width` must be"),
        ({"isolate": 1}, "`isolate` must be True or False"),
    ):
        with pytest.raises(SettingsError, match=words):
            quaver.Config(**wrong)


def test_observers_see_several_trials_under_way_and_who_evaluated_them(tmp_path: Path) -> None:
    under_way: set[int] = set()
    most, workers = 0, set()

    def watch(event: Event) -> None:
        nonlocal most
        match event:
            case TrialStarted(number):
                under_way.add(number)
                most = max(most, len(under_way - {0}))
            case TrialFinished(trial):
                under_way.discard(trial.number)
                workers.add(trial.worker)

    tune(tmp_path / "run", n_jobs=2, observer=watch)
    assert most == 2 and len(workers) == 2
    again = quaver.read_snapshot(tmp_path / "run")
    assert {trial.worker for trial in again.trials} == workers and all(trial.started > 0 for trial in again.trials)


def test_latency_is_measured_when_nothing_else_is_under_way(tmp_path: Path) -> None:
    result = tune(tmp_path / "run", n_jobs=2, absolute=0.5, objective="latency", max_trials=4)
    assert all("latency" in trial.measured for trial in result.trials)


def test_a_model_that_changed_on_the_disk_is_refused_by_workers(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(MODEL.SerializeToString())

    def exchange(event: Event) -> None:
        if isinstance(event, TrialStarted) and event.number == 0:
            path.write_bytes(chain(6, seed=5).SerializeToString())

    with pytest.raises(ExecutorError, match="a worker has another model than the run"):
        quaver.fit(
            str(path), calib_dataloader=inputs(), eval_func=CLOSENESS, observer=exchange, isolate=True,
            workspace=tmp_path / "run",
        )  # fmt: skip


def test_nothing_is_left_of_a_run_with_workers(tmp_path: Path) -> None:
    tune(tmp_path / "run", n_jobs=2, max_trials=2)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "best_model.onnx", "history.snapshot", "quaver.log", "quaver.yaml",
    ]  # fmt: skip
