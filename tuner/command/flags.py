"""Every field of `quaver.Config` as a flag. Flags that are not given leave the YAML file and a resumed run alone."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from quaver.api.config.config import Config
from quaver.api.config.resolve import ResolvedSettings, explicit_settings, merge_settings
from quaver.api.config.resume import earlier_settings, resumed_config
from quaver.command import user_files as loading
from quaver.errors import SettingsError
from quaver.files.paths import check_regular, expanded
from quaver.types import PlainDict, PlainMapping

_FIELDS = tuple(item.name for item in fields(Config))


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all settings to a parser."""
    goal = parser.add_argument_group("what to reach")
    add_criterion(goal)
    goal.add_argument(
        "--confidence",
        type=float,
        metavar="LEVEL",
        help="demand to be so sure (0.95) that the loss on such data is within the criterion; needs scores of samples",
    )
    goal.add_argument(
        "--early-stop",
        action=argparse.BooleanOptionalAction,
        help="end an evaluation that yields its scores when they rule the trial out (default: yes)",
    )
    goal.add_argument(
        "--early-stop-delta",
        type=float,
        metavar="CHANCE",
        help="that a trial is ended so which all samples would accept, at most (default: 0.05)",
    )
    goal.add_argument(
        "--confirm-tries",
        type=int,
        metavar="N",
        help="trials that --confirm scores at most (default: 3)",
    )
    goal.add_argument(
        "--allow-any-loss", action="store_true", help="allow a --relative of 0.5 and more, which is refused otherwise"
    )
    goal.add_argument(
        "--objective",
        metavar="NAME",
        help="what decides between trials within the criterion: latency, size, int8_ops or FILE.py:FUNCTION; "
        "accuracy takes a budget instead of a criterion",
    )
    goal.add_argument(
        "--max-latency",
        type=_fraction,
        metavar="PART",
        help="with --objective accuracy: what one inference may take, as a part of fp32's: 0.6 or 60%%",
    )
    goal.add_argument(
        "--max-size",
        type=_fraction,
        metavar="PART",
        help="with --objective accuracy: what the file may take, as a part of fp32's: 0.4 or 40%%",
    )

    goal.add_argument(
        "--cost-model",
        metavar="FILE",
        help="op times of the machine that the model is meant for, from `quaver profile --save` there",
    )

    search = parser.add_argument_group("how to search")
    search.add_argument("--strategy", metavar="NAME", help="a name (see `quaver strategies`) or FILE.py:CLASS")
    search.add_argument(
        "--strategy-option",
        dest="strategy_options",
        metavar="KEY=VALUE",
        type=pair("KEY=VALUE", str.partition),
        action="append",
        help="an option of the strategy, its value in YAML; repeatable",
    )
    search.add_argument(
        "--start-from",
        metavar="FOLDER",
        help="try the winner of a run on an earlier version of the model first: its workspace or history.snapshot",
    )
    search.add_argument("--timeout", type=float, metavar="SECONDS", help="0 stops at the first success")
    search.add_argument("--max-trials", type=int, metavar="N", help="trials that may be evaluated in all")
    search.add_argument("--seed", type=int, metavar="N", help="the only source of chance")
    add_rules(search)

    run = parser.add_argument_group("how to run")
    run.add_argument("--calibration-sampling-size", type=int, metavar="N", help="calibration samples to use")
    run.add_argument("--quant-format", metavar="FORMAT", help="qdq or qoperator; float_io or full_integer")
    run.add_argument(
        "--optimise-float",
        action=argparse.BooleanOptionalAction,
        help="rewrite the float graph, exactly, so that it is fast before it is quantized (default: yes)",
    )
    run.add_argument(
        "--portable",
        action=argparse.BooleanOptionalAction,
        help="the same int8 answers on x86 processors without VNNI as with it (default: yes where the framework can)",
    )
    run.add_argument(
        "--timing-cache",
        action=argparse.BooleanOptionalAction,
        help="use and keep what is measured of ops on this machine: the same call gives the same model (default: yes)",
    )
    run.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads of one inference; 0 lets the runtime decide, and measures latency on one",
    )
    run.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="samples of one inference, as it will be deployed: latency is measured at this batch (default: 1)",
    )
    run.add_argument(
        "--diagnosis",
        action=argparse.BooleanOptionalAction,
        help="say which ops are bad in int8 and why; tables go to the workspace",
    )
    run.add_argument(
        "--jobs",
        dest="n_jobs",
        type=int,
        metavar="N",
        help="trials to evaluate at once, each in a process of its own; -1 is one for each core or worker",
    )
    run.add_argument("--backend", metavar="NAME", help="who has the workers: loky (this machine), dask or ray")
    run.add_argument("--scheduler", metavar="ADDRESS", help="of the cluster, such as tcp://host:8786")
    run.add_argument(
        "--isolate",
        action=argparse.BooleanOptionalAction,
        help="evaluate in a process of its own, so that a crash or a hang of --eval does not end the run",
    )
    run.add_argument(
        "--trial-timeout",
        type=_limit,
        metavar="SECONDS",
        help="end an evaluation that takes longer; 10x is ten times what the fp32 model took. Implies --isolate",
    )
    run.add_argument(
        "--width", type=int, metavar="N", help="trials that a strategy proposes at once; as --jobs if not given"
    )
    run.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        help="look into the best model at the end and write report.html into the workspace (default: yes)",
    )
    run.add_argument(
        "--insights",
        action=argparse.BooleanOptionalAction,
        help="show the run on a web page of this machine while it goes on",
    )
    run.add_argument(
        "--provenance",
        action=argparse.BooleanOptionalAction,
        help="write into saved models where they come from: versions, criterion, scores (default: yes)",
    )
    run.add_argument("--framework", metavar="NAME", help="the framework the model must be of")
    run.add_argument("--workspace", metavar="FOLDER", help="the folder of the run")
    run.add_argument(
        "--resume",
        metavar="FOLDER",
        help="go on with an earlier run: its workspace or history.snapshot; all that is not given is as it was there",
    )
    parser.set_defaults(**dict.fromkeys(_FIELDS))  # None is a flag that was not given


