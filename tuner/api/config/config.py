"""Define every setting of a run, once.

Each field of `Config` holds the type, default, group, description, YAML key and flag of one setting. The keywords of
`fit`, the YAML layout, the flags of `quaver tune`, docs/settings.md and the docstring of `fit` derive from it; after a
change, run `python docs/settings.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quaver.api.config import validators
from quaver.api.config.serialize import objective_name, strategy_name, to_builtins
from quaver.api.config.setting import Flag, setting, settings_of
from quaver.api.config.validators import CRITERION, TARGET_BUDGET
from quaver.budget import Budget
from quaver.criterion import Criterion
from quaver.engine.probe_plan import EFFORTS
from quaver.engine.timing.objective import Objective, quoted_names
from quaver.errors import SettingsError
from quaver.objective_traits import traits_of
from quaver.strategies import Strategy
from quaver.target_budget import TargetBudget, parse_size
from quaver.types import PlainDict, PlainMapping

_RULE = "the rule is fp32, int8 or YAML; repeatable, added to other rules"
_CRITERION_SECTION = "tuning.accuracy_criterion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting of a run, validated. docs/settings.md describes them; each is a keyword of `fit`, too."""

    relative: float | Mapping[str, float] | None = setting(
        None,
        "criterion",
        "Allowed loss as a fraction of the fp32 score. "
        "The default is 0.01 (1 %), unless `absolute` or a target budget is set. A dict sets it per metric.",
        yaml=f"{_CRITERION_SECTION}.relative",
        flag=Flag(metavar="LOSS", value="fraction per name", note="0.01 or 1%; NAME=0.01 for one metric, repeatable"),
    )
    absolute: float | Mapping[str, float] | None = setting(
        None,
        "criterion",
        "Allowed loss in units of the score, instead of `relative`. A dict sets it per metric.",
        yaml=f"{_CRITERION_SECTION}.absolute",
        flag=Flag(metavar="LOSS", value="number per name", note="NAME=0.2 for one metric, repeatable"),
    )
    higher_is_better: bool | Mapping[str, bool] = setting(
        True,
        "criterion",
        "False for scores such as perplexity, where lower is better. A dict sets it per metric.",
        yaml=f"{_CRITERION_SECTION}.higher_is_better",
        flag=Flag(value="direction"),
    )
    slices: Any = setting(
        None,
        "criterion",
        "Parts of the samples that are judged separately. "
        "A slice name for each sample, or a dict of indices or masks by slice name.",
        yaml=f"{_CRITERION_SECTION}.slices",
        flag=Flag(value="lines", note="a text file with a slice name for each sample, one per line"),
        check=validators.sample_slices,
    )
    slice_limit: float | Mapping[str, float] | None = setting(
        None,
        "criterion",
        "Allowed loss on each slice; by default the limit for all samples. A dict sets it per slice.",
        yaml=f"{_CRITERION_SECTION}.slice_limit",
        flag=Flag(metavar="LOSS", value="fraction per name", note="NAME=0.05 for one slice, repeatable"),
    )
    confidence: float | None = setting(
        None,
        "criterion",
        "Required confidence that the loss on new data is within the criterion, such as 0.95. "
        "It needs a score for each sample. By default the measured score alone decides.",
        yaml=f"{_CRITERION_SECTION}.confidence",
        flag=Flag(metavar="LEVEL"),
        check=validators.unchecked,
    )
    allow_any_loss: bool = setting(
        False,
        "criterion",
        "Allow a `relative` of 0.5 or more, which is refused otherwise. A loss of 1 % is 0.01.",
        yaml=f"{_CRITERION_SECTION}.allow_any_loss",
        flag=Flag(value="switch"),
    )
    max_latency: float | None = setting(
        None, "criterion", 'With objective="accuracy": maximum latency as a fraction of the fp32 latency.',
        flag=Flag(metavar="FRACTION", value="fraction", note="0.6 or 60%"), check=validators.unchecked,
    )  # fmt: skip
    max_size: float | str | None = setting(
        None, "criterion",
        'With objective="accuracy": maximum file size, as a fraction of the fp32 file or in bytes, such as "130MB".',
        flag=Flag(metavar="SIZE", value="size", note="0.4, 40%, 130MB or bytes"), check=validators.file_size,
    )  # fmt: skip
    max_bits: float | None = setting(
        None, "criterion",
        'With objective="accuracy": maximum mean bits of a weight, all in the file counted; the fp32 model has 32.',
        flag=Flag(metavar="BITS"), check=validators.unchecked,
    )  # fmt: skip
    early_stop: bool = setting(
        True,
        "criterion",
        "Stop an evaluation as soon as its scores rule the trial out. "
        "This needs an eval_func that yields scores batch by batch.",
        yaml=f"{_CRITERION_SECTION}.early_stop",
    )
    early_stop_delta: float = setting(
        0.05,
        "criterion",
        "Maximum probability of wrongly stopping a trial that would pass.",
        yaml=f"{_CRITERION_SECTION}.early_stop_delta",
        flag=Flag(metavar="PROBABILITY"),
        check=validators.probability,
    )
    confirm_tries: int = setting(
        3,
        "criterion",
        "Maximum number of trials that `confirm` scores, best first.",
        yaml=f"{_CRITERION_SECTION}.confirm_tries",
        check=validators.whole_number(1),
    )
    strategy: str | type[Strategy] | Strategy = setting(
        "auto",
        "search",
        "The search strategy: a name (see `quaver strategies`), a Strategy class or an instance.",
        yaml="tuning.strategy.name",
        flag=Flag(metavar="NAME", value="reference", note="FILE.py:CLASS for your own"),
    )
    strategy_options: PlainMapping = setting(
        dict,
        "search",
        "Keyword arguments for the constructor of the strategy.",
        yaml="tuning.strategy.options",
        flag=Flag(name="--strategy-option", metavar="KEY=VALUE", value="option", note="the value is YAML; repeatable"),
    )
    objective: str | Callable[[Any], float] | Objective | type[Objective] = setting(
        "latency",
        "search",
        f"What to minimize among trials that meet the criterion: {quoted_names()} or a function of the model. "
        '"accuracy" looks for the most accurate model within a target budget (`max_latency`, `max_size`, `max_bits`) '
        "instead of a criterion.",
        flag=Flag(
            metavar="NAME", value="reference", note="FILE.py:FUNCTION for your own; accuracy for a target budget"
        ),
    )
    timeout: float = setting(
        0.0,
        "search",
        "Seconds to keep improving; 0 stops at the first success. "
        "With a target budget, success is a trial within it that loses no accuracy; if there is none, the strategy "
        "runs to its end.",
        yaml="tuning.exit_policy.timeout",
        flag=Flag(metavar="SECONDS"),
        check=validators.unchecked,
    )
    max_trials: int = setting(
        100,
        "search",
        "Maximum number of evaluated trials, those of a resumed run included.",
        yaml="tuning.exit_policy.max_trials",
        check=validators.unchecked,
    )
    seed: int = setting(9527, "search", "Seed of every random choice.", yaml="tuning.random_seed")
    effort: str = setting(
        "normal",
        "search",
        "Work spent on measurements without labels: low, normal or high. "
        "low and normal use fewer samples for larger models, whatever the speed of the machine; high uses 16 samples "
        "for each op and 32 for each configuration. A resumed run keeps it.",
        flag=Flag(metavar="LEVEL"),
        check=validators.one_of(*EFFORTS),
    )
    start_from: str | os.PathLike[str] | None = setting(
        None,
        "search",
        "Workspace or snapshot of a run on an earlier version of the model; its best config is tried first.",
        flag=Flag(metavar="FOLDER"),
        check=validators.writable_path,
    )
    width: int | None = setting(
        None,
        "search",
        "Trials that a strategy proposes at once; by default as many as are evaluated at once. "
        "The same width gives the same trials on any number of workers.",
        yaml="tuning.workers.width",
        check=validators.whole_number(1),
    )
    calibration_sampling_size: int | Sequence[int] | None = setting(
        None,
        "quantization",
        "Number of calibration samples; by default at most 256. "
        "`fit` tries a list of sizes in order until one meets the criterion; other calls use the largest.",
        yaml="quantization.calibration.sampling_size",
        flag=Flag(value="int"),
        check=validators.sample_sizes,
    )
    op_name_dict: PlainMapping = setting(
        dict,
        "quantization",
        'Rules by op name, such as {"/head/.*": "fp32"}. See docs/rules.md.',
        yaml="quantization.op_name_dict",
        flag=Flag(name="--op-name", metavar="REGEX=RULE", value="rule", note=_RULE),
    )
    op_type_dict: PlainMapping = setting(
        dict,
        "quantization",
        'Rules by op type, such as {"Softmax": "fp32"}.',
        yaml="quantization.op_type_dict",
        flag=Flag(name="--op-type", metavar="TYPE=RULE", value="rule", note=_RULE),
    )
    quant_format: str | None = setting(
        None,
        "quantization",
        'Format of the int8 model: "qdq" or "qoperator" for ONNX, "float_io" or "full_integer" for TensorFlow. '
        '"full_integer" has int8 inputs and outputs. None is the default of the framework.',
        yaml="quantization.quant_format",
        flag=Flag(metavar="FORMAT"),
    )
    optimise_float: bool = setting(
        True,
        "quantization",
        "Rewrite the float graph before quantization so that it runs faster and computes the same.",
        yaml="quantization.optimise_float",
    )
    portable: bool | None = setting(
        None,
        "quantization",
        "Make int8 models compute the same on x86 processors with and without VNNI. "
        "True limits weights so that no sum overflows without VNNI. By default it is on where the adapter supports it.",
        yaml="quantization.portable",
        flag=Flag(note="default: yes where the adapter supports it"),
    )
    framework: str | None = setting(
        None,
        "quantization",
        "The framework whose adapter loads the model; by default the model decides.",
        yaml="model.framework",
        flag=Flag(metavar="NAME"),
    )
    runtime: str | None = setting(
        None, "timing", "What runs the model: `onnxruntime` (the default), `openvino`, or `fastest` of both; for ONNX."
    )
    threads: int = setting(
        0,
        "timing",
        "Threads of one inference, as deployed; 0 lets the runtime choose. With 0, latency is measured on one thread.",
    )
    batch: int = setting(
        1,
        "timing",
        "Samples per inference, as deployed; latency is measured at this batch. "
        "A model with a fixed batch is measured at that batch, and any number but 1 is refused.",
        check=validators.whole_number(1),
    )
    timing_cache: bool = setting(
        True,
        "timing",
        "Reuse op times that earlier runs on this model measured on this machine, and store new ones. "
        "The same call then gives the same model, even on a busy machine.",
    )
    cost_model: str | os.PathLike[str] | None = setting(
        None,
        "timing",
        "Op times of another machine, from `quaver profile --save`; latency is predicted for that machine. "
        "The latency on this machine is reported separately.",
        flag=Flag(metavar="FILE"),
        check=validators.path("the path of a file"),
    )
    n_jobs: int | None = setting(
        None,
        "execution",
        "Trials to evaluate at once, each in its own process; -1 uses every core, or every worker of a cluster. "
        "By default 1, or what `joblib.parallel_config` sets.",
        yaml="tuning.workers.n_jobs",
        flag=Flag(name="--jobs"),
        check=validators.jobs,
    )
    backend: str | None = setting(
        None,
        "execution",
        'Where workers run: "loky" (processes on this machine), "dask" or "ray"; by default the active joblib backend.',
        yaml="tuning.workers.backend",
        flag=Flag(metavar="NAME"),
        check=validators.backend,
    )
    scheduler: str | None = setting(
        None,
        "execution",
        'Address of the cluster, such as "tcp://host:8786"; by default the connected cluster.',
        yaml="tuning.workers.scheduler",
        flag=Flag(metavar="ADDRESS"),
    )
    isolate: bool = setting(
        False,
        "execution",
        "Evaluate in a separate process, so that a crash or a hang of eval_func does not end the run.",
        yaml="tuning.workers.isolate",
    )
    trial_timeout: float | str | None = setting(
        None,
        "execution",
        'Maximum seconds of one evaluation, or "10x" for ten times the fp32 evaluation; implies `isolate`. '
        "A longer evaluation is stopped, and the trial has failed.",
        yaml="tuning.workers.trial_timeout",
        flag=Flag(metavar="SECONDS", value="time limit"),
        check=validators.time_limit,
    )
    workspace: str | os.PathLike[str] | None = setting(
        None,
        "output",
        "Folder of the run; by default a dated folder in quaver_workspace/.",
        flag=Flag(metavar="FOLDER"),
        check=validators.writable_path,
    )
    resume: str | os.PathLike[str] | None = setting(
        None,
        "output",
        "Workspace or snapshot of an earlier run to continue. Settings that are not passed keep their earlier values.",
        flag=Flag(metavar="FOLDER", note="settings that are not passed keep their earlier values"),
        check=validators.writable_path,
    )
    report: bool = setting(
        True, "output", "Inspect the best model at the end, and write report.html into the workspace."
    )
    insights: bool = setting(False, "output", "Show the run live on a local web page. Observers are told its address.")
    diagnosis: bool = setting(
        False,
        "output",
        "Find out at the end which ops are bad in int8 and why; tables and causes go to the workspace. "
        "They are `result.diagnosis`, too, and printed unless `verbose` is 0.",
    )
    provenance: bool = setting(
        True,
        "output",
        "Record in saved models which versions, float model, criterion and scores they have; see `read_provenance`.",
    )

    def __post_init__(self) -> None:
        if self.relative is None and self.absolute is None and not traits_of(self.objective).needs_target_budget:
            object.__setattr__(self, "relative", 0.01)
        explicit = {name for name in (*CRITERION, *TARGET_BUDGET) if getattr(self, name) is not None}
        validators.check_target_budget(self.objective, explicit)
        for name, definition in settings_of(Config).items():
            object.__setattr__(self, name, definition.validated(getattr(self, name)))
        self.criterion, self.budget  # noqa: B018 - both check their values
        validators.check_loss(self.relative, self.allow_any_loss)
        if self.workspace is not None and self.resume is not None:
            raise SettingsError("pass `workspace` for a new run or `resume` for an earlier one, not both")

    @property
    def max_samples(self) -> int | None:
        """Return the number of calibration samples to use: the largest, if there are several sizes."""
        size = self.calibration_sampling_size
        return max(size) if isinstance(size, Sequence) else size

    @property
    def criterion(self) -> Criterion:
        """Return the accuracy criterion, or the target budget that replaces it."""
        if traits_of(self.objective).needs_target_budget:
            target_budget = TargetBudget(
                self.max_latency, parse_size(self.max_size), self.cost_model is not None, self.max_bits
            )
            return Criterion.within(target_budget, self.higher_is_better)
        return Criterion(
            self.relative, self.absolute, self.higher_is_better, slices=self.slices, slice_limit=self.slice_limit,
            confidence=self.confidence,
        )  # fmt: skip

    @property
    def budget(self) -> Budget:
        """Return the budget of the search: when to stop."""
        return Budget(self.timeout, self.max_trials)

    def to_dict(self) -> PlainDict:
        """Return the settings as builtins, to be recorded with the run. Functions and classes become their names."""
        return {name: _TO_BUILTINS.get(name, to_builtins)(getattr(self, name)) for name in settings_of(Config)}

    def changed(self) -> PlainDict:
        """Return the settings that differ from their defaults."""
        default = Config()
        return {name: value for name in settings_of(Config) if (value := getattr(self, name)) != getattr(default, name)}

    def __repr__(self) -> str:
        default = Config().to_dict()
        changed = {name: value for name, value in self.to_dict().items() if value not in (default[name], None)}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


_TO_BUILTINS: Mapping[str, Callable[[Any], Any]] = {
    "strategy": strategy_name,
    "objective": objective_name,
    "slices": lambda slices: None if slices is None else slices.to_dict(),
}
