"""A run: one `fit`, new or resumed. Its record tells by which settings and with which packages trials were made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quaver.history.fields import Fields, plain, versions


@dataclass(frozen=True, slots=True)
class Run:
    """One `fit` that recorded trials.

    Attributes:
        number: 1 for the run that began the history; 0 stands for one whose record is not there.
        started: ISO time.
        settings: criterion, strategy, rules, objective, seed, threads, ..., as plain data.
        versions: package name -> version, of what the models depend on.
    """

    number: int
    started: str
    settings: dict[str, Any]
    versions: dict[str, str]


def from_run(run: Run) -> dict[str, Any]:
    """The record of a run."""
    return {
        "kind": "run",
        "number": run.number,
        "started": run.started,
        "settings": plain(run.settings, "settings"),
        "versions": run.versions,
    }


def to_run(record: dict[str, Any]) -> Run:
    """The run in a record."""
    taken = Fields(record, "run")
    run = Run(
        number=taken.take("number", int),
        started=taken.take("started", str),
        settings=taken.take("settings", dict),
        versions=versions(taken.take("versions", dict)),
    )
    taken.done()
    return run
