"""Neural Compressor's words (1.x and 2.x) as settings of quaver.

The words that both have (`tuning.accuracy_criterion.relative`, `op_name_dict`, ...) are left to quaver's own reader. Of
all others each becomes a setting, or is named with what to use instead; none is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quaver.api.config.layout import NAMES, YAML_LAYOUT, is_own
from quaver.api.config.neural_compressor_ops import model_wise, recipes, rules_of
from quaver.api.config.translation import (
    Collected,
    IgnoredSetting,
    Problem,
    Reader,
    Said,
    Setting,
    Translation,
    as_list,
    leaves,
)
from quaver.ops import MODES
from quaver.rules import ALL_TYPES
from quaver.suggestions import hint

_IN_CODE = "metric and data are in the eval_func that `fit` is given"
_ONLY_QUANTIZES = "quaver quantizes after training and does nothing else; leave the section out"
_OBJECTIVES = {"performance": "latency", "modelsize": "size", "accuracy": "accuracy"}
_STRATEGIES = {
    "sigopt": "use 'bayesian', which needs no service",
    "tpe": "use 'bayesian'",
    "hawq_v2": "use 'mse_v2', which ranks ops without gradients",
}
_OF_OTHERS = "belongs to a strategy that there is not; leave it out"
_STRATEGY_WORDS = {
    **dict.fromkeys(("sigopt_api_token", "sigopt_project_id", "sigopt_experiment_name", "hawq_v2_loss"), _OF_OTHERS),
    **dict.fromkeys(("accuracy_weight", "latency_weight"), "accuracy is a criterion and not weighed; leave it out"),
    "confidence_batches": "mse_v2 measures on all kept samples; leave it out",
}
# What an op may be in, unless it is excluded.
_PRECISIONS = ("fp32", "int8", "int4", "fp16", "bf16")
_ELSEWHERE = ("itex", "ipex")
_NOTHING = object()


def translate(words: Mapping[Any, Any]) -> Translation:
    """A configuration in Neural Compressor's words: nested as in its files, or flat by the names of its arguments.

    Pure, but for the names of the repairs that are registered. Nothing is raised: every problem is in the answer.
    """
    found, rest = Collected(), _copied(words)
    for path, read in _WORDS.items():
        for place in (path, *_FLAT.get(path, ())):
            value = _look(rest, place)
            if value is _NOTHING or (value is None and is_own(place)):
                continue
            said = () if value is None else read(place, value)
            if said is not None:
                _take_out(rest, place)
                found.add(place, said)
    return found.words(rest, _said_in(rest))


def _copied(words: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in words.items()}


def _look(content: Mapping[Any, Any], place: str) -> Any:
    """What stands at a dotted place, or _NOTHING."""
    for part in place.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return _NOTHING
        content = content[part]
    return content


def _take_out(content: dict[Any, Any], place: str) -> None:
    """Remove what stands at a place, and sections that are empty then."""
    first, _, inner = place.partition(".")
    if inner:
        _take_out(content[first], inner)
    if not inner or not content[first]:
        del content[first]


def _said_in(rest: Mapping[Any, Any]) -> Iterator[str]:
    """The settings that stand in quaver's own words."""
    for place, value in leaves(rest):
        name = place if place in NAMES else YAML_LAYOUT.get(place)
        if name is not None and value is not None:
            yield name


def _approach(key: str, value: Any) -> Iterator[Said]:
    name = str(value).lower().removeprefix("post_training_").removesuffix("_quant")
    if name in MODES:
        yield Setting("op_type_dict", {ALL_TYPES: {"activation": {"mode": [name]}}})
    elif name == "quant_aware_training":
        yield Problem(key, f"{value!r} trains, and {_ONLY_QUANTIZES}")
    elif name != "auto":
        yield Problem(key, f"unknown approach {value!r}; {hint(name, (*MODES, 'auto'))}")


def _framework(key: str, value: Any) -> Iterable[Said] | None:
    name = str(value)
    if name == "onnxrt_integerops":
        mode = {ALL_TYPES: {"activation": {"mode": ["dynamic"]}}}
        return [Setting("framework", "onnxruntime"), Setting("op_type_dict", mode)]
    if name in ("onnxrt_qlinear", "onnxrt_qoperator"):
        return [Setting("framework", "onnxrt_qlinearops")]
    if name.startswith("pytorch"):
        return [Problem(key, f"{value!r} is not known: export the model to ONNX and leave this out")]
    if name in ("tensorflow_itex", "inteltensorflow"):
        return [Problem(key, f"{value!r} is not known: write 'tensorflow'; models run on LiteRT")]
    return None


def _device(key: str, value: Any) -> Iterator[Said]:
    if value not in ("cpu", "auto"):
        yield Problem(key, f"{value!r} is not possible: quaver's models run on the CPU; write 'cpu' or leave it out")


