"""The long version of these tests: `make torture`. Prints what it did, and what went wrong, which must be nothing.

python tests/faults/torture.py --kills 1000 --faults 3 --ends 300 --workers 200 --models 20000
"""

from __future__ import annotations

import argparse
import io
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("support", "history", "faults")]

from clusters import dask_cluster  # noqa: E402
from faulty_io import FAULTS, KILLS  # noqa: E402
from killed_workers import kill_driver, kill_workers  # noqa: E402
from lost_writes import a_history  # noqa: E402
from mutated_models import KINDS as MODELS  # noqa: E402
from mutated_models import use_mutated  # noqa: E402
from mutated_snapshots import read_mutated  # noqa: E402
from small_run import Attempt, attempt, attempt_in_child, check  # noqa: E402
from strays import end_processes  # noqa: E402

from quaver.history.contents import Content, read  # noqa: E402

# The number of processes that are forked from one with everything imported.
ENDS = 10


def faults(folder: Path, whole: Attempt, rounds: int) -> list[str]:
    """Each call meets each fault, in a new run and so often in one that was stopped before."""
    wrong, count = [], 0
    for turn in range(rounds):
        for fault in FAULTS:
            for number in range(len(whole.calls)):
                place = folder / f"{turn}-{fault}-{number}"
                if turn:
                    attempt(place, random.Random(turn * 1000 + number).randrange(len(whole.calls)), "EIO")
                made = attempt(place, number, fault)
                found = [one for one in check(whole, made, place) if not (turn and one.startswith("evaluated"))]
                wrong += [f"{fault} at call {number} (round {turn}): {one}" for one in found]
                shutil.rmtree(place, ignore_errors=True)
                count += 1
    print(f"{count:,} I/O calls met a fault ({', '.join(FAULTS)}; {len(whole.calls)} calls of a run)", flush=True)
    return wrong


def kills(folder: Path, whole: Attempt, count: int, seed: int) -> list[str]:
    """Processes killed at random calls, and again when they resume, until one ends by itself."""
    wrong, done, runs, rng = [], 0, 0, random.Random(seed)
    while done < count:
        place = folder / f"killed-{runs}"
        told: set[str] = set()
        for _ in range(rng.randint(1, 2)):  # a configuration that is met three times counts as the one that kills
            made = attempt_in_child(place, rng.randrange(len(whole.calls)), rng.choice(KILLS))
            told.update(made.acknowledged)
            done += made.code == -signal.SIGKILL
            if made.code == 0:
                break
        made.acknowledged = tuple(told)
        faults = [fault for fault in check(whole, made, place) if not fault.startswith("evaluated")]
        if _skipped_saving(place):  # two kills while saving: the run reports it and continues without the file
            faults = [fault for fault in faults if not fault.startswith("it leaves")]
        wrong += [f"run {runs} of seed {seed}: {fault}" for fault in faults]
        shutil.rmtree(place, ignore_errors=True)
        runs += 1
    print(f"{done:,} kills in {runs:,} runs", flush=True)
    return wrong


def _skipped_saving(place: Path) -> bool:
    """Return True if the log says that saving the best model was skipped because it ended the process twice."""
    text = (place / "quaver.log").read_text(encoding="utf-8")
    return "while saving trial" in text and "so this is skipped" in text


def ends(folder: Path, count: int, seed: int) -> list[str]:
    """Whole processes on a real network ended at random moments, and started again; a new process for each few."""
    wrong, ended, met = [], Counter[str](), Counter[str]()
    for turn, start in enumerate(range(0, count, ENDS)):
        strays = end_processes(folder / f"ended-{turn}", min(ENDS, count - start), seed + turn)
        wrong += strays.wrong
        ended += strays.ended
        met += strays.met
        shutil.rmtree(folder / f"ended-{turn}", ignore_errors=True)
    print(f"{ended.total():,} processes ended ({in_words(ended)}); what they left: {in_words(met)}", flush=True)
    return wrong


def in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items())) or "nothing"


