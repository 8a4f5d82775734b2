"""Each run has its log, also beside others."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver.adapters import registry

MODEL = FakeFloat({"a": 0.0, "b": 0.2})
DATA = np.zeros((4, 2), np.float32)
LOG = logging.getLogger("quaver.somewhere")


@pytest.fixture(autouse=True)
def _fake_models_in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    monkeypatch.chdir(tmp_path)


def fit(name: str, eval_func: Any) -> None:
    quaver.fit(MODEL, calib_dataloader=DATA, eval_func=eval_func, strategy="basic", objective="size", workspace=name)


def log_of(name: str) -> str:
    return Path(name, "quaver.log").read_text()


def test_warnings_of_two_runs_in_two_threads_go_each_into_its_own_log() -> None:
    both = threading.Barrier(2, timeout=60)

    def tune(name: str) -> None:
        def accuracy(model: Any) -> float:
            both.wait()
            LOG.warning("warned in %s", name)
            both.wait()
            return quality(model)

        fit(name, accuracy)

    threads = [threading.Thread(target=tune, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "warned in one" in log_of("one") and "warned in two" not in log_of("one")
    assert "warned in two" in log_of("two") and "warned in one" not in log_of("two")


def test_a_run_inside_another_one_has_its_own() -> None:
    def inner(model: Any) -> float:
        LOG.warning("from inside")
        return quality(model)

    def outer(model: Any) -> float:
        if not Path("inner").exists():
            fit("inner", inner)
            LOG.warning("from outside")
        return quality(model)

    fit("outer", outer)
    assert "from inside" in log_of("inner") and "from outside" not in log_of("inner")
    assert "from outside" in log_of("outer") and "from inside" not in log_of("outer")


def test_runs_by_ask_and_tell_that_take_turns_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def observer(name: str) -> Any:
        return lambda event: LOG.warning("%s heard of %s", name, type(event).__name__)

    settings: dict[str, Any] = {"calib_dataloader": DATA, "strategy": "basic", "objective": "size"}
    with (
        quaver.open_run(MODEL, workspace="one", observer=observer("one"), **settings) as one,
        quaver.open_run(MODEL, workspace="two", observer=observer("two"), **settings) as two,
    ):
        for run in (one, two, one, two):
            trial = run.ask()
            assert trial is not None
            run.tell(trial, quality(trial.model))
    assert "one heard of TrialFinished" in log_of("one") and "two heard" not in log_of("one")
    assert "two heard of TrialFinished" in log_of("two") and "one heard" not in log_of("two")


def test_a_warning_from_a_thread_of_eval_func_goes_into_the_only_log_there_is() -> None:
    def accuracy(model: Any) -> float:
        thread = threading.Thread(target=LOG.warning, args=("from a thread",))
        thread.start()
        thread.join()
        return quality(model)

    fit("run", accuracy)
    assert "from a thread" in log_of("run")
