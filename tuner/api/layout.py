"""The YAML layout: where each setting stands in a file, and how one is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from quaver.api.bounded_yaml import TooLarge, load_yaml
from quaver.errors import SettingsError
from quaver.nearest import hint, nearest
from quaver.paths import expanded

# Where each setting stands in a YAML file.
YAML_LAYOUT = {
    "version": None,
    "model.name": None,
    "model.framework": "framework",
    "quantization.calibration.sampling_size": "calibration_sampling_size",
    "quantization.op_name_dict": "op_name_dict",
    "quantization.op_type_dict": "op_type_dict",
    "quantization.quant_format": "quant_format",
    "quantization.optimise_float": "optimise_float",
    "tuning.strategy.name": "strategy",
    "tuning.strategy.options": "strategy_options",
    "tuning.accuracy_criterion.relative": "relative",
    "tuning.accuracy_criterion.absolute": "absolute",
    "tuning.accuracy_criterion.higher_is_better": "higher_is_better",
    "tuning.accuracy_criterion.allow_any_loss": "allow_any_loss",
    "tuning.accuracy_criterion.slices": "slices",
    "tuning.accuracy_criterion.slice_limit": "slice_limit",
    "tuning.accuracy_criterion.confidence": "confidence",
    "tuning.accuracy_criterion.early_stop": "early_stop",
    "tuning.accuracy_criterion.early_stop_delta": "early_stop_delta",
    "tuning.accuracy_criterion.confirm_tries": "confirm_tries",
    "tuning.start_from": "start_from",
    "tuning.exit_policy.timeout": "timeout",
    "tuning.exit_policy.max_trials": "max_trials",
    "tuning.objective": "objective",
    "tuning.random_seed": "seed",
    "tuning.threads": "threads",
    "tuning.diagnosis": "diagnosis",
    "tuning.workers.n_jobs": "n_jobs",
    "tuning.workers.backend": "backend",
    "tuning.workers.scheduler": "scheduler",
    "tuning.workers.isolate": "isolate",
    "tuning.workers.trial_timeout": "trial_timeout",
    "tuning.workers.width": "width",
    "tuning.report": "report",
    "tuning.insights": "insights",
    "tuning.workspace": "workspace",
    "tuning.resume": "resume",
}
_SECTIONS = frozenset(path.split(".")[0] for path in YAML_LAYOUT)
# These hold the user's own keys, so their content is checked elsewhere.
_BY_METRIC = ("relative", "absolute", "higher_is_better", "slices", "slice_limit")
_OPEN = {
    "quantization.op_name_dict",
    "quantization.op_type_dict",
    "tuning.strategy.options",
    *(f"tuning.accuracy_criterion.{name}" for name in _BY_METRIC),
}


def read_settings(given: Any, known: Sequence[str]) -> dict[str, Any]:
    """What a dict or a YAML file says, by setting: in the nested layout or by their names, as its keys show."""
    content, source = _load(given)
    if not any(key in known for key in content) or any(key in _SECTIONS for key in content):
        return _from_layout(content, source)
    for key in content:
        if key not in known:
            raise SettingsError(f"{source}: unknown setting {key!r}; {hint(str(key), known)}")
    return dict(content)


def _load(given: Any) -> tuple[Mapping[str, Any], str]:
    if isinstance(given, Mapping):
        return given, "the configuration"
    if not isinstance(given, str | os.PathLike):
        raise SettingsError(f"a configuration is a YAML file, a dict or a quaver.Config, not {type(given).__name__}")
    path = Path(expanded(given))
    try:
        content = load_yaml(path)
    except OSError as error:
        raise SettingsError(f"cannot read the configuration {str(path)!r}: {error.strerror}") from error
    except TooLarge as error:
        raise SettingsError(f"{str(path)!r} is not a configuration: {error}") from None
    except Exception as error:  # PyYAML lets ValueError, KeyError and others of its own code through
        raise SettingsError(f"{str(path)!r} is not valid YAML: {error}") from error
    if content is None:
        return {}, str(path)
    if not isinstance(content, Mapping):
        raise SettingsError(
            f"{str(path)!r} must hold a mapping (version, model, quantization, tuning), not {content!r:.60}"
        )
    return content, str(path)


def _from_layout(content: Mapping[Any, Any], source: str) -> dict[str, Any]:
    settings = {}
    for path, value in _leaves(content, (), source):
        name = YAML_LAYOUT[path]
        if name is not None and value is not None:
            settings[name] = value
    return settings


def _leaves(content: Mapping[Any, Any], above: tuple[str, ...], source: str) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        path = ".".join((*above, str(key)))
        inner = [known for known in YAML_LAYOUT if known.startswith(f"{path}.")]
        if path in YAML_LAYOUT:
            if not isinstance(value, Mapping) or path in _OPEN:
                yield path, value
                continue
            raise SettingsError(f"{source}: {path!r} takes a value, not a mapping with {', '.join(map(repr, value))}")
        if not inner:
            raise SettingsError(f"{source}: unknown key {path!r}; {_nearest_key(path, above)}")
        if value is None:
            continue
        if not isinstance(value, Mapping):
            keys = ", ".join(dict.fromkeys(known.removeprefix(f"{path}.").split(".")[0] for known in inner))
            raise SettingsError(f"{source}: {path!r} must hold keys ({keys}), not {value!r:.60}")
        yield from _leaves(value, (*above, str(key)), source)


def _nearest_key(path: str, above: tuple[str, ...]) -> str:
    """The nearest known key at the same level, or anywhere if the last part is the name of one."""
    last = path.rsplit(".", 1)[-1]
    beside = dict.fromkeys(
        ".".join(parts[: len(above) + 1]) for parts in map(_parts, YAML_LAYOUT) if parts[: len(above)] == above
    )
    by_last = {_parts(known)[-1]: known for known in beside}
    close = [by_last[name] for name in nearest(last, by_last, count=1, cutoff=0.7)]
    alike = [known for known in YAML_LAYOUT if nearest(last, [_parts(known)[-1]], cutoff=0.8) and known not in close]
    found = close + alike
    return f"did you mean {' or '.join(map(repr, found))}?" if found else f"known are: {', '.join(map(repr, beside))}"


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))
