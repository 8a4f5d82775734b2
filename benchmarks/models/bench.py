"""What a benchmark model comes with: calibration data and two evaluations, one to tune on and one held out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.models import manifest
from benchmarks.models.fetch import CACHE

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Score = Callable[[Array, Array], float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An `eval_func`: runs the model over the samples and scores its outputs against the labels."""

    inputs: Arrays
    labels: Array
    score: Score
    batch: int

    def __call__(self, model: Any) -> float:
        """Score a model."""
        starts = range(0, len(self.labels), self.batch)
        outputs = [
            model({name: values[start : start + self.batch] for name, values in self.inputs.items()})
            for start in starts
        ]
        return self.score(np.concatenate(outputs), self.labels)


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
) -> Bench:
    """Read what `prepare` wrote into the cache, after calling it if it was not called before.

    It writes the file called `model`, and `data.npz` with arrays called `calib.<input>`, `eval.<input>` and `labels`.
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
        labels = data["labels"]
    half = len(labels) // 2
    first = Evaluation({key: values[:half] for key, values in samples.items()}, labels[:half], score, batch)
    second = Evaluation(
        {key: values[half : 2 * half] for key, values in samples.items()}, labels[half : 2 * half], score, batch
    )
    count = len(next(iter(calib.values())))
    batches = [{key: values[index : index + 1] for key, values in calib.items()} for index in range(count)]
    return Bench(name, folder / model, batches, first, second, half)


def write(folder: Path, calib: Arrays, samples: Arrays, labels: Array) -> None:
    """Write the data that `assemble` reads."""
    named: dict[str, Any] = {f"calib.{key}": values for key, values in calib.items()}
    named |= {f"eval.{key}": values for key, values in samples.items()}
    np.savez_compressed(folder / "data.npz", labels=labels, **named)


def _part(data: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {key.removeprefix(prefix): data[key] for key in data if key.startswith(prefix)}
