"""One validated settings object, whether it came from keywords, a dict or a YAML file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from quaver.budget import Budget
from quaver.criterion import Criterion
from quaver.errors import SettingsError
from quaver.nearest import hint, nearest

# Where each setting stands in a YAML file.
YAML_LAYOUT = {
    "version": None,
    "model.name": None,
    "model.framework": "framework",
    "quantization.calibration.sampling_size": "calibration_sampling_size",
    "quantization.op_name_dict": "op_name_dict",
    "quantization.op_type_dict": "op_type_dict",
    "quantization.quant_format": "quant_format",
    "tuning.strategy.name": "strategy",
    "tuning.strategy.options": "strategy_options",
    "tuning.accuracy_criterion.relative": "relative",
    "tuning.accuracy_criterion.absolute": "absolute",
    "tuning.accuracy_criterion.higher_is_better": "higher_is_better",
    "tuning.exit_policy.timeout": "timeout",
    "tuning.exit_policy.max_trials": "max_trials",
    "tuning.objective": "objective",
    "tuning.random_seed": "seed",
    "tuning.threads": "threads",
    "tuning.diagnosis": "diagnosis",
    "tuning.workspace": "workspace",
    "tuning.resume": "resume",
}
_SECTIONS = frozenset(path.split(".")[0] for path in YAML_LAYOUT)
# These hold the user's own keys, so their content is checked elsewhere.
_OPEN = {"quantization.op_name_dict", "quantization.op_type_dict", "tuning.strategy.options"}
# More than a file written by hand can hold; aliases that multiply ("billion laughs") or hold themselves get there.
_MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set for a run. Every field is a keyword of `fit` too.

    Attributes:
        strategy: a name, a Strategy class or an instance.
        strategy_options: keywords for the strategy's constructor.
        relative: allowed loss as a fraction of the fp32 score; 0.01 when neither this nor `absolute` is given.
        absolute: allowed loss in units of the score.
        higher_is_better: False for scores like perplexity.
        timeout: seconds; 0 stops at the first success.
        max_trials: how many trials may be evaluated in all.
        objective: what decides between trials that meet the criterion.
        seed: the only source of chance.
        calibration_sampling_size: how many calibration samples to use; all if None.
        op_name_dict: rules by op name (see `quaver.rules`).
        op_type_dict: rules by op type.
        quant_format: how int8 is written into the model, where the framework knows several ways (ONNX: "qdq" or
            "qoperator"); None is its default.
        threads: threads of one inference; 0 lets the runtime decide.
        diagnosis: whether to write tables and causes into the workspace at the end.
        workspace: the folder of the run; a dated one under quaver_workspace/ if None.
        resume: the snapshot or workspace of an earlier run to go on with.
        framework: the framework whose adapter takes the model; usually left to the model itself.
    """

    strategy: Any = "auto"
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    relative: float | None = None
    absolute: float | None = None
    higher_is_better: bool = True
    timeout: float = 0.0
    max_trials: int = 100
    objective: Any = "latency"
    seed: int = 9527
    calibration_sampling_size: int | None = None
    op_name_dict: Mapping[str, Any] = field(default_factory=dict)
    op_type_dict: Mapping[str, Any] = field(default_factory=dict)
    quant_format: str | None = None
    threads: int = 0
    diagnosis: bool = False
    workspace: str | os.PathLike[str] | None = None
    resume: str | os.PathLike[str] | None = None
    framework: str | None = None

    def __post_init__(self) -> None:
        if self.relative is None and self.absolute is None:
            object.__setattr__(self, "relative", 0.01)
        object.__setattr__(self, "calibration_sampling_size", _sampling_size(self.calibration_sampling_size))
        self.criterion, self.budget  # noqa: B018 - both check their values
        for name in ("higher_is_better", "diagnosis"):
            _check(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        _check(_is_count(self.seed), "seed", self.seed, "a whole number of at least 0")
        _check(_is_count(self.threads), "threads", self.threads, "a whole number; 0 lets the runtime decide")
        for name in ("quant_format", "framework"):
            value = getattr(self, name)
            _check(value is None or isinstance(value, str), name, value, "a name")
        for name in ("op_name_dict", "op_type_dict", "strategy_options"):
            _check(isinstance(getattr(self, name), Mapping), name, getattr(self, name), "a mapping")
        for name in ("workspace", "resume"):
            value = getattr(self, name)
            _check(value is None or _is_path(value), name, value, "the path of a folder")
        if self.workspace is not None and self.resume is not None:
            raise SettingsError("give `workspace` for a new run or `resume` for an earlier one, not both")

    @property
    def criterion(self) -> Criterion:
        """The accuracy criterion."""
        return Criterion(self.relative, self.absolute, self.higher_is_better)

    @property
    def budget(self) -> Budget:
        """When to stop."""
        return Budget(self.timeout, self.max_trials)

    def plain(self) -> dict[str, Any]:
        """The settings as builtins, to be kept with the run."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def make_config(given: Config | Mapping[str, Any] | str | os.PathLike[str] | None, **keywords: Any) -> Config:
    """Settings from a Config, a dict or a YAML file, with keywords on top. Unknown names are errors."""
    known = [item.name for item in fields(Config)]
    for name in keywords:
        if name not in known:
            raise SettingsError(f"unknown setting {name!r}; {hint(name, known)}")
    if isinstance(given, Config):
        base = {item.name: getattr(given, item.name) for item in fields(Config)}
    elif given is None:
        base = {}
    else:
        base = _settings(*_load(given), known)
    # A criterion given in one way replaces one that was given in the other.
    if keywords.get("absolute") is not None and "relative" not in keywords:
        base.pop("relative", None)
    if keywords.get("relative") is not None and "absolute" not in keywords:
        base.pop("absolute", None)
    return Config(**{**base, **keywords})


def _settings(content: Mapping[Any, Any], source: str, known: list[str]) -> dict[str, Any]:
    """Settings by their names, or in the nested layout: whichever its keys show."""
    if not any(key in known for key in content) or any(key in _SECTIONS for key in content):
        return from_layout((content, source))
    for key in content:
        if key not in known:
            raise SettingsError(f"{source}: unknown setting {key!r}; {hint(str(key), known)}")
    return dict(content)


def _load(given: Any) -> tuple[Mapping[str, Any], str]:
    if isinstance(given, Mapping):
        return given, "the configuration"
    if not isinstance(given, str | os.PathLike):
        raise SettingsError(f"a configuration is a YAML file, a dict or a quaver.Config, not {type(given).__name__}")
    path = Path(given)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise SettingsError(f"cannot read the configuration {str(path)!r}: {error.strerror}") from error
    except Exception as error:  # PyYAML lets ValueError, KeyError and others of its own code through
        raise SettingsError(f"{str(path)!r} is not valid YAML: {error}") from error
    if content is None:
        return {}, str(path)
    _check_size(content, path)
    if not isinstance(content, Mapping):
        raise SettingsError(
            f"{str(path)!r} must hold a mapping (version, model, quantization, tuning), not {content!r:.60}"
        )
    return content, str(path)


class _Loader(yaml.SafeLoader):
    """Reads 1e-2 as a number, too; YAML 1.1 knows only 1.0e-2. Merged keys (`<<`) do not pile up."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        node.value = list({(key.tag, str(key.value)): (key, value) for key, value in node.value}.values())


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _check_size(content: Any, path: Path) -> None:
    """Count values as they would be printed, each alias anew."""
    count, left = 0, [content]
    while left:
        value = left.pop()
        inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        if isinstance(inner, list | tuple | set):
            count += len(inner)
            left.extend(inner)
        if count > _MOST_VALUES:
            raise SettingsError(
                f"{str(path)!r} is not a configuration: its aliases make more than {_MOST_VALUES:,} values"
            )


def from_layout(loaded: tuple[Mapping[str, Any], str]) -> dict[str, Any]:
    """Settings from the nested layout of a YAML file."""
    content, source = loaded
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


def _sampling_size(value: Any) -> int | None:
    """A number of samples. A list of sizes to try, as some tools take, means the largest."""
    if isinstance(value, list | tuple) and value and all(_is_count(item) for item in value):
        value = max(value)
    _check(
        value is None or (_is_count(value) and value > 0), "calibration_sampling_size", value, "a whole number above 0"
    )
    return value  # type: ignore[no-any-return]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and os.fspath(value) != ""


def _check(right: bool, name: str, value: Any, wanted: str) -> None:
    if not right:
        raise SettingsError(f"`{name}` must be {wanted}, not {value!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)
