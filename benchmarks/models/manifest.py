"""A list of what is in a folder, so that a file that was cut short or changed does not pass for the right one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

NAME = "manifest.json"


class DamagedError(RuntimeError):
    """A prepared folder is not as it was written."""


def record(folder: Path) -> None:
    """Write down the size and the hash of each file."""
    files = {path.name: _entry(path) for path in sorted(folder.iterdir()) if path.name != NAME}
    (folder / NAME).write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")


def check(folder: Path, hashes: bool = False) -> None:
    """Raise unless all files are there at their sizes and, if asked, with their hashes."""
    if not (folder / NAME).is_file():
        raise _damaged(folder, f"has no {NAME}")
    for name, expected in json.loads((folder / NAME).read_text(encoding="utf-8"))["files"].items():
        path = folder / name
        if not path.is_file():
            raise _damaged(folder, f"has no {name}")
        if path.stat().st_size != expected["size"]:
            raise _damaged(folder, f"has {path.stat().st_size} bytes of {name}, not {expected['size']}")
        if hashes and (found := sha256(path)) != expected["sha256"]:
            raise _damaged(folder, f"has a {name} with sha256 {found}, not {expected['sha256']}")


def sha256(path: Path) -> str:
    """The hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entry(path: Path) -> dict[str, int | str]:
    return {"size": path.stat().st_size, "sha256": sha256(path)}


def _damaged(folder: Path, what: str) -> DamagedError:
    return DamagedError(f"{folder} {what}; delete the folder to prepare it again")
