"""One validated settings object, whether it came from keywords, a dict or a YAML file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from quaver.api.config.serialize import names_only, objective_name, strategy_name, to_builtins
from quaver.budget import Budget
from quaver.criterion import Criterion
from quaver.engine.executors.base import check_limit
from quaver.engine.executors.select import BACKENDS
from quaver.engine.timing.objective import Objective
from quaver.errors import SettingsError
from quaver.files.paths import unwritable
from quaver.scores import too_many_scores
from quaver.slices import Slices
from quaver.strategies import Strategy
from quaver.suggestions import hint
from quaver.target_budget import TargetBudget
from quaver.types import PlainDict, PlainMapping

# Whoever allows to lose half of the score has probably written percents.
_SUSPECT = 0.5
# Settings that are on or off.
_FLAGS = (
    "allow_any_loss", "optimise_float", "timing_cache", "diagnosis", "isolate", "report", "insights", "early_stop",
    "provenance",
)  # fmt: skip
# What a budget takes the place of.
_CRITERION = ("relative", "absolute", "slices", "slice_limit", "confidence")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set for a run. Every field is a keyword of `fit` too.

    Attributes:
        strategy: a name, a Strategy class or an instance.
        strategy_options: keywords for the strategy's constructor.
        relative: allowed loss as a fraction of the fp32 score; 0.01 when neither this nor `absolute` is given, and no
            budget instead. A dict gives it by metric.
        absolute: allowed loss in units of the score; a dict gives it by metric.
        higher_is_better: False for scores like perplexity; a dict gives it by metric.
        slices: parts of the samples that are judged by themselves: a name for each sample, or a dict of indices or
            masks by name.
        slice_limit: the loss allowed on each slice, or a dict by slice; as on all samples if None.
        confidence: demand to be so sure (0.95) that the loss on such data is within the criterion; None lets the score
            decide.
        early_stop: whether an evaluation that yields its scores is ended when they rule the trial out.
        early_stop_delta: the chance at most that a trial is ended so which all samples would accept.
        confirm_tries: how many trials are scored by `confirm` at most, the best first.
        start_from: the snapshot or workspace of a run on an earlier version of the model: its winner is tried first.
        allow_any_loss: True to allow a `relative` of 0.5 and more, which is refused otherwise: 1 % is 0.01.
        timeout: seconds; 0 stops at the first success. With a budget that is a trial within it that loses nothing;
            if there is none the strategy goes on to its end.
        max_trials: how many trials may be evaluated in all.
        objective: what decides between trials that meet the criterion: "latency", "size", "int8_ops", or a function
            of the model whose figure is to be small. "accuracy" takes a budget instead of a criterion: the most
            accurate model within `max_latency` and `max_size`.
        max_latency: with objective="accuracy", what one inference may take as a fraction of the fp32 model's.
        max_size: with objective="accuracy", what the file may take as a fraction of the fp32 model's.
        cost_model: the file with op times of another machine, as `quaver profile --save` writes it. Latency is then
            that predicted for it, and what this machine takes is told apart.
        seed: the only source of chance.
        calibration_sampling_size: how many calibration samples to use; at most 256 if None. A list of sizes is tried
            in turn by `fit`, until one meets the criterion; others take the largest.
        op_name_dict: rules by op name (see `quaver.rules`).
        op_type_dict: rules by op type.
        quant_format: how int8 is written into the model, where the framework knows several ways (ONNX: "qdq" or
            "qoperator"; TensorFlow: "float_io" or "full_integer"); None is its default.
        optimise_float: whether the float graph is rewritten, exactly, so that it is fast before it is quantized.
        portable: whether int8 models give the same answers on every x86 processor: True bounds weights so that no
            sum overflows where there is no VNNI. None is True where the framework's adapter can do it.
        timing_cache: whether to use what an earlier run on this model measured of ops on this machine, and to keep
            what this one measures: the same call gives the same model, also on a machine that is busy by now.
        threads: threads of one inference, as it will be deployed; 0 lets the runtime decide, and latency is then
            measured on one.
        batch: samples of one inference, as it will be deployed: latency is measured at this batch. Where the model
            fixes its batch, that is the one; any other number than 1 is then refused.
        diagnosis: whether to write tables and causes into the workspace at the end.
        report: whether to look into the best model at the end, and to write report.html into the workspace.
        insights: whether to show the run on a page of this machine while it goes on.
        provenance: whether saved models say where they come from: the versions, the float model, the criterion and the
            scores.
        workspace: the folder of the run; a dated one under quaver_workspace/ if None.
        resume: the snapshot or workspace of an earlier run to go on with; what is not given is as it was there.
        framework: the framework whose adapter takes the model; usually left to the model itself.
        n_jobs: trials to evaluate at once, each in a process of its own; -1 is one for each core, or for each worker
            of a cluster. None is one, or what `joblib.parallel_config` says.
        backend: who has the workers: "loky" (processes of this machine), "dask" or "ray"; None is joblib's active one.
        scheduler: the address of the cluster, such as "tcp://host:8786"; None is the one that is connected.
        isolate: evaluate in a process of its own even if there is but one, so that a crash or a hang ends no run.
        trial_timeout: seconds that an evaluation may take before its process is ended and the trial has failed; or
            "10x" for ten times what the fp32 model took. It implies `isolate`.
        width: how many trials a strategy proposes at once; None is as many as are evaluated at once. The same width
            gives the same trials on any number of workers.
    """

    strategy: str | type[Strategy] | Strategy = "auto"
    strategy_options: PlainMapping = field(default_factory=dict)
    relative: float | Mapping[str, float] | None = None
    absolute: float | Mapping[str, float] | None = None
    higher_is_better: bool | Mapping[str, bool] = True
    slices: Any = None
    slice_limit: float | Mapping[str, float] | None = None
    confidence: float | None = None
    early_stop: bool = True
    early_stop_delta: float = 0.05
    confirm_tries: int = 3
    start_from: str | os.PathLike[str] | None = None
    allow_any_loss: bool = False
    timeout: float = 0.0
    max_trials: int = 100
    objective: str | Callable[[Any], float] | Objective | type[Objective] = "latency"
    max_latency: float | None = None
    max_size: float | None = None
    cost_model: str | os.PathLike[str] | None = None
    seed: int = 9527
    calibration_sampling_size: int | Sequence[int] | None = None
    op_name_dict: PlainMapping = field(default_factory=dict)
    op_type_dict: PlainMapping = field(default_factory=dict)
    quant_format: str | None = None
    optimise_float: bool = True
    portable: bool | None = None
    timing_cache: bool = True
    threads: int = 0
    batch: int = 1
    diagnosis: bool = False
    report: bool = True
    insights: bool = False
    provenance: bool = True
    workspace: str | os.PathLike[str] | None = None
    resume: str | os.PathLike[str] | None = None
    framework: str | None = None
    n_jobs: int | None = None
    backend: str | None = None
    scheduler: str | None = None
    isolate: bool = False
    trial_timeout: float | str | None = None
    width: int | None = None

    def __post_init__(self) -> None:
        if self.relative is None and self.absolute is None and self.objective != "accuracy":
            object.__setattr__(self, "relative", 0.01)
        _check_budget(self)
        object.__setattr__(self, "calibration_sampling_size", _sampling_size(self.calibration_sampling_size))
        if self.slices is not None:
            object.__setattr__(self, "slices", Slices.of(self.slices))
            if too_many := too_many_scores(self.slices.count):
                raise SettingsError(f"`slices` names too many samples: {too_many}")
        self.criterion, self.budget  # noqa: B018 - both check their values
        for name in _FLAGS:
            _check(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        _check(self.portable is None or isinstance(self.portable, bool), "portable", self.portable, "True or False")
        largest = max(self.relative.values()) if isinstance(self.relative, Mapping) else self.relative
        if largest is not None and largest >= _SUSPECT and not self.allow_any_loss:
            raise SettingsError(
                f"`relative={self.relative}` would allow a loss of {largest:.0%} of the fp32 score; 1 % is 0.01. "
                "If that much is meant, add `allow_any_loss=True`"
            )
        delta = self.early_stop_delta
        right = isinstance(delta, float | int) and not isinstance(delta, bool) and 0 < delta < 0.5
        _check(right, "early_stop_delta", delta, "a chance above 0 and below 0.5, such as 0.05")
        right = _is_count(self.confirm_tries) and self.confirm_tries > 0
        _check(right, "confirm_tries", self.confirm_tries, "a whole number of at least 1")
        _check(_is_count(self.seed), "seed", self.seed, "a whole number of at least 0")
        _check(_is_count(self.threads), "threads", self.threads, "a whole number; 0 lets the runtime decide")
        _check(_is_count(self.batch) and self.batch > 0, "batch", self.batch, "a whole number of at least 1")
        object.__setattr__(self, "trial_timeout", check_limit(self.trial_timeout))
        _check(_is_jobs(self.n_jobs), "n_jobs", self.n_jobs, "a whole number of at least 1, or -1 for one each core")
        _check(self.width is None or (_is_count(self.width) and self.width > 0), "width", self.width, "at least 1")
        if self.backend is not None and self.backend not in BACKENDS:
            raise SettingsError(f"unknown backend {self.backend!r}; {hint(str(self.backend), BACKENDS)}")
        for name in ("quant_format", "framework", "scheduler"):
            value = getattr(self, name)
            _check(value is None or isinstance(value, str), name, value, "a name")
        for name in ("op_name_dict", "op_type_dict", "strategy_options"):
            _check(isinstance(getattr(self, name), Mapping), name, getattr(self, name), "a mapping")
            for lost in names_only(getattr(self, name)):
                raise SettingsError(f"of {lost!r} in `{name}` only the name was kept: give `{name}` again")
        _check(
            self.cost_model is None or _is_path(self.cost_model), "cost_model", self.cost_model, "the path of a file"
        )
        for name in ("workspace", "resume", "start_from"):
            value = getattr(self, name)
            _check(value is None or _is_path(value), name, value, "the path of a folder")
            if value is not None:
                why = unwritable(os.fspath(value))
                _check(why is None, name, value, f"a path that every system can write; this one {why}")
        if self.workspace is not None and self.resume is not None:
            raise SettingsError("give `workspace` for a new run or `resume` for an earlier one, not both")

    @property
    def most_samples(self) -> int | None:
        """How many calibration samples to use; the most, if several sizes are named."""
        size = self.calibration_sampling_size
        return max(size) if isinstance(size, Sequence) else size

    @property
    def criterion(self) -> Criterion:
        """The accuracy criterion, or the budget that takes its place."""
        if self.objective == "accuracy":
            target_budget = TargetBudget(self.max_latency, self.max_size, self.cost_model is not None)
            return Criterion.within(target_budget, self.higher_is_better)
        return Criterion(
            self.relative,
            self.absolute,
            self.higher_is_better,
            slices=self.slices,
            slice_limit=self.slice_limit,
            confidence=self.confidence,
        )

    @property
    def budget(self) -> Budget:
        """When to stop."""
        return Budget(self.timeout, self.max_trials)

    def to_dict(self) -> PlainDict:
        """The settings as builtins, to be kept with the run. Of functions and classes the name is kept."""
        return {item.name: _PLAIN.get(item.name, to_builtins)(getattr(self, item.name)) for item in fields(self)}

    def changed(self) -> PlainDict:
        """Return the settings that differ from their defaults."""
        default = Config()
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def __repr__(self) -> str:
        default = Config().to_dict()
        said = {name: value for name, value in self.to_dict().items() if value != default[name] and value is not None}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in said.items())})"


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "strategy": strategy_name,
    "objective": objective_name,
    "slices": lambda slices: None if slices is None else slices.to_dict(),
}


