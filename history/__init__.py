"""The room that remembers: `history.snapshot`, one append-only file from which every trial can be rebuilt."""

if __name__ == "history":
    raise ImportError("import quaver.history, not history: the folder is mapped to that name when quaver is installed")

from quaver.history.header import SCHEMA, Header
from quaver.history.reader import SnapshotReader, read_snapshot
from quaver.history.runs import Run
from quaver.history.snapshot import FILE_NAME, Snapshot
from quaver.history.storage import Storage
from quaver.history.writer import History

__all__ = ["FILE_NAME", "SCHEMA", "Header", "History", "Run", "Snapshot", "SnapshotReader", "Storage", "read_snapshot"]
