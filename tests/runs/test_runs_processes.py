"""Real processes: interrupted, started twice, compared, out of disk, without permission."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from networks import Closeness, chain, inputs
from processes import ended, heard, run, started

import quaver
from quaver import HistoryError, SettingsError, StopReason

TO_THE_END = """
attempt(tune, sys.argv[1])
"""

# Blocks in the evaluation of one trial, 0 being the baseline, until the test lets go.
BLOCKS = """
number, count, closeness = int(sys.argv[2]), 0, Closeness(chain())

def eval_func(model):
    global count
    count += 1
    if count == number + 1:
        wait()
    return closeness(model)

attempt(tune, sys.argv[1], eval_func)
"""

BLOCKS_WHILE_CALIBRATING = """
def batches():
    yield inputs()
    wait()

attempt(tune, sys.argv[1], data=batches())
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a run tells that nobody disturbs, and its folder."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    [[kind, result]] = run(TO_THE_END, folder)
    assert kind == "result" and len(result["trials"]) > 12
    return result, folder


def test_ctrl_c_in_an_evaluation_returns_the_best_so_far(undisturbed: Any, tmp_path: Path) -> None:
    with started(BLOCKS, tmp_path / "run", 4) as process:
        assert heard(process) == ["ready"]
        process.send_signal(signal.SIGINT)
        code, [[kind, result]], _ = ended(process)
    assert (code, kind, result["reason"]) == (0, "result", StopReason.INTERRUPTED)
    whole, _ = undisturbed
    assert result["trials"] == whole["trials"][:3]
    scores = {number: score for number, _, score, _ in result["trials"]}
    assert result["best"] == max(scores, key=lambda number: scores[number])
    [[_, resumed]] = run(TO_THE_END, tmp_path / "run")
    assert resumed == whole


@pytest.mark.parametrize("script", [BLOCKS_WHILE_CALIBRATING, BLOCKS], ids=["calibrating", "baseline"])
def test_ctrl_c_before_there_is_a_baseline_leaves_nothing(script: str, tmp_path: Path) -> None:
    with started(script, tmp_path / "run", 0) as process:
        assert heard(process) == ["ready"]
        assert (tmp_path / "run" / "history.snapshot").exists()
        process.send_signal(signal.SIGINT)
        code, told, errors = ended(process)
    assert code != 0 and told == [] and errors.rstrip().endswith("KeyboardInterrupt")
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_in_the_same_workspace_is_told_of_the_first(undisturbed: Any, tmp_path: Path) -> None:
    whole, _ = undisturbed
    model = chain()
    with started(BLOCKS, tmp_path / "run", 3) as process:
        assert heard(process) == ["ready"]
        common: dict[str, Any] = {"calib_dataloader": inputs(), "eval_func": Closeness(model), "strategy": "basic"}
        with pytest.raises(SettingsError, match="holds the history of an earlier run"):
            quaver.fit(model, workspace=tmp_path / "run", **common)
        with pytest.raises(HistoryError, match=r"is being written by .*process.* Wait until it has ended"):
            quaver.fit(model, resume=tmp_path / "run", **common)
        # Reading does not disturb it.
        assert len(quaver.read_snapshot(tmp_path / "run").trials) == 2
        assert quaver.recover(model, tmp_path / "run", 2).sha256 == whole["trials"][1][3]
        process.stdin.write("go on\n")  # type: ignore[union-attr]
        code, [[_, result]], _ = ended(process)
    assert (code, result) == (0, whole)


def test_of_two_runs_started_at_once_one_wins_and_the_other_is_told(undisturbed: Any, tmp_path: Path) -> None:
    with started(BLOCKS, tmp_path / "run", 0) as one, started(BLOCKS, tmp_path / "run", 0) as other:
        told = {process: heard(process) for process in (one, other)}
        [winner] = [process for process in told if told[process] == ["ready"]]
        [loser] = [process for process in told if process is not winner]
        assert told[loser][:2] in (["error", "SettingsError"], ["error", "HistoryError"])
        assert ended(loser)[0] == 0
        winner.stdin.write("go on\n")  # type: ignore[union-attr]
        code, [[_, result]], _ = ended(winner)
    assert (code, result) == (0, undisturbed[0])


AUTO = """
attempt(tune, sys.argv[1], strategy="auto", absolute=None, relative=0.01, layers=10)
"""


@pytest.mark.parametrize("script", [TO_THE_END, AUTO], ids=["basic", "auto"])
def test_two_processes_with_the_same_inputs_do_the_same(script: str, tmp_path: Path) -> None:
    folders = [tmp_path / seed for seed in ("0", "1234")]
    one, other = (run(script, folder, PYTHONHASHSEED=folder.name) for folder in folders)
    assert one == other and one[0][0] == "result"
    models = [(folder / "best_model.onnx").read_bytes() for folder in folders]
    assert models[0] == models[1]
    best = one[0][1]["best"]
    provenance = quaver.read_provenance(folders[0] / "best_model.onnx")
    assert provenance.is_unchanged and provenance.model == one[0][1]["trials"][best - 1][3]


