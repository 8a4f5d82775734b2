"""Translate the settings of Neural Compressor (1.x and 2.x) into settings of quaver.

Keys that both have (`tuning.accuracy_criterion.relative`, `op_name_dict`, ...) are left for quaver's own reader. Every
other key becomes a setting, or an error that says what to use instead; none is skipped silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from quaver.api.config.layout import NAMES, YAML_LAYOUT, is_own
from quaver.api.config.neural_compressor_ops import model_wise, recipes, rules_of
from quaver.api.config.translation import (
    IgnoredSetting,
    Problem,
    TranslatedKey,
    TranslatedSetting,
    Translation,
    TranslationBuilder,
    Translator,
    YamlMapping,
    as_list,
    leaves,
)
from quaver.ops import MODES
from quaver.rules import ALL_TYPES
from quaver.suggestions import hint
from quaver.types import PlainValue

_IN_CODE = "metric and data belong to the eval_func that you pass to `fit`"
_ONLY_QUANTIZES = "quaver quantizes after training and does nothing else; leave the section out"
_OBJECTIVES = {"performance": "latency", "modelsize": "size", "accuracy": "accuracy"}
_STRATEGIES = {
    "sigopt": "use 'bayesian', which needs no service",
    "hawq_v2": "use 'mse_v2', which ranks ops without gradients",
}
_NO_SUCH_STRATEGY = "belongs to a strategy that quaver lacks; leave it out"
_UNSUPPORTED_OPTIONS = {
    **dict.fromkeys(
        ("sigopt_api_token", "sigopt_project_id", "sigopt_experiment_name", "hawq_v2_loss"), _NO_SUCH_STRATEGY
    ),
    **dict.fromkeys(("accuracy_weight", "latency_weight"), "accuracy is a criterion and has no weight; leave it out"),
    "confidence_batches": "mse_v2 measures on all probe samples; leave it out",
}
# The precisions that Neural Compressor lets a user exclude.
_PRECISIONS = ("fp32", "int8", "int4", "fp16", "bf16")
_OTHER_BACKENDS = ("itex", "ipex")
_MISSING = object()


def translate(config: YamlMapping) -> Translation:
    """Translate a configuration of Neural Compressor: nested as in its files, or flat by the names of its arguments.

    It raises nothing: every problem is in the result. Beside the argument, only the registered repairs matter.
    """
    builder, remaining = TranslationBuilder(), _copied(config)
    for path, translator in _TRANSLATORS.items():
        for place in (path, *_FLAT_KEYS.get(path, ())):
            value = _get(remaining, place)
            if value is _MISSING or (value is None and is_own(place)):
                continue
            translated = () if value is None else translator(place, value)
            if translated is not None:
                _remove(remaining, place)
                builder.add(place, translated)
    return builder.build(remaining, _own_settings(remaining))


def _copied(content: YamlMapping) -> dict[PlainValue, PlainValue]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in content.items()}


def _get(content: YamlMapping, place: str) -> PlainValue:
    """Return the value at a dotted place, or _MISSING."""
    for part in place.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return _MISSING
        content = content[part]
    return content


def _remove(content: dict[PlainValue, PlainValue], place: str) -> None:
    """Remove the value at a dotted place, and the sections that are empty then."""
    first, _, inner = place.partition(".")
    if inner:
        _remove(content[first], inner)
    if not inner or not content[first]:
        del content[first]


def _own_settings(content: YamlMapping) -> Iterator[str]:
    """Yield the settings that have a value under their own name or key."""
    for place, value in leaves(content):
        name = place if place in NAMES else YAML_LAYOUT.get(place)
        if name is not None and value is not None:
            yield name


def _approach(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
    name = str(value).lower().removeprefix("post_training_").removesuffix("_quant")
    if name in MODES:
        yield TranslatedSetting("op_type_dict", {ALL_TYPES: {"activation": {"mode": [name]}}})
    elif name == "quant_aware_training":
        yield Problem(key, f"{value!r} trains, and {_ONLY_QUANTIZES}")
    elif name != "auto":
        yield Problem(key, f"unknown approach {value!r}; {hint(name, (*MODES, 'auto'))}")


def _framework(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    name = str(value)
    if name == "onnxrt_integerops":
        mode = {ALL_TYPES: {"activation": {"mode": ["dynamic"]}}}
        return [TranslatedSetting("framework", "onnxruntime"), TranslatedSetting("op_type_dict", mode)]
    if name in ("onnxrt_qlinear", "onnxrt_qoperator"):
        return [TranslatedSetting("framework", "onnxrt_qlinearops")]
    if name.startswith("pytorch"):
        return [Problem(key, f"{value!r} is not known: export the model to ONNX and leave this out")]
    if name in ("tensorflow_itex", "inteltensorflow"):
        return [Problem(key, f"{value!r} is not known: write 'tensorflow'; models run on LiteRT")]
    return None


def _device(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
    if value not in ("cpu", "auto"):
        yield Problem(key, f"{value!r} is not possible: quaver's models run on the CPU; write 'cpu' or leave it out")


def _backend(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    if value in ("default", "NA"):
        return []
    if value in _OTHER_BACKENDS or str(value).endswith("_ep"):
        return [Problem(key, f"{value!r} is not possible: models run on the CPU kernels of ONNX Runtime and LiteRT")]
    return None if is_own(key) else [Problem(key, f"unknown backend {value!r}; leave it out")]


def _domain(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
    if value != "auto":
        yield IgnoredSetting(key, "no setting depends on the domain")


def _quant_level(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
    if value == 0 and not isinstance(value, bool):
        yield TranslatedSetting("strategy", "conservative")
    elif value == 1 and not isinstance(value, bool):
        yield TranslatedSetting("strategy", "basic", weak=True)
    elif value != "auto":
        yield Problem(key, f"must be 0 (strategy conservative), 1 (the named strategy) or 'auto', not {value!r}")


def _strategy(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    if isinstance(value, str) and value.lower() in _STRATEGIES:
        return [Problem(key, f"there is no strategy {value!r}: {_STRATEGIES[value.lower()]}")]
    return None if is_own(key) else [TranslatedSetting("strategy", value)]


def _options(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
    """Keep the strategy's own options, and refuse those of Neural Compressor."""
    if not isinstance(value, Mapping):
        yield Problem(key, f"must be a mapping of options, not {value!r:.60}")
        return
    for name in value:
        if name in _UNSUPPORTED_OPTIONS:
            yield Problem(f"{key}.{name}", _UNSUPPORTED_OPTIONS[name])
    options = {name: option for name, option in value.items() if name not in _UNSUPPORTED_OPTIONS}
    if options:
        yield TranslatedSetting("strategy_options", options)


