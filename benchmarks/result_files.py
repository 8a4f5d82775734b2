"""Result files of the benchmarks: the rows of a table, each with the measurement that it comes from.

Every script writes `benchmarks/results/NAME.json` with `write`. The file lists its measurements: command, commit, date,
machine and versions. Each row names one of them by its number under `measured`. So rows of different days or machines
can stand in one file, and nobody has to guess which figures belong together. `benchmarks.tables` writes the tables of
the documentation from these files.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from quaver.processors import this_processor

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("quaver", "onnxruntime", "onnx", "numpy")

Row = dict[str, Any]


def machine(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the processor, the number of cores, and the versions of Python and of the packages that matter."""
    processor = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine()
    )
    versions = {name: _version(name) for name in (*PACKAGES, *packages)}
    return {
        "processor": processor,
        "int8": ", ".join(this_processor().int8),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **versions,
    }


def measurement(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Return the command, commit, date and machine of the figures that this process takes."""
    return {
        "command": _command(),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(packages),
    }


def commit() -> str:
    """Return the commit of this tree, marked "-dirty" where code differs from it.

    Result files and pages do not count: the benchmark before this one has just written them.
    """
    name = _git("describe", "--always", "--exclude=*") or "unknown"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results", ":!docs/*.md")
    return f"{name}-dirty" if changed else name


def read(path: str | Path) -> dict[str, Any]:
    """Return the content of a result file, or an empty one if there is none.

    Args:
        path: the file, or its name in `benchmarks/results` without the suffix.
    """
    path = _path(path)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"measurements": [], "rows": []}


def write(
    path: str | Path,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    replaces: Iterable[str] | None = None,
    packages: Iterable[str] = (),
    **notes: Any,
) -> Path:
    """Write the rows that were measured now, and return the path.

    Args:
        path: the file, or its name in `benchmarks/results` without the suffix.
        title: a line that says which question the figures answer.
        rows: the rows that this process measured.
        replaces: the columns by which an earlier row is recognised as the same. Earlier rows with other values stay,
            with their measurement. By default, no earlier row stays.
        packages: further packages whose versions matter.
        **notes: entries of the file beside title, measurements and rows.
    """
    path = _path(path)
    fresh = [dict(row) for row in rows]
    earlier = _earlier(read(path), fresh, list(replaces)) if replaces is not None else []
    measurements: list[Any] = []
    for row, source in [*earlier, *((row, measurement(packages)) for row in fresh)]:
        if source not in measurements:
            measurements.append(source)
        row["measured"] = measurements.index(source)
    content = {"title": title, **notes, "measurements": measurements, "rows": [*(row for row, _ in earlier), *fresh]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(content), encoding="utf-8")
    return path


def rows_of(path: str | Path) -> list[Row]:
    """Return the rows of a result file, without the numbers of their measurements."""
    return [{key: value for key, value in row.items() if key != "measured"} for row in read(path)["rows"]]


def _earlier(content: Mapping[str, Any], fresh: Sequence[Row], keys: Sequence[str]) -> list[tuple[Row, Any]]:
    again = {tuple(str(row.get(key)) for key in keys) for row in fresh}
    return [
        (row, content["measurements"][row["measured"]])
        for row in content["rows"]
        if tuple(str(row.get(key)) for key in keys) not in again
    ]


def _text(content: Mapping[str, Any]) -> str:
    """Write one line per row, which keeps the file short and its changes easy to read."""
    parts = []
    for key, value in content.items():
        if key == "rows":
            lines = ",\n  ".join(json.dumps(_plain(row), allow_nan=False) for row in value)
            parts.append(f' "rows": [\n  {lines}\n ]')
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(_plain(value), allow_nan=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _plain(value: Any) -> Any:
    """Turn numbers of numpy into plain ones, and what is not a finite number into null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _path(path: str | Path) -> Path:
    return RESULTS / f"{path}.json" if isinstance(path, str) else path


def _command() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).name
    # A path of this machine says nothing on another one.
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return " ".join(["python -m" if spec is not None else "python", name, *map(shlex.quote, words)])


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
