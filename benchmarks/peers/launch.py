"""Start a tool on a model, stop it after a while, and read what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import job as jobs
from benchmarks.peers.environments import NEURAL_COMPRESSOR, NNCF, QUANTIZE_STATIC, QUAVER, Environment

ROOT = Path(__file__).parents[2]
LAST_WORDS = 300  # characters of a message


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool with one of its strategies or settings.

    Attributes:
        name: as in the table.
        module: the file of this package that runs it.
        variant: what that file is told.
        environment: where it runs.
        suffixes: the kinds of model files it takes.
        usual: whether it runs when no tools are named.
    """

    name: str
    module: str
    variant: str
    environment: Environment
    suffixes: tuple[str, ...] = (".onnx",)
    usual: bool = True


_ANY = (".onnx", ".keras", ".tflite")
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("quaver auto", "run_quaver", "auto", QUAVER, _ANY),
        Tool("quaver basic", "run_quaver", "basic", QUAVER, _ANY),
        Tool("quaver mse_v2", "run_quaver", "mse_v2", QUAVER, _ANY),
        Tool("ORT default", "run_quantize_static", "default", QUANTIZE_STATIC),
        Tool("ORT per-channel", "run_quantize_static", "per_channel", QUANTIZE_STATIC),
        Tool("NNCF", "run_nncf", "accuracy_control", NNCF),
        Tool("NC basic", "run_neural_compressor", "basic", NEURAL_COMPRESSOR),
        Tool("NC mse_v2", "run_neural_compressor", "mse_v2", NEURAL_COMPRESSOR, usual=False),
        Tool("TFLite converter", "run_tflite", "default", QUAVER, (".keras",)),
    )
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    Attributes:
        how: "finished", "crashed" or "stopped after N s".
        message: what the tool said, if anything.
        model: its model, if it gave one.
        events: what was written down on the way.
        more: whatever else the tool reported.
    """

    how: str
    message: str
    model: Path | None
    events: list[dict[str, Any]]
    more: dict[str, Any]


def launch(tool: Tool, model: str, folder: Path, limit: float, *flags: str) -> Ended:
    """Run the tool in its own process; `folder` is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [str(tool.environment.python()), "-m", f"benchmarks.peers.{tool.module}", model, tool.variant]
    command += [str(folder.resolve()), "--limit", str(limit), *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    with (folder / jobs.LOG).open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = _wait(process, limit)
        except BaseException:
            _kill(process)
            raise
    return read(folder, code, limit)


def read(folder: Path, code: int | None, limit: float) -> Ended:
    """What a run left behind; no exit code means that it was stopped."""
    events = folder / jobs.EVENTS
    lines = events.read_text(encoding="utf-8").splitlines() if events.exists() else []
    known = [json.loads(line) for line in lines if line.endswith("}")]
    if code == 0 and (folder / jobs.REPORT).exists():
        said = json.loads((folder / jobs.REPORT).read_text(encoding="utf-8"))
        model, message = said.pop("model"), said.pop("message")
        return Ended("finished", message, folder / model if model else None, known, said)
    if code is None:
        known.append({"kind": "tool", "seconds": limit})
        return Ended(f"stopped after {limit:.0f} s", "", None, known, {})
    return Ended("crashed", last_words(folder / jobs.LOG), None, known, {})


def last_words(log: Path) -> str:
    """The line of a log that names the error."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Fail|InvalidGraph|NotImplemented)\b", line)]
    return (named or lines or ["(said nothing)"])[-1].replace(f"{ROOT}{os.sep}", "")[:LAST_WORDS]


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=min(1.0, limit))
    _kill(process)
    return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
