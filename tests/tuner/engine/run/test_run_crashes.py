"""What is not the fault of a configuration is not held against it; one that ends the process is not tried for ever."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake import FakeAdapter, FakeFloat, FakeModel, FakeProbe, Outcome, drive, history_of, quality

from quaver import (
    BuildError,
    EvaluationError,
    HistoryError,
    QuantConfig,
    StopReason,
    Strategy,
    TuningSpace,
    read_snapshot,
)
from quaver.budget import Budget
from quaver.criterion import Criterion
from quaver.engine.observers import silent
from quaver.engine.probe import OutOfTime
from quaver.engine.run.crashes import CONFIRMING, MAX_DEATHS, check_confirming, last_step
from quaver.engine.run.run import Run
from quaver.engine.run.run_setup import RunSetup
from quaver.engine.timing.objective import Int8Ops, Objective
from quaver.history import RETRIES
from quaver.strategies import Basic

MODEL = FakeFloat({"a": 0.0, "b": 0.1, "c": 0.2})
SPACE = TuningSpace(MODEL.ops)
START = SPACE.default_config()
FATAL = START.fallback("c")


class Three(Strategy):
    """Proposes three configurations, the second of which is fatal."""

    name = "three"

    def propose(self, space: TuningSpace, probe: Any) -> Iterator[QuantConfig]:
        yield START
        yield FATAL
        yield START.fallback("b", "c")


def attempt(path: Path, eval_func: Any, strategy: Strategy | None = None) -> int:
    """Run in a process of its own; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run(path, eval_func, strategy)
            code = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(path: Path, eval_func: Any = quality, strategy: Strategy | None = None, **rest: Any) -> Outcome:
    return drive(
        MODEL,
        strategy or Three(),
        path,
        eval_func=eval_func,
        criterion=Criterion(absolute=0.0, relative=None),
        budget=Budget(timeout=1000),
        **rest,
    )


def fatal(model: FakeModel) -> float:
    """Ends the process on one configuration."""
    if model.config == FATAL:
        os._exit(11)
    return model.quality


def test_a_configuration_that_ends_the_process_is_tried_three_times_and_then_failed(tmp_path: Path) -> None:
    path = tmp_path / "h"
    assert RETRIES == 2
    for _ in range(1 + RETRIES):
        assert attempt(path, fatal) == 11
    done = run(path, fatal)
    assert [(trial.number, trial.failed) for trial in done.trials] == [(1, False), (2, True), (3, False)]
    assert "the process ended 3 times while this configuration was" in str(done.trials[1].error)
    assert done.evaluated == [START.fallback("b", "c")]
    assert done.reason is StopReason.EXHAUSTED
    again = run(path, fatal)
    assert (again.evaluated, again.trials) == ([], done.trials)


def test_a_configuration_that_ends_the_process_when_it_is_built_is_known_too(tmp_path: Path) -> None:
    adapter = FakeAdapter(MODEL)
    adapter.broken = lambda config: config == FATAL and os._exit(12)  # type: ignore[func-returns-value]

    def built(path: Path) -> int:
        pid = os.fork()
        if pid == 0:
            run(path, adapter=adapter)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert [built(tmp_path / "h") for _ in range(3)] == [12, 12, 12]
    assert [trial.failed for trial in run(tmp_path / "h", adapter=adapter).trials] == [False, True, False]


def test_a_crash_that_does_not_come_again_costs_nothing(tmp_path: Path) -> None:
    for _ in range(RETRIES):
        assert attempt(tmp_path / "h", fatal) == 11
    done = run(tmp_path / "h")
    assert [trial.failed for trial in done.trials] == [False] * 3
    assert done.evaluated == [FATAL, START.fallback("b", "c")]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_an_evaluation_that_is_left_in_order_is_no_crash(tmp_path: Path, error: BaseException) -> None:
    def leaving(model: FakeModel) -> float:
        if model.config == FATAL:
            raise error
        return model.quality

    for _ in range(RETRIES + 2):
        try:
            run(tmp_path / "h", leaving)
        except SystemExit:
            pass
    with history_of(MODEL, tmp_path / "h") as history:
        assert history.crashes(FATAL) == 0


