"""The room that remembers: `history.snapshot`, one append-only file from which every trial can be rebuilt."""

if __name__ == "history":
    raise ImportError("import quaver.history, not history: the folder is mapped to that name when quaver is installed")

from quaver.history.begun import RETRIES
from quaver.history.header import SCHEMA, UNCALIBRATED, Header
from quaver.history.lock import being_written
from quaver.history.reader import SnapshotReader, read_snapshot
from quaver.history.rewriting import Repaired, repair
from quaver.history.runs import Run
from quaver.history.snapshot import FILE_NAME, Snapshot
from quaver.history.storage import Storage
from quaver.history.writer import History

__all__ = [
    "FILE_NAME",
    "RETRIES",
    "SCHEMA",
    "UNCALIBRATED",
    "Header",
    "History",
    "Repaired",
    "Run",
    "Snapshot",
    "SnapshotReader",
    "Storage",
    "being_written",
    "read_snapshot",
    "repair",
]