# Lowers the largest size a file may have, so that the next trial does not fit.
NO_LARGER_FILES = """
import resource
count, closeness, path = 0, Closeness(chain()), os.path.join(sys.argv[1], "history.snapshot")

def eval_func(model):
    global count
    count += 1
    if count == 4:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 50, resource.RLIM_INFINITY))
    return closeness(model)

attempt(tune, sys.argv[1], eval_func)
"""

# A disk of its own, seen by this process alone, which an evaluation fills to the last byte.
FULL_DISK = """
import shutil, subprocess
disk, out = sys.argv[1], sys.argv[2]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", disk], check=True)
count, closeness, number = 0, Closeness(chain()), int(sys.argv[3])

def fill():
    with open(os.path.join(disk, "filler"), "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(256))
        except OSError:
            pass

def eval_func(model):
    global count
    count += 1
    if count == number + 1:
        fill()
    return closeness(model)

folder = os.path.join(disk, "run")
if number < 0:
    fill()
attempt(tune, folder, eval_func)
if os.path.exists(folder):
    tell(sorted(os.listdir(folder)))
    try:
        tell(len(quaver.read_snapshot(folder).trials))
    except quaver.HistoryError:
        tell(0)
os.remove(os.path.join(disk, "filler"))
attempt(tune, folder)
"""


def private_mounts() -> tuple[str, ...]:
    """A command that gives a process mounts of its own, if this machine allows that to us."""
    words = ("unshare", "--map-root-user", "--mount")
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    probe = subprocess.run([*words, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no file system may be mounted here")
    return words


def test_a_history_that_cannot_grow_is_an_error_and_costs_one_trial(undisturbed: Any, tmp_path: Path) -> None:
    whole, _ = undisturbed
    [[kind, name, message]] = run(NO_LARGER_FILES, tmp_path / "run")
    assert (kind, name) == ("error", "HistoryError")
    assert message.startswith("trial 3 (score 0.9") and "File too large. Every earlier record is safe." in message
    snapshot = quaver.read_snapshot(tmp_path / "run")
    assert len(snapshot.trials) == 2 and snapshot.damage is None
    assert run(TO_THE_END, tmp_path / "run") == [["result", whole]]


@pytest.mark.parametrize("number", [0, 3, 11])
def test_a_full_disk_is_an_error_and_the_run_goes_on_when_there_is_space(
    undisturbed: Any, tmp_path: Path, number: int
) -> None:
    whole, _ = undisturbed
    before = private_mounts()
    [kind, name, message], [files], [trials], [again, result] = run(
        FULL_DISK, tmp_path, tmp_path, number, before=before
    )
    assert (kind, again) == ("error", "result")
    assert name in ("HistoryError", "BuildError") and "No space left on device" in message
    assert "history.snapshot" in files and not [file for file in files if file.startswith(".")]
    assert number - 1 <= trials <= len(whole["trials"])
    scored = [trial[1:] for trial in result["trials"] if trial[2] is not None]
    assert scored == [trial[1:] for trial in whole["trials"]]


def test_a_disk_that_is_full_from_the_start_is_an_error(undisturbed: Any, tmp_path: Path) -> None:
    told = run(FULL_DISK, tmp_path, tmp_path, -1, before=private_mounts())
    assert told[0][0] == "error" and "No space left on device" in told[0][2]
    assert told[-1] == ["result", undisturbed[0]]


LOCKED = """
os.mkdir(sys.argv[1], mode=0o555)
attempt(tune, os.path.join(sys.argv[1], "new"))
attempt(tune, sys.argv[1])
"""


def bound_by_permissions() -> tuple[str, ...]:
    """A command that takes from root what lets it write anywhere."""
    return ("setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override") if os.geteuid() == 0 else ()


def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    new, locked = run(LOCKED, tmp_path / "locked", before=bound_by_permissions())
    assert (new[1], locked[1]) == ("SettingsError", "HistoryError")
    for told in (new, locked):
        assert "Permission denied" in told[2] and str(tmp_path / "locked") in told[2]


READ_ONLY = """
import subprocess
disk, source = sys.argv[1], sys.argv[2]
subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)
os.mkdir(os.path.join(disk, "empty"))
subprocess.run(["cp", "-r", source, os.path.join(disk, "run")], check=True)
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
attempt(tune, os.path.join(disk, "new"))
attempt(tune, os.path.join(disk, "empty"))
attempt(tune, os.path.join(disk, "run"))
tell(quaver.recover(chain(), os.path.join(disk, "run"), 2).sha256)
"""


def test_where_nothing_may_be_written_it_says_so_and_recovering_works(undisturbed: Any, tmp_path: Path) -> None:
    whole, folder = undisturbed
    new, empty, resumed, [recovered] = run(READ_ONLY, tmp_path, folder, before=private_mounts())
    assert new[:2] == ["error", "SettingsError"] and "cannot create the workspace" in new[2]
    assert empty[:2] == ["error", "HistoryError"] and resumed[:2] == ["error", "HistoryError"]
    for told in (new, empty, resumed):
        assert "Read-only file system" in told[2]
    assert recovered == whole["trials"][1][3]
