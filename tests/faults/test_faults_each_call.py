"""Each call of a run that changes the disk fails in turn, is done by half, or is the last one of its process."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_io import FAULTS, KILLS
from small_run import Attempt, attempt, attempt_in_child, check


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """A run that nothing happens to."""
    made = attempt(tmp_path_factory.mktemp("whole") / "run")
    assert made.error is None and len(made.evaluated) > 8 and len(made.calls) > 50
    assert {"create", "pwrite", "write", "fsync", "replace", "mkdir"} <= set(made.calls)
    return made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_fails_loses_nothing_and_is_told_of(whole: Attempt, tmp_path: Path, fault: str) -> None:
    wrong = {}
    for number, name in enumerate(whole.calls):
        folder = tmp_path / str(number)
        made = attempt(folder, number, fault)
        if found := check(whole, made, folder):
            wrong[f"{name} ({number})"] = found
        if fault == "short write" and made.error is not None:
            wrong[f"{name} ({number}), short"] = [repr(made.error)]
    assert wrong == {}


@pytest.mark.parametrize("fault", KILLS)
def test_a_process_killed_at_any_call_loses_nothing_it_has_told_of(whole: Attempt, tmp_path: Path, fault: str) -> None:
    wrong = {}
    for number, name in enumerate(whole.calls):
        folder = tmp_path / str(number)
        made = attempt_in_child(folder, number, fault)
        if made.code != -9:
            wrong[f"{name} ({number}), not killed"] = [str(made.code)]
        if found := check(whole, made, folder):
            wrong[f"{name} ({number})"] = found
    assert wrong == {}


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "full from here on"])
def test_a_resumed_run_stands_the_same(whole: Attempt, tmp_path: Path, fault: str) -> None:
    wrong = {}
    for number in range(0, 60, 2):
        folder = tmp_path / str(number)
        attempt(folder, 30, "EIO")  # so that it is half done
        made = attempt(folder, number, fault)
        if found := check(whole, made, folder):
            wrong[number] = [one for one in found if not one.startswith("evaluated")]
    assert not any(wrong.values()), wrong