def _check_budget(config: Config) -> None:
    """A budget goes with the objective accuracy, and with no criterion."""
    budget = [name for name in ("max_latency", "max_size") if getattr(config, name) is not None]
    if budget and config.objective != "accuracy":
        said = f"the objective is {objective_name(config.objective)!r}"
        raise SettingsError(f'`{budget[0]}` is a budget for objective="accuracy", and {said}: give one or the other')
    criterion = [name for name in _CRITERION if getattr(config, name) is not None]
    if config.objective == "accuracy" and criterion:
        raise SettingsError(
            f'with objective="accuracy" a budget takes the place of the criterion: leave out `{criterion[0]}`, '
            "and give `max_latency` or `max_size`"
        )


def _sampling_size(value: Any) -> int | tuple[int, ...] | None:
    """A number of samples, or several to be tried in turn."""
    sizes = tuple(dict.fromkeys(value)) if isinstance(value, list | tuple) and value else (value,)
    right = value is None or all(_is_count(size) and size > 0 for size in sizes)
    _check(right, "calibration_sampling_size", value, "a whole number above 0, or a list of them")
    return sizes if len(sizes) > 1 else sizes[0]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_jobs(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value != 0)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str) and os.fspath(value) != ""


def _check(right: bool, name: str, value: Any, wanted: str) -> None:
    if not right:
        raise SettingsError(f"`{name}` must be {wanted}, not {value!r}")


