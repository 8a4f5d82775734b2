"""Names of Neural Compressor without a counterpart: an import of one fails at once and says what to write instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from typing import Any, NoReturn

PACKAGE = "quaver.neural_compressor"
_ONLY_QUANTIZES = "quaver quantizes after training and does nothing else"
_VERSION_3 = (
    "this package has the names of versions 1 and 2; write quaver.fit(model, calib_dataloader=..., eval_func=...)"
)
# Modules, and why they are absent.
MODULES: Mapping[str, str] = {
    **dict.fromkeys(("training", "compression", "pruner", "distillation"), _ONLY_QUANTIZES),
    **dict.fromkeys(("torch", "tensorflow", "onnxrt", "common", "jax"), _VERSION_3),
    "mix_precision": "quaver.fit(...) mixes fp32 and int8 for each op",
    "adaptor": "in a strategy, self.adaptor inspects tensors and self.probe makes all other measurements",
    "objective": "write objective='latency', 'size' or a class with @quaver.register_objective",
    "conf": "pass the YAML file, or write PostTrainingQuantConfig(...)",
    "profiling": "write quaver.profile(model), or benchmark.fit(model, BenchmarkConfig(diagnosis=True))",
}  # fmt: skip
_A_METRIC = "write a class with reset(), update(preds, labels) and result(), or an eval_func"
_AN_ITERABLE = "pass any iterable of (input, label) batches, such as DataLoader(dataset=...)"
_COMMON = (
    "assign the model itself for common.Model(model), quaver.neural_compressor.data.DataLoader(dataset=...) for "
    "common.DataLoader(...), and an eval_func for common.Metric"
)
# Names in modules that exist, and what to write instead.
NAMES: Mapping[str, Mapping[str, str]] = {
    "": {
        "QuantizationAwareTrainingConfig": _ONLY_QUANTIZES, "WeightPruningConfig": _ONLY_QUANTIZES,
        "DistillationConfig": _ONLY_QUANTIZES, "MixedPrecisionConfig": MODULES["mix_precision"],
        "set_workspace": "pass workspace= to quantization.fit", "set_random_seed": "pass seed= to quantization.fit",
        "Metric": _A_METRIC, "options": "pass workspace= and seed= to quantization.fit",
    },
    "config": {
        "QuantizationAwareTrainingConfig": _ONLY_QUANTIZES, "WeightPruningConfig": _ONLY_QUANTIZES,
        "DistillationConfig": _ONLY_QUANTIZES, "MixedPrecisionConfig": MODULES["mix_precision"],
        "set_workspace": "pass workspace= to quantization.fit", "set_random_seed": "pass seed= to quantization.fit",
        "options": "pass workspace= and seed= to quantization.fit",
    },
    "data": dict.fromkeys(
        ("Datasets", "DATASETS", "datasets", "DATALOADERS", "TRANSFORMS", "transforms", "Postprocess", "filters"),
        _AN_ITERABLE,
    ),
    "experimental": {
        "common": _COMMON, "data": _COMMON, "metric": _A_METRIC,
        "Benchmark": "write quaver.profile(model)",
        **dict.fromkeys(("Pruning", "Distillation", "ModelConversion", "Component", "Scheduler"), _ONLY_QUANTIZES),
        "MixedPrecision": MODULES["mix_precision"],
        "Graph_Optimization": "quaver optimizes the float graph of every run",
    },
    "metric": dict.fromkeys(("METRICS", "Metric", "BaseMetric", "COCOmAPv2", "SquadF1", "GLUE", "topk"), _A_METRIC),
    "model": {
        "onnx_model": "pass the onnx.ModelProto or the path itself",
        "tensorflow_model": "pass the path of the graph itself",
        "torch_model": "export the module with torch.onnx.export, and pass the file",
    },
    "utils.create_obj_from_config": dict.fromkeys(
        ("create_dataset", "create_eval_func", "create_train_func", "get_metrics", "get_preprocess"), _AN_ITERABLE
    ),
    "utils.utility": {
        "set_random_seed": "pass seed= to quantization.fit", "set_workspace": "pass workspace= to quantization.fit",
        "LazyImport": "import the package itself",
    },
}  # fmt: skip


class AbsentModules(MetaPathFinder):
    """Refuses to import a module of Neural Compressor that the bridge lacks. Python asks it after all others."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        """Raise if the module is one of `MODULES`."""
        advice = MODULES.get(fullname.removeprefix(f"{PACKAGE}.")) if fullname.startswith(PACKAGE) else None
        if advice is not None:
            raise ModuleNotFoundError(f"there is no {fullname}: {advice}", name=fullname)


def refuse_absent_modules() -> None:
    """Make imports of absent modules say what to write instead."""
    if not any(isinstance(finder, AbsentModules) for finder in sys.meta_path):
        sys.meta_path.append(AbsentModules())


def absent_names(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module, which explains the names that it lacks."""
    place = module.removeprefix(PACKAGE).removeprefix(".")

    def explain(name: str) -> NoReturn:
        advice = NAMES.get(place, {}).get(name) or (MODULES.get(name) if not place else None)
        if advice is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise ImportError(f"there is no {name} in {module}: {advice}", name=name)

    return explain
