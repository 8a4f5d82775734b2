"""Load what the command line names: functions in Python files, and files of calibration data."""

from __future__ import annotations

import importlib.util
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from quaver.adapters.generation import GenerationFolder, text_batches
from quaver.errors import CalibrationError, SettingsError
from quaver.files.paths import check_regular, expanded
from quaver.suggestions import hint

_modules: dict[Path, ModuleType] = {}
# Texts that are read from a file: more take long, and rank models alike. Judgement.
MAX_TEXT_BATCHES = 256
_BROKEN = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile)


def is_reference(text: object) -> bool:
    """Return True for `file.py:name`."""
    return isinstance(text, str) and text.rpartition(":")[0].endswith(".py")


def load(reference: str, flag: str) -> Any:
    """Load the object of `file.py:name`, which may import files in the same folder."""
    place, _, name = reference.rpartition(":")
    if not is_reference(reference) or not name:
        example = reference if reference.endswith(".py") else "my_file.py"
        raise SettingsError(f"{flag} takes FILE.py:NAME, such as {example}:my_function, not {reference!r}")
    module = _import(Path(expanded(place)), flag)
    if not hasattr(module, name):
        names = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise SettingsError(f"{flag}: there is no {name!r} in {place!r}; {hint(name, names)}")
    return getattr(module, name)


def load_function(reference: str, flag: str) -> Callable[..., Any]:
    """Load a function of `file.py:name`."""
    function = load(reference, flag)
    if not callable(function):
        raise SettingsError(f"{flag}: {reference!r} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def where(error: BaseException) -> str:
    """Return the line of the user's file that raised an error; empty if none did."""
    cause: BaseException | None = error
    while cause is not None:
        for frame in reversed(traceback.extract_tb(cause.__traceback__)):
            if Path(frame.filename) in _modules:
                return f"It came from {frame.filename}, line {frame.lineno}, in {frame.name}"
        cause = cause.__cause__
    return ""


def calibration(text: str, flag: str = "--calib", model: str | None = None) -> Any:
    """Load calibration or other data from an .npz, an .npy, a folder of them, or `file.py:name`.

    Args:
        text: what the flag says.
        flag: the flag, for messages.
        model: the float model. If it is a folder with a tokenizer, a .txt file is data, too.
    """
    if is_reference(text):
        return _from_python(text, flag)
    path = Path(expanded(text))
    check_regular(path, f"{flag}: the data", CalibrationError, folders=True)
    if path.is_dir():
        return Folder(path, flag)
    if not path.exists():
        raise CalibrationError(f"{flag}: there is nothing at {text!r}")
    if path.suffix == ".txt" and model is not None and GenerationFolder.of(expanded(model)) is not None:
        return text_batches(expanded(model), [_read_text(path, flag)], limit=MAX_TEXT_BATCHES)
    if path.suffix not in (".npz", ".npy"):
        raise CalibrationError(
            f"{flag} takes an .npz or .npy file, a folder of them, or FILE.py:FUNCTION, not {text!r}"
        )
    return read_arrays(path, flag)


def lines(text: str, flag: str) -> list[str | None]:
    """Read one name per sample from the lines of a text file; an empty line is None."""
    check_regular(expanded(text), f"{flag}: the list of names")
    content = _read_text(Path(expanded(text)), flag)
    return [line.strip() or None for line in content.splitlines()]


def _read_text(path: Path, flag: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{flag} takes a text file in UTF-8; {str(path)!r}: {error}") from error


def read_arrays(path: Path, flag: str = "--calib") -> Any:
    """Read the arrays of an .npz by name; a file with one array gives that array."""
    check_regular(path, f"{flag}: the data", CalibrationError)
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except _BROKEN as error:
        raise CalibrationError(f"{flag}: {str(path)!r} cannot be read as {path.suffix[1:]}: {error}") from error
    if not arrays:
        raise CalibrationError(f"{flag}: {str(path)!r} holds no array")
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays


class Folder(Iterable[Any]):
    """A folder of .npz and .npy files, each a batch, in the order of their names."""

    def __init__(self, path: Path, flag: str = "--calib") -> None:
        self._flag = flag
        self._files = sorted(file for file in path.iterdir() if file.suffix in (".npz", ".npy"))
        if not self._files:
            raise CalibrationError(f"{flag}: the folder {str(path)!r} holds no .npz and no .npy file")
        for file in self._files:
            check_regular(file, f"{flag}: the data", CalibrationError)

    def __iter__(self) -> Iterator[Any]:
        return (read_arrays(file, self._flag) for file in self._files)


def _from_python(reference: str, flag: str) -> Any:
    data = load(reference, flag)
    if not callable(data) or (isinstance(data, Iterable) and not isinstance(data, type)):
        return data
    try:
        return data()
    except Exception as error:
        raise CalibrationError(f"{flag}: {reference} raised {type(error).__name__}: {error}") from error


def _import(path: Path, flag: str) -> ModuleType:
    check_regular(path, f"{flag}: the Python file")
    if not path.is_file():
        raise SettingsError(f"{flag}: there is no file {str(path)!r}")
    path = path.resolve()
    if path in _modules:
        return _modules[path]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # Registered under its own name, unless that is taken, so that files which import it get the same module.
    name = path.stem if path.stem not in sys.modules else f"quaver_user_{len(_modules)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = _modules[path] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        guard = ". Move code that only a script should run under `if __name__ == '__main__':`"
        raise SettingsError(
            f"{flag}: {str(path)!r} raised {type(error).__name__} when it was imported: {error}"
            f"{guard if isinstance(error, SystemExit) else ''}"
        ) from error
    return module
