"""Snapshots that end in the middle of something."""

from pathlib import Path

import quaver


def without_the_end_of_the_last_trial(path: Path) -> bytes:
    """The content of a snapshot up to its last trial, of which the last byte is missing."""
    content, trials = path.read_bytes(), len(quaver.read_snapshot(path).trials)
    scratch = path.with_name("scratch.snapshot")
    short, whole = 0, len(content)
    while whole - short > 1:
        middle = (short + whole) // 2
        scratch.write_bytes(content[:middle])
        try:
            found = len(quaver.read_snapshot(scratch).trials)
        except quaver.QuaverError:
            found = 0
        short, whole = (short, middle) if found == trials else (middle, whole)
    scratch.unlink()
    return content[:short]
