"""Cache the times of models on this machine between runs.

Measured times are never twice the same. Where two variants of a model are about as fast, repeated runs could pick
either. With the cache, the same call on the same model, machine and versions gives the same model again, even if the
machine is busy by now, and starts sooner.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import platform
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter
from quaver.engine.compatibility import versions_of
from quaver.engine.timing.time_model import from_dict
from quaver.files.atomic import write_safely
from quaver.files.paths import check_regular
from quaver.ops import QuantConfig
from quaver.types import PlainDict, PlainMapping

log = logging.getLogger(__name__)

# The environment variable that names another folder than the user's cache folder.
FOLDER_VARIABLE = "QUAVER_CACHE"
# The number of models in the cache; those that were not used for longest are removed first. Judgement.
MAX_MODELS = 256
# The size of the largest file that is read. Judgement: files of large models have about 1 MB.
MAX_BYTES = 32 * 2**20


class TimingCache:
    """Measurements of one model on this machine, in a JSON file. Without a path nothing is cached.

    A file that cannot be read counts as empty, and one that cannot be written is skipped: it is only a cache.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._measurements: dict[str, PlainDict] | None = None

    def get(self, name: str, key: str) -> Any:
        """Return a measurement as it was put; None if there is none."""
        if self._measurements is None:
            self._measurements = self._read()
        return self._measurements.get(name, {}).get(key)

    def put(self, name: str, measurements: PlainMapping) -> None:
        """Add measurements to those in the file, which another run may have extended meanwhile."""
        if self._path is None:
            return
        self._measurements = self._read()
        self._measurements.setdefault(name, {}).update(measurements)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_safely(self._path, [json.dumps(self._measurements).encode()])
            _remove_oldest(self._path.parent)
        except OSError as error:
            log.debug("timings are not cached: %s", error)

    def _read(self) -> dict[str, PlainDict]:
        if self._path is None:
            return {}
        check_regular(self._path, f"the timing cache (a file in the folder that {FOLDER_VARIABLE} names)")
        try:
            if self._path.stat().st_size > MAX_BYTES:
                return {}
            content = json.loads(self._path.read_bytes())
            os.utime(self._path)
        except (OSError, ValueError, RecursionError):
            return {}
        is_valid = isinstance(content, dict) and all(isinstance(part, dict) for part in content.values())
        return content if is_valid else {}


def timing_cache(adapter: Adapter, *options: object) -> TimingCache:
    """Return the cache of a model on the batch that is timed; `options` are those that change the built model."""
    if not adapter.probe_samples:
        return TimingCache(None)
    shapes = {name: [list(values.shape), str(values.dtype)] for name, values in adapter.timing_feed.items()}
    identity = [adapter.name, adapter.fingerprint, versions_of(adapter), machine(), shapes, options]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
    folder = cache_folder()
    return TimingCache(None if folder is None else folder / "timings" / f"{digest[:32]}.json")


def is_valid_time(name: str, value: Any, config: QuantConfig) -> bool:
    """Return True if a cached value is a measurement: other programs may have written the file."""
    if name == "speed":
        return isinstance(value, float) and 0 < value < math.inf
    try:
        return 0 < from_dict(value).predict(config) < math.inf
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False


def cache_folder() -> Path | None:
    """Return the cache folder of this user; None where there is none."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder)
    with contextlib.suppress(RuntimeError):  # the user has no home folder
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quaver"
    return None


def machine() -> list[str]:
    """Return what distinguishes machines of different speed: the processor as the system describes it."""
    facts = [platform.machine(), platform.system(), str(os.cpu_count())]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        wanted = ("model name", "cpu family", "model", "stepping", "flags", "cache size", "Features", "CPU part")
        facts += [line for line in lines if line.split("\t")[0].split(":")[0].strip() in wanted]
    return facts


def _remove_oldest(folder: Path) -> None:
    """Remove the files that were not used for longest, if there are too many."""
    with contextlib.suppress(OSError):
        files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[: max(len(files) - MAX_MODELS, 0)]:
            path.unlink(missing_ok=True)