class Settings(TypedDict, total=False):
    """Every field of `quaver.Config`, none of them needed."""

    strategy: str | type[Strategy] | Strategy
    strategy_options: PlainMapping
    relative: float | Mapping[str, float] | None
    absolute: float | Mapping[str, float] | None
    higher_is_better: bool | Mapping[str, bool]
    slices: Any
    slice_limit: float | Mapping[str, float] | None
    confidence: float | None
    early_stop: bool
    early_stop_delta: float
    confirm_tries: int
    start_from: str | os.PathLike[str] | None
    allow_any_loss: bool
    timeout: float
    max_trials: int
    objective: str | Callable[[Any], float] | Objective | type[Objective]
    max_latency: float | None
    max_size: float | None
    cost_model: str | os.PathLike[str] | None
    seed: int
    calibration_sampling_size: int | Sequence[int] | None
    op_name_dict: PlainMapping
    op_type_dict: PlainMapping
    quant_format: str | None
    optimise_float: bool
    portable: bool | None
    timing_cache: bool
    threads: int
    batch: int
    diagnosis: bool
    report: bool
    insights: bool
    provenance: bool
    workspace: str | os.PathLike[str] | None
    resume: str | os.PathLike[str] | None
    framework: str | None
    n_jobs: int | None
    backend: str | None
    scheduler: str | None
    isolate: bool
    trial_timeout: float | str | None
    width: int | None