def add_criterion(goal: Any) -> None:
    """Add the flags that say what may be lost."""
    goal.add_argument(
        "--relative",
        type=_one_or_named(_fraction),
        action="append",
        metavar="LOSS",
        help="allowed loss as a part of the fp32 score: 0.01 or 1%%; for one metric NAME=0.01, repeatable",
    )
    goal.add_argument(
        "--absolute",
        type=_one_or_named(float),
        action="append",
        metavar="LOSS",
        help="allowed loss in units of the score; for one metric NAME=0.2, repeatable",
    )
    goal.add_argument(
        "--lower-is-better",
        dest="higher_is_better",
        nargs="?",
        const=(None, False),
        type=lambda name: (name, False),
        action="append",
        metavar="METRIC",
        help="for scores like perplexity; for one metric with its name, repeatable",
    )
    goal.add_argument(
        "--higher-is-better",
        dest="higher_is_better",
        action="append_const",
        const=(None, True),
        help="for scores like accuracy",
    )
    goal.add_argument(
        "--slices",
        metavar="FILE",
        help="judge parts of the samples by themselves: a name for each, line by line",
    )
    goal.add_argument(
        "--slice-limit",
        type=_one_or_named(_fraction),
        action="append",
        metavar="LOSS",
        help="allowed loss on each slice; for one of them NAME=0.05, repeatable. As on all samples if not given",
    )


def add_rules(parser: Any) -> None:
    """Add the flags for rules on ops."""
    parser.add_argument(
        "--op-name",
        dest="op_name_dict",
        metavar="REGEX=RULE",
        type=pair("REGEX=fp32", str.rpartition),
        action="append",
        help="a rule for the ops of that name: fp32, int8, or the longer form in YAML; repeatable, added to the others",
    )
    parser.add_argument(
        "--op-type",
        dest="op_type_dict",
        metavar="TYPE=RULE",
        type=pair("Conv=fp32", str.rpartition),
        action="append",
        help="a rule for the ops of that type, such as Conv=fp32; repeatable, added to the others",
    )


class CommandLineSettings(NamedTuple):
    """The settings of a command line.

    Attributes:
        explicit: the settings of the YAML file, and of the flags on top.
        earlier: the settings that a resumed run recorded; empty for a new run.
    """

    explicit: PlainDict
    earlier: PlainMapping

    @property
    def resolved(self) -> ResolvedSettings:
        """Return the explicit settings, validated."""
        return ResolvedSettings.of(self.explicit)

    @property
    def config(self) -> Config:
        """Return all settings of the run, those of a resumed run included."""
        return resumed_config(self.explicit, self.earlier)[0] if self.earlier else self.resolved.config

    def with_changes(self, changes: PlainMapping) -> CommandLineSettings:
        """Return these settings with others on top."""
        return self._replace(explicit={**self.explicit, **changes})


