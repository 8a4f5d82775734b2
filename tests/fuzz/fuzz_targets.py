"""What is fuzzed: each reads bytes from anywhere. Whatever is wrong with them must be said by quaver itself."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import quaver
from quaver.adapters import AdapterOptions
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.build.builder import Builder  # noqa: F401 - loaded here, coverage guides the fuzzer
from quaver.adapters.litert.load.model_file import load_float_model  # noqa: F401
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.api.config.resolve import make_config

HERE = Path(__file__).parent
# Small valid files, and inputs that once failed.
CORPUS, FOUND = HERE / "corpus", HERE / "found"


def onnx(data: bytes) -> None:
    """ONNX intake."""
    OnnxAdapter.load(data, AdapterOptions()).close()


def litert(data: bytes) -> None:
    """LiteRT intake."""
    LiteRTAdapter.load(data, AdapterOptions()).close()


def snapshot(data: bytes) -> None:
    """The reader of history.snapshot."""
    _from_file(data, "history.snapshot", quaver.read_snapshot)


def settings(data: bytes) -> None:
    """The YAML file of a run."""
    _from_file(data, "quaver.yaml", make_config)


def _from_file(data: bytes, name: str, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        read(path)


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "onnx": onnx,
    "litert": litert,
    "snapshot": snapshot,
    "settings": settings,
}


def harmless(target: str, data: bytes) -> None:
    """Read the bytes; all that may come of it is an error of quaver's own."""
    try:
        TARGETS[target](data)
    except quaver.QuaverError:
        pass


def kept(target: str) -> list[Path]:
    """The files of a target, sound ones and others."""
    return sorted([*(CORPUS / target).glob("*"), *(FOUND / target).glob("*")])