def test_a_crash_among_several_at_once_is_counted_for_each_that_was_under_way(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with history_of(MODEL, path) as history:
        history.begin_trial(1, START)
        history.begin_trial(2, FATAL)
        history.drop_trial(1)
    with history_of(MODEL, path) as history:
        assert (history.crashes(START), history.crashes(FATAL)) == (0, 1)


class Full(OSError):
    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("words", [False, True])
def test_want_of_space_ends_the_run_and_the_trial_is_asked_again(tmp_path: Path, words: bool) -> None:
    def full(model: FakeModel) -> float:
        if model.config == FATAL:
            try:
                raise Full
            except OSError as error:
                if words:
                    raise RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : {error.strerror}") from None
                raise RuntimeError("cannot write the predictions") from error
        return model.quality

    path = tmp_path / "h"
    for _ in range(RETRIES + 2):
        with pytest.raises(HistoryError, match=r"the disk is full, so trial 2 is not counted: .* Free some .* resume="):
            run(path, full)
    assert [trial.number for trial in read_snapshot(path).trials] == [1]
    done = run(path)
    assert [trial.failed for trial in done.trials] == [False] * 3
    assert done.evaluated == [FATAL, START.fallback("b", "c")]


def test_a_disk_that_is_full_when_a_trial_is_recorded_is_no_crash_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, writes = tmp_path / "h", os.pwrite

    def pwrite(descriptor: int, data: Any, at: int) -> int:
        if b"trial" in bytes(data)[:60] and FATAL.fingerprint == now:
            raise Full
        return writes(descriptor, data, at)

    now = ""

    def noting(model: FakeModel) -> float:
        nonlocal now
        now = model.config.fingerprint if model.config is not None else ""
        return model.quality

    monkeypatch.setattr(os, "pwrite", pwrite)
    for _ in range(RETRIES + 2):
        with pytest.raises(HistoryError, match=r"trial 2 .score .* written to .*No space left.*Free some space"):
            run(path, noting)
        now = ""
    monkeypatch.undo()
    assert [trial.failed for trial in run(path).trials] == [False] * 3


class Interrupting(Objective):
    """Is interrupted while it measures."""

    name = "latency"

    def known(self, trial: Any) -> bool:
        return "latency" in trial.measured

    def measure(self, *_: Any) -> dict[str, float]:
        raise KeyboardInterrupt

    def value(self, trial: Any) -> float:
        return trial.measured.get("latency", 9.0)


def test_the_score_is_on_the_disk_before_anything_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "h"
    done = run(path, strategy=Basic(), objective=Interrupting())
    assert done.reason is StopReason.INTERRUPTED
    [*_, last] = read_snapshot(path).trials
    assert (last.score, last.measured) == (MODEL.quality(last.config), {})
    again = run(path, strategy=Basic())
    assert last.config not in again.evaluated


class NoTime(Strategy):
    """Has no time to measure, so that the default configuration is tried in its place."""

    name = "no_time"

    def propose(self, space: TuningSpace, probe: Any) -> Iterator[QuantConfig]:
        raise OutOfTime
        yield START


def test_the_trial_of_a_run_without_time_is_not_tried_for_ever(tmp_path: Path) -> None:
    def fatal_at_once(model: FakeModel) -> float:
        if model.config is not None:
            os._exit(13)
        return model.quality

    path = tmp_path / "h"
    assert [attempt(path, fatal_at_once, NoTime()) for _ in range(1 + RETRIES)] == [13] * 3
    done = run(path, fatal_at_once, NoTime())
    assert done.reason is StopReason.TIMEOUT and [trial.failed for trial in done.trials] == [True]


def unscored(path: Path, adapter: FakeAdapter) -> None:
    """Build the first proposal of a strategy without a score."""
    with history_of(MODEL, path) as history:
        begun = Run(RunSetup(adapter, SPACE, Criterion(), Budget(), Int8Ops(), history, silent))
        begun.begin(Three(), FakeProbe(MODEL))
        begun.take_unscored()


def test_a_model_that_ends_the_process_in_a_run_without_eval_func_is_refused_after_three_times(tmp_path: Path) -> None:
    path, adapter = tmp_path / "h", FakeAdapter(MODEL)
    adapter.broken = lambda config: config == START and os._exit(14)  # type: ignore[func-returns-value]
    codes = []
    for _ in range(1 + RETRIES):
        child = os.fork()
        if child == 0:
            unscored(path, adapter)
            os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert codes == [14] * 3
    with pytest.raises(BuildError, match=r"ended 3 times while the configuration .* keep some ops in fp32"):
        unscored(path, adapter)
    unscored(tmp_path / "other", FakeAdapter(MODEL))


def test_confirm_is_not_called_for_ever(tmp_path: Path) -> None:
    for count in range(1 + RETRIES):
        with history_of(MODEL, tmp_path / "h") as history:
            assert history.step_crashes(CONFIRMING) == count
            check_confirming(history)
            history.begin_step(CONFIRMING)
    sentence = "ended 3 times while `confirm` scored the winner"
    with history_of(MODEL, tmp_path / "h") as history, pytest.raises(EvaluationError, match=sentence):
        check_confirming(history)


def test_a_step_at_the_end_runs_twice_and_is_then_skipped_with_a_warning(tmp_path: Path) -> None:
    for _ in range(MAX_DEATHS):
        with history_of(MODEL, tmp_path / "h") as history:
            with last_step(history, "saving trial 1", "it is lost") as may_run:
                assert may_run
            history.begin_step("saving trial 1")
    with history_of(MODEL, tmp_path / "h") as history:
        sentence = "ended 2 times while saving trial 1, so this is skipped: it is lost"
        with (
            pytest.warns(UserWarning, match=sentence),
            last_step(history, "saving trial 1", "it is lost") as may_run,
        ):
            assert not may_run
        with last_step(history, "saving trial 2", "it is lost") as may_run:
            assert may_run
