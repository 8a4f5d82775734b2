"""Start a tool on a model, stop it after a while, and read what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
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
# Address space of a tool in bytes, as `ulimit -v` sets it: NNCF has taken all memory of a machine.
MEMORY = 12 << 30
# Wall-clock seconds for each second of processor time: other programs may be busy, but a tool that waits must end.
PATIENCE = 6


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool with one of its strategies or settings.

    Attributes:
        name: as in the table.
        module: the file of this package that runs it.
        variant: what that file is told.
        environment: where it runs.
        runtimes: where its models are measured; the first is the one that the tool is made for and tunes in.
        suffixes: the kinds of model files it takes.
        usual: whether it runs when no tools are named.
    """

    name: str
    module: str
    variant: str
    environment: Environment
    runtimes: tuple[str, ...] = ("onnxruntime", "openvino")
    suffixes: tuple[str, ...] = (".onnx",)
    usual: bool = True


_IN_OPENVINO = ("openvino", "openvino bf16")
_IN_LITERT = {"runtimes": ("litert",), "suffixes": (".keras", ".tflite")}
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("quaver", "run_quaver", "auto", QUAVER),
        Tool("quaver for OpenVINO", "run_quaver", "auto:openvino", QUAVER, (*_IN_OPENVINO, "onnxruntime")),
        Tool("quaver for LiteRT", "run_quaver", "auto", QUAVER, **_IN_LITERT),
        Tool("quaver basic", "run_quaver", "basic", QUAVER, usual=False),
        Tool("quaver mse_v2", "run_quaver", "mse_v2", QUAVER, usual=False),
        Tool("OpenVINO fp32", "run_openvino", "f32", NNCF, ("openvino",)),
        Tool("OpenVINO bf16", "run_openvino", "bf16", NNCF, ("openvino bf16",)),
        Tool("NNCF quantize", "run_nncf", "performance", NNCF, _IN_OPENVINO),
        Tool("NNCF quantize, mixed", "run_nncf", "mixed", NNCF, _IN_OPENVINO),
        Tool("NNCF accuracy control", "run_nncf", "accuracy_control", NNCF, _IN_OPENVINO),
        Tool("ORT static, default", "run_quantize_static", "default", QUANTIZE_STATIC, usual=False),
        Tool("ORT static", "run_quantize_static", "all", QUANTIZE_STATIC),
        Tool("ORT static, per channel", "run_quantize_static", "all_per_channel", QUANTIZE_STATIC),
        Tool("ORT static, weights", "run_quantize_static", "weights", QUANTIZE_STATIC),
        Tool("ORT static, weights, per channel", "run_quantize_static", "weights_per_channel", QUANTIZE_STATIC),
        Tool("ORT dynamic", "run_quantize_dynamic", "default", QUANTIZE_STATIC, ("onnxruntime",)),
        Tool("NC basic", "run_neural_compressor", "basic", NEURAL_COMPRESSOR),
        Tool("NC mse_v2", "run_neural_compressor", "mse_v2", NEURAL_COMPRESSOR, usual=False),
        Tool("TFLite converter", "run_tflite", "int8", QUAVER, ("litert",), (".keras",)),
        Tool("TFLite converter, dynamic", "run_tflite", "dynamic", QUAVER, ("litert",), (".keras",)),
    )
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run went.

    Attributes:
        how: "finished", "crashed" or "stopped after N s".
        message: what the tool said about it: last words of a crash, or why there is no model.
        model: the model it gave, if any.
        events: what `job` noted: evaluations, calibration passes, time.
        more: further entries of its report.
    """

    how: str
    message: str
    model: Path | None
    events: list[dict[str, Any]]
    more: dict[str, Any]


def launch(tool: Tool, model: str, folder: Path, limit: float, *flags: str) -> Ended:
    """Run the tool in its own process; `folder` is emptied first.

    Args:
        tool: which tool.
        model: name of the model.
        folder: where its files go.
        limit: seconds of processor time.
        *flags: further options of the job.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [str(tool.environment.python()), "-m", f"benchmarks.peers.{tool.module}", model, tool.variant]
    command += [str(folder.resolve()), *flags]
    environment = {**os.environ, "PYTHONPATH": _path(tool.environment), "PYTHONHASHSEED": "0"}

    def restrict() -> None:
        seconds = max(round(limit), 1)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    with (folder / jobs.LOG).open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,  # not a new session, which would leave the scheduling group of this process
            preexec_fn=restrict,
        )
        try:
            code = _wait(process, PATIENCE * limit)
        except BaseException:
            _kill(process)
            raise
    return read(folder, code, limit)


def _path(environment: Environment) -> str:
    """Return where the process finds this package, and quaver if it runs in this environment."""
    here = [str(ROOT)]
    if environment is QUAVER:
        here += filter(None, [os.environ.get("PYTHONPATH")])
    return os.pathsep.join(here)


def read(folder: Path, code: int | None, limit: float) -> Ended:
    """What a run left behind; no exit code means that it was stopped."""
    events = folder / jobs.EVENTS
    lines = events.read_text(encoding="utf-8").splitlines() if events.exists() else []
    known = [json.loads(line) for line in lines if line.endswith("}")]
    if code == 0 and (folder / jobs.REPORT).exists():
        said = json.loads((folder / jobs.REPORT).read_text(encoding="utf-8"))
        model, message = said.pop("model"), said.pop("message")
        return Ended("finished", message, folder / model if model else None, known, said)
    if code is None or -code == signal.SIGXCPU:
        known.append({"kind": "tool", "seconds": limit})
        return Ended(f"stopped after {limit:.0f} s", "", None, known, {})
    words = f"ended by {signal.Signals(-code).name}; " if code < 0 else ""
    return Ended("crashed", words + last_words(folder / jobs.LOG), None, known, {})


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