def _backend(key: str, value: Any) -> Iterable[Said] | None:
    if value in ("default", "NA"):
        return []
    if value in _ELSEWHERE or str(value).endswith("_ep"):
        return [Problem(key, f"{value!r} is not possible: models run on the CPU kernels of ONNX Runtime and LiteRT")]
    return None if is_own(key) else [Problem(key, f"unknown backend {value!r}; leave it out")]


def _domain(key: str, value: Any) -> Iterator[Said]:
    if value != "auto":
        yield IgnoredSetting(key, "no setting depends on the domain")


def _quant_level(key: str, value: Any) -> Iterator[Said]:
    if value == 0 and not isinstance(value, bool):
        yield Setting("strategy", "conservative")
    elif value == 1 and not isinstance(value, bool):
        yield Setting("strategy", "basic", weak=True)
    elif value != "auto":
        yield Problem(
            key, f"must be 0 (strategy conservative), 1 (the strategy that is named) or 'auto', not {value!r}"
        )


def _strategy(key: str, value: Any) -> Iterable[Said] | None:
    if isinstance(value, str) and value.lower() in _STRATEGIES:
        return [Problem(key, f"there is no strategy {value!r}: {_STRATEGIES[value.lower()]}")]
    return None if is_own(key) else [Setting("strategy", value)]


def _options(key: str, value: Any) -> Iterator[Said]:
    """Options of a strategy: its own must be left, and those of Neural Compressor's are known."""
    if not isinstance(value, Mapping):
        yield Problem(key, f"must be a mapping of options, not {value!r:.60}")
        return
    for name in value:
        if name in _STRATEGY_WORDS:
            yield Problem(f"{key}.{name}", _STRATEGY_WORDS[name])
    left = {name: said for name, said in value.items() if name not in _STRATEGY_WORDS}
    if left:
        yield Setting("strategy_options", left)


def _objective(key: str, value: Any) -> Iterable[Said] | None:
    if value == "footprint":
        return [Problem(key, "memory is not measured; use 'size', or a function of the model of your own")]
    if isinstance(value, list | tuple) and len(value) > 1:
        return [Problem(key, f"one objective at a time, not {list(value)!r}; the criterion keeps the accuracy")]
    one = value[0] if isinstance(value, list | tuple) and value else value
    if isinstance(one, str) and one in _OBJECTIVES:
        return [Setting("objective", _OBJECTIVES[one])]
    return None if is_own(key) else [Setting("objective", one)]


def _excluded_precisions(key: str, value: Any) -> Iterator[Said]:
    excluded = [str(one).lower() for one in as_list(value)]
    if "int8" in excluded or "fp32" in excluded:
        yield Problem(key, "int8 and fp32 are what is searched; to keep ops in one use op_type_dict and op_name_dict")
    elif any(one in _PRECISIONS for one in excluded):
        left = [one for one in _PRECISIONS if one not in excluded]
        yield Setting("op_type_dict", {ALL_TYPES: {"activation": {"dtype": left}}})


def _reduce_range(key: str, value: Any) -> Iterator[Said]:
    """Seven bits for every weight are there for processors without VNNI, which `portable` looks after."""
    if isinstance(value, bool):
        yield Setting("portable", value)
    elif value is not None:
        yield Problem(key, f"must be true or false, not {value!r:.60}")


def _quant_format(key: str, value: Any) -> Iterable[Said] | None:
    if not isinstance(value, str) or (value.islower() and value != "default"):
        return None
    return [] if value.lower() == "default" else [Setting("quant_format", value.lower())]


