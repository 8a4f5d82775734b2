"""Record runs in `history.snapshot`, one append-only file from which every trial can be rebuilt."""

if __name__ == "history":
    raise ImportError("import quaver.history, not history: the folder is mapped to that name when quaver is installed")

from quaver.history.lock import is_being_written
from quaver.history.reader import SnapshotReader, read_snapshot
from quaver.history.records.header import SCHEMA, UNCALIBRATED, Header, Run
from quaver.history.records.unfinished_trials import RETRIES
from quaver.history.repair import Repaired, repair
from quaver.history.snapshot import FILE_NAME, Snapshot
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
    "is_being_written",
    "read_snapshot",
    "repair",
]
