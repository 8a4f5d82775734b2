"""Models by name: where each comes from, how it is judged, and how it is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from benchmarks.models.bench import Bench, Keep, Score, accuracy, assemble, everything


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a model comes from and how it is judged.

    Attributes:
        module: has a function of the model's name that prepares it; imported only for that, as it needs packages.
        task: what the model does, in a few words.
        score: of its outputs and the labels.
        model: the file with the float model.
        batch: samples run at once in an evaluation; any such part of them can be scored by itself. At 0 each sample
            is a feed of its own; see `Evaluation`.
        keep: what is kept of the outputs of a call.
    """

    module: str
    task: str
    score: Score = accuracy
    model: str = "model.onnx"
    batch: int = 16
    keep: Keep = everything


@dataclass(frozen=True, slots=True)
class Registry:
    """Models of a package, each prepared by one of its modules."""

    package: str
    entries: Mapping[str, Entry]

    def find(self, name: str) -> Entry:
        """The entry of a model."""
        if name not in self.entries:
            near = get_close_matches(name, self.entries, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown model {name!r}; {hint}there are {', '.join(self.entries)}")
        return self.entries[name]

    def load(self, name: str, verify: bool = False) -> Bench:
        """A model with its data, prepared if it was not yet; `verify` compares the hashes of its files."""
        entry = self.find(name)

        def prepare(folder: Path) -> None:
            try:
                module = importlib.import_module(f"{self.package}.{entry.module}")
            except ModuleNotFoundError as error:
                raise RuntimeError(
                    f"{name} cannot be prepared without {error.name}: pip install -r benchmarks/requirements.txt"
                ) from error
            getattr(module, name)(folder)

        return assemble(name, prepare, entry.score, entry.batch, entry.model, verify, entry.keep)