def crashes(folder: Path, count: int, seed: int) -> list[str]:
    """States of the disk after a power cut, of histories of several lengths."""
    wrong, done, rng, trials = [], 0, random.Random(seed), 5
    while done < count:
        disk = a_history(folder / f"crashed-{trials}" / "history.snapshot", trials)
        for state, told in disk.after_a_crash(rng, most=200):
            content = Content()
            try:
                read(io.BytesIO(state), folder, content)
            except Exception as error:
                wrong.append(f"{trials} trials, state {done} of seed {seed}: {error!r}")
            there = {trial.number for trial in content.trials} | ({0} if content.baseline else set())
            if missing := told - there:
                wrong.append(f"{trials} trials, state {done} of seed {seed}: lost {sorted(missing)}")
            done += 1
        trials += 3
    print(f"{done:,} crashes with lost or reordered writes", flush=True)
    return wrong


def snapshots(count: int, seed: int) -> list[str]:
    """Mutated snapshots, in this process."""
    told = read_mutated(count, seed)
    print(f"{count:,} mutated snapshots: {in_words(told.outcomes)}; the slowest took {told.slowest:.3f} s", flush=True)
    slow = [f"a mutated snapshot took {told.slowest:.1f} s (seed {seed})"] if told.slowest > 2 else []
    return told.wrong + slow


def models(count: int, seed: int) -> list[str]:
    """Mutated models, half of them ONNX, half .tflite."""
    wrong = []
    for kind in MODELS:
        told = use_mutated(kind, count // len(MODELS), seed)
        took = f"the slowest took {told.slowest:.3f} s, all together {told.memory / 2**20:,.0f} MB"
        print(f"{told.outcomes.total():,} mutated models, {kind}: {in_words(told.outcomes)}; {took}", flush=True)
        wrong += told.wrong
    return wrong


def workers(folder: Path, loky: int, dask: int, drivers: int, seed: int) -> list[str]:
    """Workers of loky and of Dask killed at random, then drivers: so often in all, a few in each run of 50 trials."""
    wrong: list[str] = []
    with dask_cluster(folder / "dask") as address:
        cluster = {"backend": "dask", "scheduler": address, "parents": True}
        for what, most, settings in (("loky", loky, {"n_jobs": 3}), ("Dask", dask, cluster)):
            done = runs = 0
            while done < most:
                kills, found = kill_workers(folder / what, min(8, most - done), seed + runs, **settings)
                done, runs, wrong = done + kills, runs + 1, wrong + found
            print(f"{done} kills of workers of {what} in {runs} runs of 50 trials", flush=True)
    done = runs = 0
    while done < drivers:
        kills, found = kill_driver(folder / "drivers", min(8, drivers - done), seed + runs)
        done, runs, wrong = done + kills, runs + 1, wrong + found
    print(f"{done} kills of drivers in {runs} runs of 50 trials", flush=True)
    return wrong


def main() -> int:
    """Do all of it; 1 if anything was lost, hung or raised what has no name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="processes to kill")
    parser.add_argument("--faults", type=int, default=3, help="rounds of every I/O call with every fault")
    parser.add_argument("--ends", type=int, default=300, help="processes to end by SIGTERM, Ctrl-C twice or SIGKILL")
    parser.add_argument("--crashes", type=int, default=100_000, help="power cuts to simulate")
    parser.add_argument("--snapshots", type=int, default=1_000_000, help="mutated snapshots to read")
    parser.add_argument("--models", type=int, default=20_000, help="mutated models to use")
    parser.add_argument("--workers", type=int, default=200, help="workers of loky to kill; a quarter as many of Dask")
    parser.add_argument("--drivers", type=int, default=50, help="drivers with workers to kill")
    parser.add_argument("--seed", type=int, default=9527)
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = attempt(folder / "whole")
        wrong = faults(folder, whole, args.faults)
        wrong += kills(folder, whole, args.kills, args.seed)
        wrong += ends(folder, args.ends, args.seed)
        wrong += workers(folder, args.workers, args.workers // 4, args.drivers, args.seed)
        wrong += crashes(folder, args.crashes, args.seed)
        wrong += snapshots(args.snapshots, args.seed)
        wrong += models(args.models, args.seed)
    for one in wrong[:50]:
        print(f"WRONG: {one}")
    print(f"{len(wrong)} thing(s) wrong, in {time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
