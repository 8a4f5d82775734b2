"""A forked child, such as a worker that eval_func starts, can use the model and end, whatever threads the run has."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeFloat, FakeModel
from networks import chain, inputs
from processes import run

from quaver.adapters import AdapterOptions, load_model
from quaver.files.temporary import temporary_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(work: Callable[[], Any]) -> int:
    """How a forked child ends that does this; one that hangs is ended by an alarm."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        code = 1
        try:
            code = int(not work())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Slow(FakeModel):
    """Its bytes are not there before the parent lets go."""

    def __init__(self) -> None:
        super().__init__(FakeFloat({"a": 0.1}), None)
        self.free, self.pid = threading.Event(), os.getpid()

    def chunks(self) -> Iterator[bytes]:
        if os.getpid() == self.pid:
            self.free.wait()
        yield b"the model"


def test_a_child_does_not_wait_for_the_thread_that_hashes_in_its_parent() -> None:
    model = Slow()
    model.start_hashing()
    try:
        assert in_child(lambda: len(model.sha256) == 64) == 0
    finally:
        model.free.set()
    assert len(model.sha256) == 64


def test_a_child_runs_the_model_in_a_session_of_its_own() -> None:
    with_threads = load_model(chain(6), AdapterOptions(threads=4))
    model = with_threads.build(None)
    samples = inputs(4096)
    expected, parents = model(samples), model.session
    assert in_child(lambda: np.array_equal(model(samples), expected) and model.session is not parents) == 0
    assert np.array_equal(model(samples), expected) and model.session is parents
    with_threads.close()


def test_a_child_leaves_temporary_folders_to_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = temporary_folder()
    folder = folders.__enter__()
    assert in_child(lambda: folders.__exit__(None, None, None) is not True) == 0
    assert folder.exists()
    folders.__exit__(None, None, None)
    assert not folder.exists()


FORKS = """
import multiprocessing, time


def sleeper():
    signal.alarm(60)
    time.sleep(600)

closeness = Closeness(chain())
seen = []

def eval_func(model):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        model(inputs(8)), model.sha256
        os._exit(7)
    seen.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    worker = multiprocessing.get_context("fork").Process(target=sleeper)
    worker.start()
    worker.terminate()  # by SIGTERM, which is not for the run that forked it
    worker.join()
    seen.append(worker.exitcode)
    return closeness(model)

result = tune(sys.argv[1], eval_func, max_trials=2, threads=4)
tell("result", seen, str(result.reason), len(result.trials))
"""


def test_children_of_eval_func_can_use_the_model_and_be_killed(tmp_path: Path) -> None:
    ((_, seen, reason, trials),) = run(FORKS, tmp_path / "run")
    assert trials >= 1 and reason != "interrupted"
    assert set(seen[::2]) == {7} and set(seen[1::2]) == {-signal.SIGTERM}


ENDS = """
from quaver.adapters import AdapterOptions, load_model
model = load_model(chain(), AdapterOptions(threads=4)).build(None)
model(inputs(512))
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    model(inputs(8))
    sys.exit(7)
tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_child_that_exits_normally_neither_hangs_nor_crashes() -> None:
    assert run(ENDS) == [[7]]
