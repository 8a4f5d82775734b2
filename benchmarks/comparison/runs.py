"""Every tool's answer on every model, each obtained once: what is there from an earlier start is taken."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison.setups import SETUPS, Setup
from benchmarks.models.fetch import CACHE
from benchmarks.peers.environments import QUAVER
from benchmarks.peers.launch import ROOT, TOOLS, Ended, Tool, launch

ENDED = "ended.json"
SHOWING = {"command", "demo", "testing", "diagnosis"}


@dataclass(frozen=True, slots=True)
class Run:
    """One tool on one model."""

    setup: str
    tool: Tool
    folder: Path
    ended: Ended


def fitting(setup: Setup, tools: Sequence[str]) -> list[Tool]:
    """Return the tools that take this kind of model."""
    return [TOOLS[name] for name in tools if setup.source(TOOLS[name]) is not None]


def all_runs(setups: Sequence[str], tools: Sequence[str], limit: float, *, again: bool = False) -> Iterator[list[Run]]:
    """The runs of one setup after the other.

    Args:
        setups: names of setups.
        tools: names of tools.
        limit: seconds for each run.
        again: do not take what is there already.
    """
    for name in setups:
        yield [_run(name, tool, limit, again) for tool in fitting(SETUPS[name], tools)]


def earlier_model(setup: str, tool: str) -> Path:
    """Return the model that a tool gave at an earlier start.

    Raises:
        FileNotFoundError: It gave none.
    """
    folder = _folder(setup, TOOLS[tool])
    model = json.loads((folder / ENDED).read_text(encoding="utf-8"))["model"]
    if model is None:
        raise FileNotFoundError(f"{tool} gave no model for {setup}")
    return folder / model


def _folder(setup: str, tool: Tool) -> Path:
    return CACHE / "runs" / setup.replace(" ", "_") / tool.name.replace(" ", "_")


def _run(name: str, tool: Tool, limit: float, again: bool) -> Run:
    folder = _folder(name, tool)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another start may be busy with the same run: its answer is taken
        return Run(name, tool, folder, _answer(name, tool, folder, limit, again))


def _answer(name: str, tool: Tool, folder: Path, limit: float, again: bool) -> Ended:
    setup = SETUPS[name]
    key = _key(setup, tool)
    ended = None if again else _known(folder, key, limit)
    if ended is None:
        print(f"{name}: {tool.name} ...", end=" ", flush=True)
        try:
            ended = launch(tool, setup.model, folder, limit, *setup.flags(tool))
        except subprocess.CalledProcessError as error:  # the environment cannot be made here
            ended = Ended("not installed", str(error.stderr).strip().splitlines()[-1], None, [], {})
        else:
            _keep(folder, key, limit, ended)
        evaluations = sum(event["kind"] == "evaluation" for event in ended.events)
        print(f"{ended.how} {ended.message}".strip(), f"({evaluations} calls of eval_func)", flush=True)
    return ended


def _key(setup: Setup, tool: Tool) -> str:
    """What an answer depends on; quaver's own answers on its code."""
    source = setup.source(tool)
    assert source is not None
    model = hashlib.sha256(source.read_bytes()).hexdigest()
    code = _code() if tool.environment is QUAVER else ""
    parts = [model, asdict(setup), tool.module, tool.variant, tool.environment.requirements, code]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _code() -> str:
    """Return a digest of quaver's source files, without those that only show things."""
    folders = (ROOT / name for name in ("tuner", "adapters", "strategies"))
    files = sorted(path for folder in folders for path in folder.rglob("*.py") if not SHOWING & set(path.parts))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _keep(folder: Path, key: str, limit: float, ended: Ended) -> None:
    record = {"key": key, "limit": limit, **asdict(ended), "model": ended.model.name if ended.model else None}
    (folder / ENDED).write_text(json.dumps(record) + "\n", encoding="utf-8")


def _known(folder: Path, key: str, limit: float) -> Ended | None:
    """An earlier answer to the same question; one that was cut short only if there is no more time now."""
    path = folder / ENDED
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    short = record.pop("limit") < limit and record["how"].startswith("stopped")
    if record.pop("key") != key or short:
        return None
    model = record.pop("model")
    return Ended(model=folder / model if model else None, **record)
