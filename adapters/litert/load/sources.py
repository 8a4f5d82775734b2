"""The forms of a TensorFlow model, recognized without importing TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from quaver.errors import ModelError
from quaver.extras import install_command
from quaver.types import ModelLike

ACCEPTED_FORMS = (
    "a Keras model, a .keras or .h5 file, a SavedModel folder, a frozen .pb graph, a tf.function, "
    "or a float .tflite as path or bytes"
)
LITE = (".tflite", ".lite")
KERAS = (".keras", ".h5", ".hdf5")
GRAPH = (".pb",)
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
# The place of the file identifier in a flatbuffer.
MARK = slice(4, 8)
IDENTIFIER = b"TFL3"
_MODULES = ("keras", "tensorflow", "tf_keras")


@dataclass(frozen=True)
class FrozenGraph:
    """A frozen graph whose inputs and outputs are named, where they cannot be inferred.

    Attributes:
        path: the .pb file.
        inputs: names of nodes to feed; all placeholders if empty.
        outputs: names of nodes to read; all that no other node reads if empty.
    """

    path: str | os.PathLike[str]
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()


@dataclass(frozen=True)
class Signature:
    """One signature of a SavedModel folder or a .tflite that has several.

    Attributes:
        model: the folder, or the .tflite as path or bytes.
        name: the signature; without one it is `serving_default`.
    """

    model: ModelLike
    name: str


def accepts(model: ModelLike) -> bool:
    """Return True if this is one of the forms, by its name and its first bytes alone."""
    if isinstance(model, FrozenGraph | Signature):
        return True
    if isinstance(model, bytes | bytearray | memoryview):
        return is_lite(model)
    if isinstance(model, str | os.PathLike):
        path = Path(os.fspath(model))
        return path.suffix.lower() in LITE + KERAS + GRAPH or is_saved_model(path)
    return any(base.__module__.partition(".")[0] in _MODULES for base in type(model).__mro__)


def is_lite(content: bytes | bytearray | memoryview) -> bool:
    """Return True if these bytes are a .tflite file."""
    return bytes(content[MARK]) == IDENTIFIER


def is_saved_model(path: Path) -> bool:
    """Return True if this is a SavedModel folder."""
    return path.is_dir() and any((path / name).is_file() for name in SAVED_MODEL)


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a model.

    Raises:
        ModelError: if there is nothing at the path.
    """
    model_path = Path(os.fspath(path))
    if not model_path.exists():
        saved = model_path.with_suffix(".tflite")
        hint = f"; there is {str(saved)!r}, which is what a quantized model is saved as" if saved.exists() else ""
        raise ModelError(f"no model at {str(model_path)!r}{hint}")
    return model_path


def need(packages: Sequence[str], what: str) -> None:
    """Check that packages are installed.

    Raises:
        ModelError: if one is missing; the message says how to install it.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"{what} needs {' and '.join(missing)}, which is not installed: {install_command('tensorflow')}"
        )
