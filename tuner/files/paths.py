"""Check and expand paths that users write."""

from __future__ import annotations

import os
import stat

from quaver.errors import SettingsError
from quaver.types import ModelLike

# The largest number of bytes of a name in a path on Linux and macOS.
_MAX_NAME_BYTES = 255


def unwritable(place: str) -> str | None:
    """Return why a path cannot name a file; None if it can."""
    if "\0" in place:
        return "holds a NUL"
    try:
        parts = [part.encode() for part in place.split("/")]
    except UnicodeEncodeError:
        return "is no UTF-8 text"
    longest = max(map(len, parts))
    return f"has a name of {longest} bytes, and {_MAX_NAME_BYTES} are the most" if longest > _MAX_NAME_BYTES else None


def expanded(place: ModelLike) -> ModelLike:
    """Return a path with `~` and `~user` expanded as a shell does; anything else is returned unchanged."""
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
    """Refuse a path that is no regular file before it is opened, because reading a pipe or a device may never end.

    A path that does not exist or is not accessible is accepted, because opening it gives a better error.

    Args:
        place: the path, which may be a link to a file.
        what: what is read from it, for the message, such as "the calibration data".
        error: the exception to raise.
        folders: whether a folder is accepted, too.
    """
    try:
        kind = stat.S_IFMT(os.stat(place).st_mode)
    except (OSError, ValueError):
        return
    if kind == stat.S_IFREG or (folders and kind == stat.S_IFDIR):
        return
    advice = "" if kind == stat.S_IFDIR else ": write the data to a regular file first, and pass that"
    raise error(
        f"{what} must be a regular file{' or a folder' if folders else ''}, and {os.fspath(place)!r} is "
        f"{_KINDS.get(kind, 'something else')}{advice}"
    )
