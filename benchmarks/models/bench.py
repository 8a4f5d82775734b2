"""What a benchmark model comes with: calibration data and two evaluations, one to tune on and one held out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.models import manifest
from benchmarks.models.fetch import CACHE

Array = NDArray[Any]
Arrays = Mapping[str, Array]
# One value for each sample; a list where their shapes differ.
Values = Array | list[Array]
Score = Callable[[Any, Any], float]
Keep = Callable[[Any], Any]
SHAPES = ".shapes"


def everything(outputs: Any) -> Any:
    """What a call of the model gave: an array, or a list of them if the model has several outputs."""
    return outputs


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An `eval_func`: runs the model over the samples and scores its outputs against the labels.

    Attributes:
        inputs: by the name of the input.
        labels: as many as samples.
        score: of what was kept and the labels; the more, the better.
        batch: samples run at once. If it is 0, each sample is a feed of its own: it has no axis for the batch but what
            the model demands, samples may differ in shape, and `score` gets a list with what was kept of each.
        keep: what is kept of the outputs of a call, where that is much less than all of it.
    """

    inputs: Mapping[str, Values]
    labels: Values
    score: Score
    batch: int
    keep: Keep = everything

    def __call__(self, model: Any) -> float:
        """Score a model."""
        return self.on(model, self.starts)

    @property
    def starts(self) -> range:
        """Return where each batch of samples begins."""
        return range(0, len(self.labels), self.batch or 1)

    def on(self, model: Any, starts: Sequence[int]) -> float:
        """Score a model on the batches that begin at these samples."""
        outputs = [self.keep(model(self.feed(start))) for start in starts]
        if len(starts) == len(self.starts):
            labels = self.labels
        else:
            labels = [label for start in starts for label in self.labels[start : start + (self.batch or 1)]]
            labels = labels if isinstance(self.labels, list) else np.asarray(labels)
        return self.score(outputs if self.batch == 0 else np.concatenate(outputs), labels)

    def feed(self, start: int) -> dict[str, Array]:
        """Return the batch of samples that begins at this sample."""
        part = slice(start, start + self.batch) if self.batch else start
        return {name: np.asarray(values[part]) for name, values in self.inputs.items()}


@dataclass(frozen=True, slots=True)
class Bench:
    """A real model with its data.

    Attributes:
        name: what `load` takes.
        model_path: the float model.
        calib: calibration batches of one sample, so that latency is measured at batch size 1.
        eval_func: scores a model on the first half of the evaluation samples.
        held_out_eval_func: scores it on the second half, which no decision may look at.
        samples: how many are in each half.
    """

    name: str
    model_path: Path
    calib: Sequence[Arrays]
    eval_func: Evaluation
    held_out_eval_func: Evaluation
    samples: int


def accuracy(outputs: Array, labels: Array) -> float:
    """The share of samples whose largest output is the right one."""
    return float((outputs.argmax(axis=-1) == labels).mean())


def assemble(
    name: str,
    prepare: Callable[[Path], None],
    score: Score = accuracy,
    batch: int = 16,
    model: str = "model.onnx",
    verify: bool = False,
    keep: Keep = everything,
) -> Bench:
    """Read what `prepare` wrote into the cache, after calling it if it was not called before.

    It writes the file called `model`, and `data.npz` by means of `write`.
    Sizes of the files are checked; their hashes too with `verify`.
    """
    folder = CACHE / "prepared" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            print(f"preparing {name}", flush=True)
            made = Path(temporary) / name
            made.mkdir()
            prepare(made)
            manifest.record(made)
            os.rename(made, folder)  # so that what is there is complete
    manifest.check(folder, hashes=verify)
    with np.load(folder / "data.npz") as data:
        calib, samples = _part(data, "calib."), _part(data, "eval.")
        labels = _part(data, "labels")[""]
    half = len(labels) // 2
    first, second = (
        Evaluation({key: values[part] for key, values in samples.items()}, labels[part], score, batch, keep)
        for part in (slice(half), slice(half, 2 * half))
    )
    return Bench(name, folder / model, list(feeds(calib, min(batch, 1))), first, second, half)


def feeds(inputs: Mapping[str, Values], batch: int) -> Iterator[dict[str, Array]]:
    """Return an input of the model with a number of samples at once; 0 means one sample without a batch axis."""
    for start in range(0, len(next(iter(inputs.values()))), batch or 1):
        part = slice(start, start + batch) if batch else start
        yield {name: np.asarray(values[part]) for name, values in inputs.items()}


def write(folder: Path, calib: Mapping[str, Values], samples: Mapping[str, Values], labels: Values) -> None:
    """Write the data that `assemble` reads."""
    named: dict[str, Values] = {f"calib.{key}": values for key, values in calib.items()}
    named |= {f"eval.{key}": values for key, values in samples.items()}
    arrays: dict[str, Any] = {}
    for key, values in (named | {"labels": labels}).items():
        arrays |= _flat(key, values) if isinstance(values, list) else {key: values}
    np.savez_compressed(folder / "data.npz", **arrays)


def _flat(key: str, values: list[Array]) -> dict[str, Array]:
    """Arrays of different shapes, one behind the other, and their shapes."""
    return {
        key: np.concatenate([np.ravel(value) for value in values]),
        f"{key}{SHAPES}": np.array([value.shape for value in values]),
    }


def _part(data: Mapping[str, Array], prefix: str) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for key in data:
        if key.startswith(prefix) and not key.endswith(SHAPES):
            shapes = data.get(key + SHAPES)
            found[key.removeprefix(prefix)] = data[key] if shapes is None else _pieces(data[key], shapes)
    return found


def _pieces(flat: Array, shapes: Array) -> list[Array]:
    ends = np.cumsum(shapes.prod(axis=1, dtype=np.int64))
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
