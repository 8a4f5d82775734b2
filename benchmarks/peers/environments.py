"""Virtual environments of the tools, made once under the cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.models.fetch import CACHE

READY = "ready"


@dataclass(frozen=True, slots=True)
class Environment:
    """What to install for a tool; nothing means the environment that runs this."""

    name: str
    requirements: tuple[str, ...] = ()

    def python(self) -> Path:
        """The interpreter, after installing what is missing.

        Raises:
            subprocess.CalledProcessError: when something cannot be installed; its `stderr` tells.
        """
        if not self.requirements:
            return Path(sys.executable)
        digest = hashlib.sha256("\n".join(self.requirements).encode()).hexdigest()[:8]
        folder = CACHE / "environments" / f"{self.name}-{digest}"
        if not (folder / READY).exists():
            print(f"preparing the environment of {self.name}", flush=True)
            venv.create(folder, clear=True, with_pip=True)
            command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *self.requirements]
            subprocess.run(command, check=True, capture_output=True, text=True)
            (folder / READY).touch()
        return folder / "bin" / "python"

    def versions(self) -> dict[str, str]:
        """The packages in it that matter, with their versions."""
        names = ["onnx", "onnxruntime", "numpy", *(text.partition("==")[0] for text in self.requirements)]
        code = (
            "import importlib.metadata as m\n"
            f"for n in {sorted(set(names))!r}:\n try: print(n, m.version(n))\n except m.PackageNotFoundError: pass"
        )
        lines = subprocess.run([str(self.python()), "-c", code], check=True, capture_output=True, text=True).stdout
        return dict(line.split() for line in lines.splitlines())


QUAVER = Environment("quaver")
NEURAL_COMPRESSOR = Environment(
    "neural_compressor",
    ("neural-compressor==2.6", "onnx==1.16.2", "onnxruntime==1.18.1", "numpy==1.26.4", "six==1.17.0"),
)
NNCF = Environment("nncf", ("nncf==3.4.0", "openvino==2026.4.1", "numpy==2.4.6"))
QUANTIZE_STATIC = Environment("quantize_static", ("onnxruntime==1.31.1", "onnx==1.23.2", "numpy==2.4.6", "sympy"))
