"""Real processes that tune a real network, to be interrupted, killed and compared."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent

# What every script begins with. `tune` runs a chain of Gemms in the folder given, new or resumed; `tell` says something
# to the test; `wait` blocks until the test lets go by a line, or by a signal.
PRELUDE = """
import json, os, signal, sys
import quaver
from networks import Closeness, chain, inputs

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background may ignore it

def tell(*what):
    print(json.dumps(what), flush=True)

def wait():
    tell("ready")
    sys.stdin.readline()

def tune(folder, eval_func=None, data=None, layers=6, seed=0, **settings):
    model = chain(layers, seed)
    begun = os.path.exists(os.path.join(folder, "history.snapshot"))
    settings = {"strategy": "basic", "absolute": 0.0, "objective": "size", "threads": 1, "report": False, **settings}
    settings["resume" if begun else "workspace"] = folder
    return quaver.fit(
        model,
        calib_dataloader=inputs() if data is None else data,
        eval_func=eval_func or Closeness(model),
        **settings,
    )

def summary(result):
    trials = [(trial.number, trial.config.fingerprint, trial.score, trial.model_hash) for trial in result.trials]
    return {"trials": trials, "best": result.best and result.best.number, "reason": str(result.reason),
            "met": result.met, "baseline": result.baseline}

def attempt(function, *args, **rest):
    try:
        tell("result", summary(function(*args, **rest)))
    except quaver.QuaverError as error:
        tell("error", type(error).__name__, str(error))
"""


def command(script: str, *arguments: Any, before: tuple[str, ...] = ()) -> list[str]:
    """The command line that runs a script after the prelude."""
    return [*before, sys.executable, "-c", PRELUDE + script, *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


def said(output: str) -> list[list[Any]]:
    """What a script told, line by line."""
    return [json.loads(line) for line in output.splitlines()]


def run(
    script: str, *arguments: Any, before: tuple[str, ...] = (), seconds: float = 120, **changes: str
) -> list[list[Any]]:
    """Run a script to its end, within a time limit, and return its output."""
    done = subprocess.run(
        command(script, *arguments, before=before),
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return said(done.stdout)


@contextlib.contextmanager
def started(script: str, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """A script that runs beside the test. It is killed if it has not ended by then."""
    with subprocess.Popen(
        command(script, *arguments),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> list[Any]:
    """The next thing that a script tells."""
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, f"it ended without a word: {process.stderr.read()}"
    told: list[Any] = json.loads(line)
    return told


def ended(process: subprocess.Popen[str]) -> tuple[int, list[list[Any]], str]:
    """Let a script run to its end: its exit code, what else it told, and its errors."""
    out, err = process.communicate(timeout=120)
    return process.returncode, said(out), err
