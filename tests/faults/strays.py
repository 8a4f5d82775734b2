"""Processes that are ended at random moments by SIGTERM, by Ctrl-C twice, or by SIGKILL, and what they leave behind."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from processes import run

# The signals that end them, one after the other; a kill leaves most behind.
WAYS = ("SIGTERM", "SIGKILL", "SIGINT twice", "SIGKILL")
FILES = ["best_model.onnx", "history.snapshot", "quaver.log", "quaver.yaml"]

# Each is a process forked from one that has all imported, so that many of them take seconds. Then comes the next start,
# which runs to its end, and a look at what lies about. One in three finds no locks, so that a file names the owner.
SCRIPT = """
import random, tempfile, time, traceback
from quaver.adapters.registry import adapters
from quaver.history import lock

folder, count, seed, ways = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
chance = random.Random(seed)
adapters()  # so that they are imported
LONGEST = 120  # seconds, on a busy machine
SETTINGS = [{"strategy": "basic"}, {"strategy": "mse"}, {"strategy": "auto", "objective": "latency"}]

def work(place, settings):
    tune(place, layers=3, max_trials=3, **settings)
    model = chain(3)
    quaver.recover(model, place, 1)(inputs(2))
    quaver.profile(model, 1, history=place, runs=2, warmup=1)

def no_locks(*_, **__):
    raise OSError("no locks available")

def fork(place, settings, locks):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if not locks:
            lock.try_acquire = no_locks
        work(place, settings)
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)

def ended(pid, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    return None

def end(pid, way):
    signals = {"SIGTERM": [signal.SIGTERM], "SIGKILL": [signal.SIGKILL]}.get(way, [signal.SIGINT, signal.SIGINT])
    for number in signals:
        code = ended(pid, chance.uniform(0, 0.02)) if number == signal.SIGINT else None
        if code is not None:
            return code
        os.kill(pid, number)
    code = ended(pid, LONGEST)
    if code is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return code

def left(place):
    there = sorted(os.listdir(place)) if os.path.exists(place) else []
    return there, sorted(os.listdir(tempfile.gettempdir()))

whole = []
for number, settings in enumerate(SETTINGS):
    begin = time.monotonic()
    assert ended(fork(f"{folder}/whole-{number}", settings, True), LONGEST) == 0
    whole.append(time.monotonic() - begin)
for number in range(count):
    place, way, locks, kind = f"{folder}/{number}", ways[number % len(ways)], number % 3 > 0, chance.randrange(3)
    pid = fork(place, SETTINGS[kind], locks)
    code = ended(pid, chance.uniform(0, 0.9 * whole[kind]))
    code = end(pid, way) if code is None else "too late"
    before = left(place)
    again = ended(fork(place, SETTINGS[kind], locks), LONGEST)
    tell(way, code, before, again, left(place))
"""


@dataclass
class Strays:
    """What became of them.

    Attributes:
        ended: how many were ended in each way, those that had come to their end before not counted.
        met: what they left before the next start, by the kind of the name.
        wrong: what was left behind, hung, or did not resume.
    """

    ended: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def end_processes(folder: Path, count: int, seed: int) -> Strays:
    """End a number of processes, and start again after each."""
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    strays = Strays()
    for number, (way, code, before, again, after) in enumerate(
        run(SCRIPT, folder, count, seed, json.dumps(WAYS), seconds=60 + 60 * count, TMPDIR=str(temporary))
    ):
        name = f"process {number} of seed {seed}, ended by {way}"
        strays.ended[way] += code != "too late"
        strays.met.update(_kind(one) for one in (*before[0], *before[1]) if one not in FILES)
        if code is None:
            strays.wrong.append(f"{name}: it did not end")
        if again != 0:
            strays.wrong.append(f"{name}: the next start ended with {again}")
        if after != [FILES, []]:
            strays.wrong.append(f"{name}: after the next start there are {after}")
    return strays


def _kind(name: str) -> str:
    for kind in (".best_model", "quaver-weights", "quaver-", "history.snapshot.lock"):
        if name.startswith(kind):
            return kind
    return name
