"""Runs of which workers, or the driver, are killed at random moments: what comes out is what comes out undisturbed."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from fake import FakeAdapter, FakeFloat, FakeModel

import quaver
from quaver.adapters import registry

MODEL = FakeFloat({f"op{index:02}": 0.001 * index for index in range(12)})
TRIALS, WIDTH = 50, 3
SUPPORT = Path(__file__).parents[1] / "support"


def eval_func(journal: str, pause: float, model: FakeModel) -> float:
    """Notes who begins with what, and takes a while."""
    with open(journal, "a") as file:
        file.write(f"{os.getpid()} {model.sha256} {os.getppid()}\n")
    time.sleep(pause)
    return model.quality


def tune(folder: Path, pause: float = 0.0, **settings: Any) -> Any:
    """A run of 50 trials, new or resumed; what must not depend on who was killed."""
    registry.register_adapter(FakeAdapter)
    history = folder / "history.snapshot"
    place = "resume" if history.exists() and history.stat().st_size else "workspace"
    with warnings.catch_warnings(action="ignore"):
        result = quaver.fit(
            MODEL,
            calib_dataloader=np.zeros((4, 2), np.float32),
            eval_func=functools.partial(eval_func, f"{folder}.journal", pause),
            strategy="random",
            absolute=0.0,
            objective="size",
            timeout=3600,
            max_trials=TRIALS,
            width=WIDTH,
            framework="fake",
            **{place: folder},
            **settings,
        )
    trials = [(trial.number, trial.config.fingerprint, trial.score, trial.error) for trial in result.trials]
    return trials, result.best and result.best.number, str(result.reason)


class Killer(threading.Thread):
    """Kills workers at random moments; not one that has a trial for the second time: that would count as the cause."""

    def __init__(self, journal: Path, most: int, seed: int, parents: bool = False) -> None:
        super().__init__(daemon=True)
        self.kills, self._journal, self._most, self._parents = 0, journal, most, parents
        self._rng, self._over = random.Random(seed), threading.Event()

    def run(self) -> None:
        """Until it is stopped."""
        while self.kills < self._most and not self._over.wait(self._rng.uniform(0.05, 0.6)):
            lines = [line.split() for line in _read(self._journal).splitlines()]
            begun = Counter(line[1] for line in lines if len(line) == 3)
            now = {line[0]: (line[1], line[2]) for line in lines if len(line) == 3}
            alive = [pid for pid, (what, _) in now.items() if begun[what] == 1 and Path(f"/proc/{pid}").exists()]
            if alive:
                pid = self._rng.choice(alive)
                victim = now[pid][1] if self._parents and self._rng.random() < 0.3 else pid
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(victim), signal.SIGKILL)
                    self.kills += 1

    def stop(self) -> None:
        """No more of it."""
        self._over.set()
        self.join()


def kill_workers(folder: Path, most: int, seed: int, parents: bool = False, **settings: Any) -> tuple[int, list[str]]:
    """Run once with a maximum number of kills; return their number and what is wrong with the result."""
    whole = tune(folder / f"whole-{seed}")
    place = folder / f"killed-{seed}"
    killer = Killer(Path(f"{place}.journal"), most, seed, parents)
    killer.start()
    try:
        found = tune(place, 0.1, **settings)
    finally:
        killer.stop()
    return killer.kills, ([] if found == whole else [f"run of seed {seed}: {_difference(found, whole)}"])


DRIVER = """
import sys
from pathlib import Path
from killed_workers import tune
tune(Path(sys.argv[1]), 0.05, n_jobs=2)
"""


def kill_driver(folder: Path, most: int, seed: int) -> tuple[int, list[str]]:
    """One run whose driver is killed so often at most, each time resumed."""
    whole, place, rng = tune(folder / f"whole-{seed}"), folder / f"driver-{seed}", random.Random(seed)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SUPPORT, Path(__file__).parent)))}
    kills, wrong = 0, []
    while kills < most:
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(place)], env=environment)
        begun = len(_read(Path(f"{place}.journal")).splitlines())
        while driver.poll() is None and len(_read(Path(f"{place}.journal")).splitlines()) <= begun:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.5))
        if driver.poll() is not None:
            break
        driver.kill()
        driver.wait()
        kills += 1
        wrong += _left_running(Path(f"{place}.journal"))
    found = tune(place, n_jobs=2)
    return kills, wrong + ([] if found == whole else [f"driver of seed {seed}: {_difference(found, whole)}"])


def _left_running(journal: Path) -> list[str]:
    """Workers that are there although their driver is not, seconds later."""
    pids = {line.split()[0] for line in _read(journal).splitlines()}
    for _ in range(50):
        left = [pid for pid in pids if _is_running(pid)]
        if not left:
            return []
        time.sleep(0.1)
    return [f"workers {left} outlive their driver"]


def _is_running(pid: str) -> bool:
    try:
        return "loky" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def _difference(found: Any, whole: Any) -> str:
    lost = [one for one in whole[0] if one not in found[0]]
    more = [one for one in found[0] if one not in whole[0]]
    return f"lost {lost}, others {more}, best {found[1]} and {whole[1]}, {found[2]}"


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""
