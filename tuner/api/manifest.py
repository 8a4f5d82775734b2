"""The manifest of a published model: hashes, versions, figures and commands as JSON, which another machine verifies."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from quaver.api.provenance import read_provenance
from quaver.engine.scoring.judge import Judge, judge_snapshot
from quaver.errors import HistoryError, ModelError, SettingsError
from quaver.files.atomic import write_safely
from quaver.files.paths import check_regular, expanded
from quaver.history import Snapshot, read_snapshot
from quaver.processors import noted_portability, this_processor
from quaver.types import PlainDict

# The version of the manifest's layout.
LAYOUT = 1


@dataclass(frozen=True)
class ManifestCheck:
    """The result of a verification.

    Attributes:
        files: by file, what is wrong with it; empty if nothing is.
        notes: what differs on this machine and changes no hash: package versions, the processor.
    """

    files: dict[str, str]
    notes: tuple[str, ...]

    @property
    def met(self) -> bool:
        """Return True if every file is the one that was published."""
        return not any(self.files.values())

    def __str__(self) -> str:
        lines = [f"{name}: {problem or 'unchanged since it was published'}" for name, problem in self.files.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> PlainDict:
        """Return the result as builtins, for JSON."""
        return {"met": self.met, "files": dict(self.files), "notes": list(self.notes)}


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def best_of(run: str | os.PathLike[str]) -> tuple[Snapshot, Judge, Path]:
    """Return a run, its judged trials, and the file of its best model.

    Raises:
        HistoryError: the run has no result, or its best model was not saved.
    """
    snapshot = read_snapshot(Path(expanded(run)))
    judged = judge_snapshot(snapshot)
    if judged.best is None:
        raise HistoryError(f"{snapshot.path} has no trial with a score, so there is no model to publish")
    found = sorted(snapshot.path.resolve().parent.glob("best_model.*"))
    if not found:
        raise HistoryError(
            f"{snapshot.path.parent} holds no best model: `quaver recover` writes trial {judged.best.number}"
        )
    return snapshot, judged, found[0]


def manifest(run: str | os.PathLike[str], model: Path, folder: Path, commands: dict[str, str]) -> PlainDict:
    """Return the manifest of a model.

    Args:
        run: the run that the model comes from.
        model: the file that is published.
        folder: the folder of the manifest, which file names are relative to.
        commands: what rebuilds or checks the model, by name.

    Raises:
        ModelError: the file does not hold the best model of the run.
    """
    snapshot, judged, _ = best_of(run)
    best = judged.best
    assert best is not None
    provenance = read_provenance(model)
    if provenance.model != best.model_hash:
        raise ModelError(
            f"{os.fspath(model)!r} is not the best model of the run: it holds {provenance.model[:12]}, and trial "
            f"{best.number} is {best.model_hash[:12]}"
        )
    data = model.with_name(f"{model.name}.data")
    portability = noted_portability(snapshot.notes, best.model_hash)
    return {
        "layout": LAYOUT,
        "quaver": provenance.quaver,
        "files": {
            os.path.relpath(path.resolve(), folder.resolve()): {"sha256": sha256_of(path), "bytes": path.stat().st_size}
            for path in (model, data)
            if path.exists()
        },
        "model_hash": best.model_hash,
        "float_model": snapshot.header.model_fingerprint,
        "trial": best.number,
        "criterion": str(judged.criterion),
        "met": judged.met,
        "scores": {"fp32": dict(provenance.baseline), "int8": dict(provenance.scores)},
        "measured": dict(best.measured),
        "versions": dict(snapshot.run.versions),
        "measured_on": str(this_processor() if portability is None else portability.measured_on),
        "commands": commands,
    }


def write_manifest(path: Path, content: PlainDict) -> None:
    """Write a manifest."""
    write_safely(path, [(json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()])


def check_manifest(path: str | os.PathLike[str]) -> ManifestCheck:
    """Verify the files of a manifest, which lie beside it.

    Raises:
        SettingsError: the file cannot be read, or is no manifest.
    """
    place = Path(expanded(path))
    if not place.exists():
        raise SettingsError(f"no manifest at {os.fspath(path)!r}")
    check_regular(place, "the manifest", SettingsError)
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
        files = {str(name): (str(entry["sha256"]), int(entry["bytes"])) for name, entry in content["files"].items()}
        versions = {str(name): str(text) for name, text in content["versions"].items()}
        wanted, measured_on = str(content["model_hash"]), str(content["measured_on"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"{os.fspath(path)!r} is no manifest of quaver: {type(error).__name__}: {error}") from error
    results = {}
    for name, (sha256, size) in files.items():
        results[name] = _problem(place.parent / name, sha256, size, wanted)
    return ManifestCheck(results, tuple(_notes(versions, measured_on)))


def _problem(path: Path, sha256: str, size: int, wanted: str) -> str:
    """Return what is wrong with a file; empty if nothing is."""
    if not path.is_file():
        return "MISSING"
    if path.stat().st_size != size:
        return f"CHANGED: {path.stat().st_size:,} bytes instead of {size:,}"
    if sha256_of(path) != sha256:
        return "CHANGED: another sha256"
    if path.suffix == ".data":
        return ""
    provenance = read_provenance(path)
    if provenance.model != wanted or provenance.is_unchanged is False:
        return "CHANGED: the model inside is not the one that was scored"
    return ""


def _notes(versions: dict[str, str], measured_on: str) -> list[str]:
    notes = []
    for name, there in versions.items():
        try:
            here = version(name)
        except PackageNotFoundError:
            here = "not installed"
        if here != there:
            notes.append(f"{name} is {here} here, and was {there}")
    if str(this_processor()) != measured_on:
        notes.append(f"latencies were measured on {measured_on}, and this is {this_processor()}")
    return notes