def _objective(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    if value == "footprint":
        return [Problem(key, "memory is not measured; use 'size', or your own function of the model")]
    if isinstance(value, list | tuple) and len(value) > 1:
        return [Problem(key, f"one objective at a time, not {list(value)!r}; the criterion limits the loss")]
    objective = value[0] if isinstance(value, list | tuple) and value else value
    if isinstance(objective, str) and objective in _OBJECTIVES:
        return [TranslatedSetting("objective", _OBJECTIVES[objective])]
    return None if is_own(key) else [TranslatedSetting("objective", objective)]


def _excluded_precisions(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
    excluded = [str(precision).lower() for precision in as_list(value)]
    if "int8" in excluded or "fp32" in excluded:
        yield Problem(key, "int8 and fp32 are searched; to keep ops in one of them use op_type_dict and op_name_dict")
    elif any(precision in _PRECISIONS for precision in excluded):
        allowed = [precision for precision in _PRECISIONS if precision not in excluded]
        yield TranslatedSetting("op_type_dict", {ALL_TYPES: {"activation": {"dtype": allowed}}})


def _reduce_range(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
    """Translate seven-bit weights, which are for processors without VNNI, into `portable`."""
    if isinstance(value, bool):
        yield TranslatedSetting("portable", value)
    elif value is not None:
        yield Problem(key, f"must be true or false, not {value!r:.60}")


def _quant_format(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    if not isinstance(value, str) or (value.islower() and value != "default"):
        return None
    return [] if value.lower() == "default" else [TranslatedSetting("quant_format", value.lower())]


def _accuracy_criterion(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    """Translate {criterion: relative, tolerable_loss: 0.01, higher_is_better: true} of 2.x, {relative: 0.01} of 1.x."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping such as {{relative: 0.01}}, not {value!r:.60}")]
    keys = {"criterion", "tolerable_loss"}
    if key == "tuning.accuracy_criterion" and not keys & {*value}:
        return None
    kind = value.get("criterion", "relative")
    translated: list[TranslatedKey] = []
    for name, part in value.items():
        if name in ("higher_is_better", "relative", "absolute", "allow_any_loss"):
            translated.append(TranslatedSetting(name, part))
        elif name not in keys:
            problem = f"unknown key; {hint(str(name), (*sorted(keys), 'higher_is_better'))}"
            translated.append(Problem(f"{key}.{name}", problem))
    if kind not in ("relative", "absolute"):
        translated.append(Problem(f"{key}.criterion", f"must be 'relative' or 'absolute', not {kind!r}"))
    elif keys & {*value}:
        translated.append(TranslatedSetting(kind, value.get("tolerable_loss", 0.01)))
    return translated


def _tuning_criterion(key: str, value: PlainValue) -> Iterable[TranslatedKey]:
    """Translate strategy, strategy_kwargs, timeout, max_trials and objective of 2.x."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping with timeout, max_trials, ..., not {value!r:.60}")]
    names = ("timeout", "max_trials")
    translators: dict[str, Translator] = {
        "strategy": _strategy, "strategy_kwargs": _options, "objective": _objective,
    }  # fmt: skip
    translated: list[TranslatedKey] = []
    for name, part in value.items():
        place = f"{key}.{name}"
        if part is None:
            continue
        if name in translators:
            translated += translators[name](place, part) or ()
        elif name in names:
            translated.append(TranslatedSetting(name, part))
        else:
            translated.append(Problem(place, f"unknown key; {hint(str(name), (*names, *translators))}"))
    return translated


def _workspace(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    """Translate {path: FOLDER, resume: SNAPSHOT} of 1.x."""
    if not isinstance(value, Mapping):
        return None
    names = {"path": "workspace", "resume": "resume"}
    translated: list[TranslatedKey] = [
        TranslatedSetting(names[name], part)
        if name in names
        else Problem(f"{key}.{name}", f"unknown key; {hint(str(name), names)}")
        for name, part in value.items()
        if part is not None
    ]
    if value.get("path") is not None and value.get("resume") is not None:
        problem = "a resumed run continues in its own folder; write path or resume"
        translated.append(Problem(f"{key}.path", problem))
    return translated


def _sampling_size(key: str, value: PlainValue) -> Iterable[TranslatedKey] | None:
    """Translate a text such as "100, 200" of 1.x into a list of sizes."""
    if isinstance(value, str) and all(part.isdigit() for part in as_list(value)):
        value = [int(part) for part in as_list(value)]
    elif is_own(key):
        return None
    return [TranslatedSetting("calibration_sampling_size", value)]


def _off(advice: str) -> Translator:
    """Return a translator of a switch that must be off."""

    def translator(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
        if value not in (False, None, [], {}):
            yield Problem(key, advice)

    return translator


def _unsupported(advice: str) -> Translator:
    """Return a translator of a key without counterpart, which names every part of a section."""

    def translator(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
        for place, _ in leaves({key: value}):
            yield Problem(place, advice)

    return translator


def _ignored(reason: str) -> Translator:
    """Return a translator of a key that is not needed."""

    def translator(key: str, value: PlainValue) -> Iterator[TranslatedKey]:
        yield IgnoredSetting(key, reason)

    return translator


_TRANSLATORS: dict[str, Translator] = {
    "device": _device,
    "model.framework": _framework,
    "model.inputs": _ignored("inputs are read from the model"),
    "model.outputs": _ignored("outputs are read from the model"),
    "quantization.backend": _backend,
    "quantization.domain": _domain,
    "quantization.approach": _approach,
    "quantization.quant_level": _quant_level,
    "quantization.model_wise": model_wise,
    "quantization.excluded_precisions": _excluded_precisions,
    "quantization.recipes": recipes,
    "quantization.op_type_dict": rules_of("op_type_dict"),
    "quantization.optype_wise": rules_of("op_type_dict"),
    "quantization.op_name_dict": rules_of("op_name_dict"),
    "quantization.op_wise": rules_of("op_name_dict"),
    "quantization.op_type_list": rules_of("op_type_dict"),
    "quantization.op_name_list": rules_of("op_name_dict"),
    "quantization.quant_format": _quant_format,
    "quantization.reduce_range": _reduce_range,
    "quantization.example_inputs": _ignored("the calibration data shows the inputs"),
    "quantization.ni_workload_name": _ignored("a run is identified by its workspace"),
    "quantization.use_bf16": _off("bf16 is not supported; leave it out"),
    "quantization.precision": _unsupported("the search chooses int8 or fp32 for each op; leave it out"),
    "quantization.train": _unsupported(f"quaver does not train: {_ONLY_QUANTIZES}"),
    "quantization.advance": _unsupported("is an internal option of Neural Compressor; leave it out"),
    "quantization.calibration.sampling_size": _sampling_size,
    "quantization.calibration.dataloader": _ignored("the data is the calib_dataloader that you pass to `fit`"),
    "evaluation.accuracy": _ignored(_IN_CODE),
    "evaluation.performance": _ignored("`quaver profile` takes --runs, --warmup, --threads and --batch"),
    "evaluation.diagnosis": _off("write tuning.diagnosis: true"),
    "tuning.strategy.name": _strategy,
    "tuning.strategy.strategy_kwargs": _options,
    **{f"tuning.strategy.{name}": _unsupported(advice) for name, advice in _UNSUPPORTED_OPTIONS.items()},
    "tuning.accuracy_criterion": _accuracy_criterion,
    "tuning.tuning_criterion": _tuning_criterion,
    "tuning.objective": _objective,
    "tuning.multi_objectives": _unsupported("one objective at a time: tuning.objective; the criterion limits the loss"),
    "tuning.exit_policy.performance_only": _off("write max_trials: 1, and allow_any_loss: true with relative: 1"),
    "tuning.tensorboard": _off("use `quaver tune --track tensorboard`"),
    "tuning.workspace": _workspace,
    "pruning": _unsupported(_ONLY_QUANTIZES),
    "distillation": _unsupported(_ONLY_QUANTIZES),
    "nas": _unsupported(_ONLY_QUANTIZES),
    "graph_optimization": _unsupported(_ONLY_QUANTIZES),
    "mixed_precision": _unsupported(_ONLY_QUANTIZES),
    "model_conversion": _unsupported(_ONLY_QUANTIZES),
}
# In 2.x these keys are arguments, without sections. Some are settings of quaver, too.
_FLAT_KEYS: dict[str, tuple[str, ...]] = {
    **{path: (path.rpartition(".")[2],) for path in _TRANSLATORS if path.startswith("quantization.")},
    "model.framework": ("framework",),
    "model.inputs": ("inputs",),
    "model.outputs": ("outputs",),
    "tuning.strategy.name": ("strategy",),
    "tuning.accuracy_criterion": ("accuracy_criterion", "quantization.accuracy_criterion"),
    "tuning.tuning_criterion": ("tuning_criterion", "quantization.tuning_criterion"),
    "tuning.objective": ("objective",),
    "tuning.exit_policy.performance_only": ("performance_only",),
    "quantization.calibration.sampling_size": ("calibration_sampling_size", "quantization.calibration_sampling_size"),
    "quantization.calibration.dataloader": (),
    "quantization.precision": (),
    "quantization.train": (),
    "quantization.advance": (),
}
