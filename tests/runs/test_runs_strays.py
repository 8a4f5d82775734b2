"""SIGTERM, or a kill, leaves nothing behind that the next start does not remove, and never touches what is alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from networks import Closeness, chain, inputs
from processes import ended, heard, started

import quaver
from quaver.files import atomic as writing
from quaver.files import temporary
from quaver.files import temporary as owner

TERMINATED = """
closeness = Closeness(chain())
calls = 0

def eval_func(model):
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        wait()
    return closeness(model)

def loader():
    if sys.argv[2] == "0":
        wait()
    yield inputs()

result = summary(tune(sys.argv[1], eval_func, data=loader()))
tell("result", result, sorted(os.listdir(sys.argv[1])), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


def test_sigterm_ends_a_run_with_the_best_so_far_as_ctrl_c_does(tmp_path: Path) -> None:
    with started(TERMINATED, tmp_path / "run", 4) as process:
        assert heard(process) == ["ready"]
        process.send_signal(signal.SIGTERM)
        code, told, errors = ended(process)
    assert code == 0, errors
    (_, result, files, restored) = told[0]
    assert result["reason"] == "interrupted" and len(result["trials"]) == 2 and restored
    assert files == ["best_model.onnx", "history.snapshot", "quaver.log", "quaver.yaml"]


@pytest.mark.parametrize("moment", [0, 1])
def test_sigterm_before_there_is_a_baseline_leaves_nothing(moment: int, tmp_path: Path) -> None:
    with started(TERMINATED, tmp_path / "run", moment) as process:
        assert heard(process) == ["ready"]
        process.send_signal(signal.SIGTERM)
        code, told, errors = ended(process)
    assert code != 0 and not told and "KeyboardInterrupt" in errors
    assert not (tmp_path / "run").exists()


def test_a_program_with_its_own_plans_for_sigterm_keeps_them(tmp_path: Path) -> None:
    seen: list[Any] = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        model = chain()

        def accuracy(quantized: quaver.Model) -> float:
            os.kill(os.getpid(), signal.SIGTERM)
            return Closeness(model)(quantized)

        result = quaver.fit(
            model, calib_dataloader=inputs(), eval_func=accuracy, strategy="basic", objective="size", max_trials=1,
            workspace=tmp_path / "run",
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(result.trials) == 1 and seen


@pytest.fixture(scope="module")
def dead() -> str:
    """The beginning of the marks of a process that is no more."""
    script = "from quaver.files.temporary import owner; print(owner())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def living() -> str:
    """The beginning of the marks of another process that is alive."""
    return f"{owner.owner().partition('-')[0]}-{os.getppid()}-"


def test_what_a_killed_run_left_of_its_best_model_goes_at_the_next_start_and_nothing_else(
    dead: str, living: str, tmp_path: Path
) -> None:
    elsewhere = f"ffffffff-1-{'0' * 8}"
    stray = tmp_path / f".best_model.onnx.{dead}00000000"
    others = [
        f".best_model.onnx.{living}00000000",
        f".best_model.onnx.{elsewhere}",
        ".best_model.onnx.mine",
        f".x.{dead}12345678",
    ]
    for path in (stray, *(tmp_path / name for name in others)):
        path.touch()

    def accuracy(_: quaver.Model) -> float:
        assert not stray.exists()
        return 1.0

    quaver.fit(
        chain(2), calib_dataloader=inputs(), eval_func=accuracy, strategy="basic", objective="size", workspace=tmp_path
    )
    assert all((tmp_path / name).exists() for name in others)


def test_folders_of_dead_processes_go_and_those_of_living_ones_and_of_others_stay(
    dead: str, living: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stray, alive, theirs = (tmp_path / f"quaver-{name}00000000" for name in (dead, living, "ffffffff-1-"))
    for folder in (stray, alive, theirs, tmp_path / "quaver-demo-abcdefgh", tmp_path / "elsewhere"):
        folder.mkdir()
        (folder / "weights").touch()
    link = tmp_path / f"quaver-{dead}11111111"
    link.symlink_to(tmp_path / "elsewhere")
    with temporary.temporary_folder() as made:
        assert made.parent == tmp_path and made.name.startswith(f"quaver-{owner.owner()}")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([alive.name, theirs.name, "quaver-demo-abcdefgh", "elsewhere", link.name])
    assert (tmp_path / "elsewhere" / "weights").exists()


def test_a_process_knows_what_it_uses_itself_from_what_one_of_its_number_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"quaver-{owner.owner()}00000000").mkdir()
    with temporary.temporary_folder() as first, temporary.temporary_folder() as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert not list(tmp_path.iterdir())


def test_a_recovered_model_lies_in_a_folder_that_says_whose_it_is_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = chain(3)
    result = quaver.fit(
        model, calib_dataloader=inputs(), eval_func=Closeness(model), strategy="basic", objective="size",
        workspace=tmp_path / "run",
    )  # fmt: skip
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    again = quaver.recover(model, result.history_path, 1)
    (folder,) = (tmp_path / "temporary").iterdir()
    assert folder.name.startswith(f"quaver-{owner.owner()}")
    again(inputs(2))
    del again
    assert not list((tmp_path / "temporary").iterdir())


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(
            writing.os, name, lambda *arguments, name=name, call=call: (order.append(name), call(*arguments))
        )
    writing.write_safely(tmp_path / "best_model.onnx", [b"content"])
    assert order[:2] == ["fsync", "replace"]
    assert (tmp_path / "best_model.onnx").read_bytes() == b"content"
