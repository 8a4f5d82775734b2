"""Folders of onnxruntime-genai: a decoder with a cache, genai_config.json, and the files of its tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from quaver.errors import BuildError, CalibrationError, MissingPackageError, ModelError
from quaver.extras import install_command
from quaver.files.atomic import write_safely
from quaver.types import Array, CalibrationData, ModelLike, PlainDict

CONFIG, TOKENIZER = "genai_config.json", "tokenizer.json"
# Tokens of a text that are read at once. Judgement: perplexity of longer texts ranks models alike, and takes longer.
TEXT_LENGTH = 128
# Bytes that are copied at once.
_PIECE = 2**22


@dataclass(frozen=True, slots=True)
class GenerationFolder:
    """A folder that onnxruntime-genai runs.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def of(cls, model: ModelLike) -> GenerationFolder | None:
        """Return the folder that a model is; None for any other model."""
        if not isinstance(model, str | os.PathLike):
            return None
        path = Path(os.fspath(model))
        return cls(path) if (path / CONFIG).is_file() else None

    @property
    def model_file(self) -> Path:
        """The file of the decoder.

        Raises:
            ModelError: the folder has none, or one in several parts.
        """
        name = self._decoder.get("filename")
        path = self.path / str(name)
        if path.resolve().parent != self.path.resolve() or not path.is_file():
            raise ModelError(f"{str(self.path / CONFIG)!r} names the model {name!r}, which is no file in its folder")
        return path

    @property
    def head_size(self) -> int | None:
        """The last dimension of the cache; None if the configuration does not tell it."""
        size = self._decoder.get("head_size")
        return size if isinstance(size, int) and size > 0 else None

    @property
    def _decoder(self) -> PlainDict:
        try:
            config: PlainDict = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
            decoder: PlainDict = dict(config["model"]["decoder"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{str(self.path / CONFIG)!r} names no decoder ({type(error).__name__}: {error}): other kinds of "
                "models are not supported"
            ) from error
        return decoder

    def write(self, target: Path, save: Callable[[Path], Path], without: Iterable[str] = ()) -> Path:
        """Write a folder with another model and the same other files. The configuration comes last.

        Args:
            target: the new folder.
            save: writes the model to a path.
            without: names of files that only the float model needs.
        """
        model = self.model_file
        if target.resolve() == self.path.resolve():
            raise BuildError(f"{str(target)!r} is the folder of the float model: save to another one")
        if target.exists() and not target.is_dir():
            raise BuildError(f"{str(target)!r} is a file, and a model of onnxruntime-genai is a folder")
        target.mkdir(parents=True, exist_ok=True)
        save(target / model.name)
        skipped = {model.name, CONFIG, *without}
        names = [file.name for file in sorted(self.path.iterdir()) if file.is_file() and file.name not in skipped]
        for name in [*names, CONFIG]:
            with open(self.path / name, "rb") as content:
                write_safely(target / name, iter(lambda: content.read(_PIECE), b""))
        return target


def head_size(model: ModelLike) -> int | None:
    """Return the last dimension of the cache of a model in a folder of onnxruntime-genai; None if nothing tells it.

    Args:
        model: the folder, or the file in it.
    """
    folder = GenerationFolder.of(model)
    if folder is None and isinstance(model, str | os.PathLike):
        folder = GenerationFolder.of(Path(os.fspath(model)).parent)
    return None if folder is None else folder.head_size


def model_file(model: ModelLike) -> ModelLike:
    """Return the file of the decoder in a folder of onnxruntime-genai; any other model as it is."""
    folder = GenerationFolder.of(model)
    return model if folder is None else folder.model_file


def text_batches(
    folder: str | os.PathLike[str], texts: Iterable[str], length: int = TEXT_LENGTH, limit: int | None = None
) -> list[Array]:
    """Return texts as token numbers for calibration and metrics: arrays of [1, up to `length`].

    Args:
        folder: the folder of a model, with `tokenizer.json`.
        texts: the texts. Long ones are cut.
        length: largest number of tokens of an array.
        limit: largest number of arrays; None for all.

    Raises:
        MissingPackageError: the package `tokenizers` is not installed.
        CalibrationError: there is no tokenizer, or no text of two tokens.
    """
    if find_spec("tokenizers") is None:
        raise MissingPackageError(f"texts need the package tokenizers: {install_command('llm')}")
    from tokenizers import Tokenizer

    path = Path(os.fspath(folder)) / TOKENIZER
    if not path.is_file():
        raise CalibrationError(f"texts need {str(path)!r}, which is missing: pass token numbers as arrays")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    batches: list[Array] = []
    for text in texts:
        ids = np.array(tokenizer.encode(text).ids, np.int64)
        pieces = (ids[None, at : at + length] for at in range(0, len(ids), length))
        batches += [piece for piece in pieces if piece.size > 1]
        if limit is not None and len(batches) >= limit:
            return batches[:limit]
    if not batches:
        raise CalibrationError("the texts hold no two tokens in a row")
    return batches


def with_tokens(model: ModelLike, data: CalibrationData) -> CalibrationData:
    """Return calibration data with token numbers for texts, where the model is a folder with a tokenizer."""
    folder = GenerationFolder.of(model)
    if folder is None or not isinstance(data, list | tuple) or not all(isinstance(text, str) for text in data):
        return data
    return text_batches(folder.path, data)
