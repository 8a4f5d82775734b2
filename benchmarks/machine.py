"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    processor = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine()
    )
    packages = {name: version(name) for name in ("quaver", "onnxruntime", "onnx", "numpy")}
    return {"processor": processor, "cores": str(os.cpu_count()), "python": platform.python_version(), **packages}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
