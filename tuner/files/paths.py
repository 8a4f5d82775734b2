"""Paths as a user writes them."""

from __future__ import annotations

import os
import stat
from typing import Any

from quaver.errors import SettingsError

# A name in a path has no more bytes than this on any usual system.
_MOST_BYTES = 255


def unwritable(place: str) -> str | None:
    """Why a path cannot be a file's or cannot be written down, in words; None if it can."""
    if "\0" in place:
        return "holds a NUL"
    try:
        parts = [part.encode() for part in place.split("/")]
    except UnicodeEncodeError:
        return "is no UTF-8 text"
    longest = max(map(len, parts))
    return f"has a name of {longest} bytes, and {_MOST_BYTES} are the most" if longest > _MOST_BYTES else None


def expanded(place: Any) -> Any:
    """A path with `~` and `~user` replaced, as a shell does it. What is no path is left as it is."""
    return os.path.expanduser(place) if isinstance(place, str | os.PathLike) else place


_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def check_regular(
    place: str | os.PathLike[str], what: str, error: type[Exception] = SettingsError, folders: bool = False
) -> None:
    """Refuse what is no regular file before it is opened: reading a pipe or a device may never end.

    Nothing is said of a path where there is nothing, or that cannot be looked at: opening it says more.

    Args:
        place: the path, which may be a link to a file.
        what: what is read from it, for the message, such as "the calibration data".
        error: the exception to raise.
        folders: whether a folder will do, too.
    """
    try:
        kind = stat.S_IFMT(os.stat(place).st_mode)
    except (OSError, ValueError):
        return
    if kind == stat.S_IFREG or (folders and kind == stat.S_IFDIR):
        return
    advice = "" if kind == stat.S_IFDIR else ": write the data to a regular file first, and give that"
    raise error(
        f"{what} must be a regular file{' or a folder' if folders else ''}, and {os.fspath(place)!r} is "
        f"{_KINDS.get(kind, 'something else')}{advice}"
    )
