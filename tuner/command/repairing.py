"""`quaver history --repair`: what is whole in a damaged snapshot goes to a new file."""

from __future__ import annotations

import os

from quaver.command import wording
from quaver.history import repair


def write(path: str | os.PathLike[str]) -> None:
    """Repair, and say what was kept and what was not. The file itself is not touched."""
    repaired = repair(path)
    for said in repaired.lost:
        print(f"LOST: {wording.name(said)}")
    if not repaired.lost:
        print("nothing is damaged")
    print(f"{repaired.trials} trial(s) are in {repaired.path}")
    print(f"go on with it by `quaver tune --resume {repaired.path}`, or put it in the place of the old one")
