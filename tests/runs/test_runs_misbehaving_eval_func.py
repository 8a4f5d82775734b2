"""An eval_func that exits, floods, forks or raises what cannot be printed costs its trial, never the run."""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from networks import Closeness, chain, inputs
from processes import run

import quaver
from quaver.engine.executors.process_pool import MAX_STDERR, MAX_STDERR_FILE, cut_to_end, read_end
from quaver.engine.scoring.failures import MAX_TEXT, message_of, shortened, text_of, traceback_of

MODEL = chain(3)
CLOSENESS = Closeness(MODEL)


class Unprintable(Exception):
    """Raises when it is printed."""

    def __str__(self) -> str:
        raise SystemExit("not even this")

    __repr__ = __str__


class NoException(BaseException):
    """Is no `Exception`."""


FAULTS: dict[str, Any] = {
    "exit": functools.partial(sys.exit, 3),
    "base": NoException("by design"),
    "interrupt": KeyboardInterrupt(),
    "unprintable": Unprintable("secret"),
}


def raising(kind: str, model: Any) -> float:
    """Raise on every quantized model."""
    if not any(node.op_type == "QuantizeLinear" for node in model.model.graph.node):
        return CLOSENESS(model)
    fault = FAULTS[kind]
    if callable(fault):
        fault()
    raise fault


def tune(workspace: Path, eval_func: Any, **settings: Any) -> quaver.TuneResult:
    settings = {"strategy": "random", "absolute": 0.0, "timeout": 3600, "max_trials": 3, **settings}
    settings = {"objective": "size", "threads": 1, "report": False, "verbose": 0, **settings}
    return quaver.fit(MODEL, calib_dataloader=inputs(), eval_func=eval_func, workspace=workspace, **settings)


@pytest.mark.parametrize(
    ("kind", "isolate", "text"),
    [
        ("exit", True, "SystemExit: 3"),
        ("base", True, "NoException: by design"),
        ("interrupt", True, "KeyboardInterrupt"),
        ("unprintable", True, "Unprintable"),
        ("exit", False, "SystemExit: 3"),
        ("base", False, "NoException: by design"),
        ("unprintable", False, "Unprintable"),
    ],
)
def test_whatever_eval_func_raises_is_a_failed_trial(tmp_path: Path, kind: str, isolate: bool, text: str) -> None:
    with pytest.warns(UserWarning, match=rf"all 3 quantized trials failed.*The first error, in trial 1: .*{text}"):
        result = tune(tmp_path / "run", functools.partial(raising, kind), isolate=isolate)
    assert result.best is None and result.reason is quaver.StopReason.MAX_TRIALS
    assert [trial.failed for trial in result.trials] == [True] * 3
    assert all(text in str(trial.error) for trial in result.trials)
    assert "The first error, in trial 1: " in str(result) and text in str(result)
    assert quaver.read_snapshot(tmp_path / "run").baseline is not None


def test_ctrl_c_in_this_process_ends_the_run_with_what_there_is(tmp_path: Path) -> None:
    result = tune(tmp_path / "run", functools.partial(raising, "interrupt"))
    assert (result.reason, result.trials) == (quaver.StopReason.INTERRUPTED, ())


def test_sys_exit_on_the_fp32_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(quaver.EvaluationError, match="eval_func failed on the fp32 model: SystemExit: 4"):
        tune(tmp_path / "run", lambda model: sys.exit(4))


def test_errors_are_recorded_with_a_bounded_text() -> None:
    assert text_of(Unprintable()) == "<its text cannot be printed: __str__ raises>"
    assert message_of(Unprintable()) == f"Unprintable: {text_of(Unprintable())}"
    assert message_of(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert message_of(quaver.EvaluationError("just so")) == "just so"
    long = shortened("x" * (MAX_TEXT + 10))
    assert len(long) < MAX_TEXT + 50 and "[10 characters left out]" in long
    try:
        raise ValueError("y" * 10 * MAX_TEXT)
    except ValueError as error:
        assert len(traceback_of(error)) < MAX_TEXT + 50 and "ValueError: yyy" in traceback_of(error)


# Writes 60 MB to stderr in one evaluation of a worker; what the run takes in memory is reported.
FLOOD = """
import resource

def eval_func(model):
    line = b"flood " * 20 + b"\\n"
    for _ in range(500):
        os.write(2, line * 1000)
    os.write(2, b"the last words\\n")
    return 1.0

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = tune(sys.argv[1], eval_func, isolate=True, max_trials=1, layers=2, verbose=0)
tell(result.trials[0].score, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_a_worker_that_floods_stderr_takes_no_memory_of_the_run(tmp_path: Path) -> None:
    [[score, megabytes]] = run(FLOOD, tmp_path / "run")
    assert score == 1.0 and megabytes < 80


def flooding(model: Any) -> float:
    os.write(2, b"x" * (2 * MAX_STDERR) + b"\nthe last words\n")
    return 1.0


def test_the_end_of_what_a_worker_wrote_to_stderr_is_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(tmp_path / "run", flooding, isolate=True, max_trials=1)
    written = capsys.readouterr().err
    assert written.count("the last words\n") == 2 and written.count("bytes left out]") == 2
    assert len(written) < 2 * MAX_STDERR + 1000


def test_the_file_of_a_workers_stderr_is_cut_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    with path.open("ab") as writer:
        writer.write(b"a" * (MAX_STDERR_FILE + 1) + b"end")
        writer.flush()
        cut_to_end(str(path))
        assert path.stat().st_size < MAX_STDERR + 100
        writer.write(b" and more")
    assert read_end(path).endswith("end and more") and "bytes left out]" in read_end(path)


def forking(journal: str, model: Any) -> float:
    """Fork a child that returns a score of its own, or exits, or raises, as a careless helper would."""
    codes = []
    for behaviour in ("return", "exit", "raise"):
        child = os.fork()
        if child == 0:
            if behaviour == "exit":
                sys.exit(5)
            if behaviour == "raise":
                raise RuntimeError("in the child")
            return 0.125
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    with open(journal, "a") as file:
        file.write(f"{codes}\n")
    return CLOSENESS(model)


@pytest.mark.parametrize("isolate", [False, True])
def test_a_forked_child_that_returns_from_eval_func_neither_hangs_nor_records(tmp_path: Path, isolate: bool) -> None:
    begin = time.monotonic()
    result = tune(tmp_path / "run", functools.partial(forking, str(tmp_path / "codes")), isolate=isolate)
    assert time.monotonic() - begin < 100
    assert [trial.number for trial in result.trials] == [1, 2, 3] and not any(trial.failed for trial in result.trials)
    assert result.baseline == 1.0 and all(trial.score != 0.125 for trial in result.trials)
    assert (tmp_path / "codes").read_text().splitlines() == ["[0, 5, 1]"] * 4
    snapshot = quaver.read_snapshot(tmp_path / "run")
    assert len(snapshot.trials) == 3 and snapshot.damage is None
