"""What models took on this machine, kept between runs.

Times are measured, and never twice the same. Where two ways to run a model are about as fast, another moment would
choose the other. So that the same call gives the same model again, on a machine that is busy by now, too, what was
measured is kept for the next run on the same model, machine and versions; and that run begins sooner.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter
from quaver.engine.compatibility import versions_of
from quaver.files.atomic import write_safely
from quaver.files.paths import check_regular
from quaver.types import PlainDict, PlainMapping

log = logging.getLogger(__name__)

# The variable that names another folder than the user's own.
FOLDER = "QUAVER_CACHE"
# So many models are kept; those that were not used for longest go first.
MOST = 256
# A larger file is not one of these.
LARGEST = 32 * 2**20


class TimingCache:
    """Measurements of one model on this machine, in a file of builtins. Without a path nothing is kept.

    What cannot be read is measured anew, and what cannot be written is not kept: it is only a cache.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, PlainDict] | None = None

    def get(self, name: str, key: str) -> Any:
        """A measurement, as it was put; None if there is none."""
        if self._known is None:
            self._known = self._read()
        return self._known.get(name, {}).get(key)

    def put(self, name: str, found: PlainMapping) -> None:
        """Keep measurements, beside those that another run has kept meanwhile."""
        if self._path is None:
            return
        self._known = self._read()
        self._known.setdefault(name, {}).update(found)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_safely(self._path, [json.dumps(self._known).encode()])
            _make_room(self._path.parent)
        except OSError as error:
            log.debug("timings are not kept: %s", error)

    def _read(self) -> dict[str, PlainDict]:
        if self._path is None:
            return {}
        check_regular(self._path, f"the timing cache (a file in the folder that {FOLDER} names)")
        try:
            if self._path.stat().st_size > LARGEST:
                return {}
            known = json.loads(self._path.read_bytes())
            os.utime(self._path)
        except (OSError, ValueError, RecursionError):
            return {}
        right = isinstance(known, dict) and all(isinstance(part, dict) for part in known.values())
        return known if right else {}


def timing_cache(adapter: Adapter, *options: Any) -> TimingCache:
    """That of a model on the batch that is timed; `options` are those that change what is built of it."""
    if not adapter.probe_samples:
        return TimingCache(None)
    shapes = {name: [list(values.shape), str(values.dtype)] for name, values in adapter.timing_feed.items()}
    meant = [adapter.name, adapter.fingerprint, versions_of(adapter), machine(), shapes, options]
    digest = hashlib.sha256(json.dumps(meant, sort_keys=True, default=str).encode()).hexdigest()
    folder = cache_folder()
    return TimingCache(None if folder is None else folder / "timings" / f"{digest[:32]}.json")


def cache_folder() -> Path | None:
    """Where this user's programs keep what can be made again; None where there is no such place."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    with contextlib.suppress(RuntimeError):  # nobody's home
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quaver"
    return None


def machine() -> list[str]:
    """What tells one kind of machine from another, as far as its speed goes."""
    found = [platform.machine(), platform.system(), str(os.cpu_count())]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        wanted = ("model name", "cpu family", "model", "stepping", "flags", "cache size", "Features", "CPU part")
        found += [line for line in lines if line.split("\t")[0].split(":")[0].strip() in wanted]
    return found


def _make_room(folder: Path) -> None:
    """Remove the files that were not used for longest, if there are too many."""
    with contextlib.suppress(OSError):
        files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[: max(len(files) - MOST, 0)]:
            path.unlink(missing_ok=True)