def parse_settings(args: argparse.Namespace) -> CommandLineSettings:
    """Merge the YAML file, the flags and, for rules and options of a strategy, the run that is resumed."""
    file = _load_references(explicit_settings(args.config))
    flags = _load_references({name: getattr(args, name) for name in _FIELDS if getattr(args, name) is not None})
    earlier = earlier_settings(merge_settings(file, flags).get("resume"))
    lower = merge_settings(earlier, file)
    if "strategy_options" in flags and "strategy" in flags:  # the options of another strategy are dropped
        lower = merge_settings(lower, {"strategy": flags["strategy"]})
    for name in ("relative", "absolute", "slice_limit", "higher_is_better"):
        if name in flags:
            flags[name] = _one_or_dict(name, flags[name])
    for name in ("strategy_options", "op_name_dict", "op_type_dict"):
        if name in flags:
            flags[name] = _behind(lower.get(name), flags[name])
    return CommandLineSettings(merge_settings(file, flags), earlier)


def criterion(args: argparse.Namespace) -> PlainDict:
    """The settings that the flags of `add_criterion` say."""
    names = ("relative", "absolute", "slice_limit", "higher_is_better")
    found = {name: _one_or_dict(name, value) for name in names if (value := getattr(args, name)) is not None}
    return found if args.slices is None else {**found, "slices": loading.lines(args.slices, "--slices")}


def _load_references(settings: PlainDict) -> PlainDict:
    """The same with what FILE.py:NAME stands for, and with the slices that a file names."""
    if isinstance(settings.get("slices"), str):
        settings["slices"] = loading.lines(settings["slices"], "--slices")
    for name in ("strategy", "objective"):
        if loading.is_reference(settings.get(name)):
            settings[name] = loading.load(settings[name], f"--{name}")
    return settings


def _behind(there: Any, pairs: Sequence[tuple[str, Any]]) -> PlainDict:
    """Pairs added to a mapping, behind what is there: a later rule wins."""
    merged = dict(there) if isinstance(there, Mapping) else {}
    for key, value in pairs:
        merged.pop(key, None)
        merged[key] = value
    return merged


def _one_or_dict(name: str, given: Sequence[tuple[str | None, Any]]) -> Any:
    """A value for all, or values by name, from flags that may be repeated."""
    if all(key is not None for key, _ in given):
        return dict(given)
    if len(given) > 1 and any(key is not None for key, _ in given):
        flag = "--" + name.replace("_", "-")
        raise SettingsError(f"{flag} is given for all metrics and for {next(key for key, _ in given if key)!r}")
    return given[-1][1]


def _one_or_named(read: Callable[[str], float]) -> Callable[[str], tuple[str | None, float]]:
    """A parser of a number, or of NAME=number."""

    def parse(text: str) -> tuple[str | None, float]:
        name, _, number = text.rpartition("=")
        try:
            return name or None, read(number)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number, or NAME=number") from None

    return parse


def _fraction(text: str) -> float:
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number like 0.01 or 1%") from None


def _limit(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # "10x"; what is not is refused with all other settings


def pair(example: str, cut: Callable[[str, str], tuple[str, str, str]]) -> Callable[[str], tuple[str, Any]]:
    """A parser of KEY=VALUE with the value in YAML; `cut` says at which of several = to part them."""

    def parse(text: str) -> tuple[str, Any]:
        key, sign, value = cut(text, "=")
        if not key or not sign or not value:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {example}")
        try:
            return key, yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise argparse.ArgumentTypeError(f"{value!r} is not valid YAML ({error})") from None

    return parse


def check_output(output: str | None, model: str) -> Path | None:
    """Where to write; refused, before any work, where it cannot be meant or cannot be done."""
    if output is None:
        return None
    place, source = Path(expanded(output)), Path(expanded(model))
    if place.is_dir():
        raise SettingsError(f"-o takes a file to write, and {output!r} is a folder")
    check_regular(place, "-o: the model to write")
    if source.exists() and place.resolve() == source.resolve():
        raise SettingsError(f"-o {output!r} would overwrite the float model; choose another name")
    folder = next(folder for folder in place.absolute().parents if folder.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SettingsError(f"-o {output!r} cannot be written: {str(folder)!r} is no folder that can be written to")
    return place