def _accuracy_criterion(key: str, value: Any) -> Iterable[Said] | None:
    """2.x: {criterion: relative, tolerable_loss: 0.01, higher_is_better: true}; 1.x: {relative: 0.01}."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping such as {{relative: 0.01}}, not {value!r:.60}")]
    words = {"criterion", "tolerable_loss"}
    if key == "tuning.accuracy_criterion" and not words & {*value}:
        return None
    kind = value.get("criterion", "relative")
    found: list[Said] = []
    for name, said in value.items():
        if name in ("higher_is_better", "relative", "absolute", "allow_any_loss"):
            found.append(Setting(name, said))
        elif name not in words:
            known = (*sorted(words), "higher_is_better")
            found.append(Problem(f"{key}.{name}", f"unknown key; {hint(str(name), known)}"))
    if kind not in ("relative", "absolute"):
        found.append(Problem(f"{key}.criterion", f"must be 'relative' or 'absolute', not {kind!r}"))
    elif words & {*value}:
        found.append(Setting(kind, value.get("tolerable_loss", 0.01)))
    return found


def _tuning_criterion(key: str, value: Any) -> Iterable[Said]:
    """2.x: strategy, strategy_kwargs, timeout, max_trials and objective."""
    if not isinstance(value, Mapping):
        return [Problem(key, f"must be a mapping with timeout, max_trials, ..., not {value!r:.60}")]
    names = ("timeout", "max_trials")
    readers: dict[str, Reader] = {"strategy": _strategy, "strategy_kwargs": _options, "objective": _objective}
    found: list[Said] = []
    for name, said in value.items():
        where = f"{key}.{name}"
        if said is None:
            continue
        if name in readers:
            found += readers[name](where, said) or ()
        elif name in names:
            found.append(Setting(name, said))
        else:
            found.append(Problem(where, f"unknown key; {hint(str(name), (*names, *readers))}"))
    return found


def _workspace(key: str, value: Any) -> Iterable[Said] | None:
    """1.x: {path: FOLDER, resume: SNAPSHOT}."""
    if not isinstance(value, Mapping):
        return None
    names = {"path": "workspace", "resume": "resume"}
    found: list[Said] = [
        Setting(names[name], said)
        if name in names
        else Problem(f"{key}.{name}", f"unknown key; {hint(str(name), names)}")
        for name, said in value.items()
        if said is not None
    ]
    if value.get("path") is not None and value.get("resume") is not None:
        found.append(Problem(f"{key}.path", "a resumed run goes on in its own folder; give path or resume"))
    return found


def _sampling_size(key: str, value: Any) -> Iterable[Said] | None:
    """1.x: "100, 200" is a list of sizes."""
    if isinstance(value, str) and all(part.isdigit() for part in as_list(value)):
        value = [int(part) for part in as_list(value)]
    elif is_own(key):
        return None
    return [Setting("calibration_sampling_size", value)]


def _off(instead: str) -> Reader:
    """A switch that must be off."""

    def read(key: str, value: Any) -> Iterator[Said]:
        if value not in (False, None, [], {}):
            yield Problem(key, instead)

    return read


def _always(instead: str) -> Reader:
    """A word without counterpart, whatever its value. Every part of a section is named."""

    def read(key: str, value: Any) -> Iterator[Said]:
        for place, _ in leaves({key: value}):
            yield Problem(place, instead)

    return read


def _idle(why: str) -> Reader:
    def read(key: str, value: Any) -> Iterator[Said]:
        yield IgnoredSetting(key, why)

    return read


_WORDS: dict[str, Reader] = {
    "device": _device,
    "model.framework": _framework,
    "model.inputs": _idle("inputs are read from the model"),
    "model.outputs": _idle("outputs are read from the model"),
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
    "quantization.quant_format": _quant_format,
    "quantization.reduce_range": _reduce_range,
    "quantization.example_inputs": _idle("the calibration data shows what inputs are like"),
    "quantization.ni_workload_name": _idle("runs are known by their workspace"),
    "quantization.use_bf16": _off("bf16 is not offered; leave it out"),
    "quantization.precision": _always("precisions are chosen op by op between int8 and fp32; leave it out"),
    "quantization.train": _always(f"quaver does not train: {_ONLY_QUANTIZES}"),
    "quantization.advance": _always("belongs to what Neural Compressor does inside; leave it out"),
    "quantization.calibration.sampling_size": _sampling_size,
    "quantization.calibration.dataloader": _idle("the data is the calib_dataloader that `fit` is given"),
    "evaluation.accuracy": _idle(_IN_CODE),
    "evaluation.performance": _idle("`quaver profile` takes --runs, --warmup, --threads and --batch"),
    "evaluation.diagnosis": _off("write tuning.diagnosis: true"),
    "tuning.strategy.name": _strategy,
    "tuning.strategy.strategy_kwargs": _options,
    **{f"tuning.strategy.{name}": _always(instead) for name, instead in _STRATEGY_WORDS.items()},
    "tuning.accuracy_criterion": _accuracy_criterion,
    "tuning.tuning_criterion": _tuning_criterion,
    "tuning.objective": _objective,
    "tuning.multi_objectives": _always("one objective at a time: tuning.objective; the criterion keeps the accuracy"),
    "tuning.exit_policy.performance_only": _off("write max_trials: 1, and allow_any_loss: true with relative: 1"),
    "tuning.tensorboard": _off("use `quaver tune --track tensorboard`"),
    "tuning.workspace": _workspace,
    "pruning": _always(_ONLY_QUANTIZES),
    "distillation": _always(_ONLY_QUANTIZES),
    "nas": _always(_ONLY_QUANTIZES),
    "graph_optimization": _always(_ONLY_QUANTIZES),
    "mixed_precision": _always(_ONLY_QUANTIZES),
    "model_conversion": _always(_ONLY_QUANTIZES),
}
# 2.x: the same words as arguments, without sections. Those that quaver has as settings of its own are there, too.
_FLAT: dict[str, tuple[str, ...]] = {
    **{path: (path.rpartition(".")[2],) for path in _WORDS if path.startswith("quantization.")},
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
