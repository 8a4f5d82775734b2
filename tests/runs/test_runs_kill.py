"""Killed at random moments, as by a power cut: nothing is lost but what was in hand."""

from __future__ import annotations

from typing import Any

import pytest
from processes import run

KILLS = 20

# Each attempt is a process forked from one that has all imported, so that 20 of them take seconds. It is killed after a
# random wait, or a random while after it has evaluated something; then the next one resumes, and gets further than the
# one before it, because a trial that is killed too often is taken for the killer. eval_func notes what it
# scores in a file, on the disk before it returns.
KILLED = """
import random, time, traceback
from quaver.adapters.registry import adapters

folder, kills, chance = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
LAYERS = 12
adapters()  # so that they are imported

def journal(place):
    path = place + ".evaluated"
    return open(path).read().split() if os.path.exists(path) else []

def recorded(place):
    try:
        snapshot = quaver.read_snapshot(place)
    except quaver.HistoryError:  # not begun yet
        return []
    return [trial.model_hash for trial in (snapshot.baseline, *snapshot.trials) if trial is not None]

def child(place):
    closeness = Closeness(chain(LAYERS))
    file = os.open(place + ".evaluated", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def eval_func(model):
        score = closeness(model)
        os.write(file, (model.sha256 + "\\n").encode())
        os.fsync(file)
        return score

    result = summary(tune(place, eval_func, layers=LAYERS))
    with open(place + ".result", "w") as out:
        json.dump(result, out)

def fork(place):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        child(place)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)

def over(pid):
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None

def sleep(pid, seconds, until=lambda: False):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        code = over(pid)
        if code is not None:
            return code
        time.sleep(0.0005)
    return None

def one(place, kill):
    global stuck
    before, known = len(journal(place)), recorded(place)
    pid = fork(place)
    code = None
    if kill:
        if chance.random() < 0.3 and not stuck:
            code = sleep(pid, chance.uniform(0, 0.15))
        else:
            more = before + (2 if stuck else chance.randint(1, 2))
            code = sleep(pid, 60, lambda: len(journal(place)) >= more)
            code = sleep(pid, chance.uniform(0, 0.02)) if code is None else code
        if code is None:
            os.kill(pid, signal.SIGKILL)
    if code is None:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    after = recorded(place)
    stuck = after == known
    tell("attempt", place, code, journal(place)[before:], known, after)
    return code

stuck = False
one(folder + "/undisturbed", kill=False)
killed, runs = 0, 0
while killed < kills:
    place = f"{folder}/{runs}"
    while one_code := one(place, kill=killed < kills):
        assert one_code == -signal.SIGKILL, one_code
        killed += 1
    runs += 1
for place in ("undisturbed", *map(str, range(runs))):
    tell("result", json.load(open(f"{folder}/{place}.result")), sorted(os.listdir(f"{folder}/{place}")))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What 20 kills and the runs between them had to tell."""
    return run(KILLED, tmp_path_factory.mktemp("killed"), KILLS, 9527)


def test_a_run_killed_at_twenty_random_moments_ends_as_if_it_had_not_been(told: list[list[Any]]) -> None:
    attempts = [what[1:] for what in told if what[0] == "attempt"]
    whole, *others = [what[1] for what in told if what[0] == "result"]
    assert sum(code == -9 for _, code, *_ in attempts) == KILLS
    for _, code, evaluated, known, after in attempts:
        # What was on the disk stays there, and what this attempt adds is what it evaluated, once each; but for the one
        # evaluation that was in hand when it was killed.
        assert after[: len(known)] == known
        added = after[len(known) :]
        assert evaluated[: len(added)] == added
        assert len(evaluated) - len(added) in ((0, 1) if code == -9 else (0,))
    assert len(whole["trials"]) > 25 and others
    assert all(result == whole for result in others)


def test_a_run_killed_at_twenty_random_moments_leaves_no_other_files(told: list[list[Any]]) -> None:
    for files in (what[2] for what in told if what[0] == "result"):
        assert files == ["best_model.onnx", "history.snapshot", "quaver.log", "quaver.yaml"]
