"""Every field of `quaver.Config` as a flag. Flags that are not given leave the YAML file alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from quaver.api.settings import Config, make_config
from quaver.command import loading
from quaver.errors import SettingsError

_FIELDS = tuple(item.name for item in fields(Config))


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all settings to a parser."""
    goal = parser.add_argument_group("what to reach")
    goal.add_argument(
        "--relative", type=_fraction, metavar="LOSS", help="allowed loss as a part of the fp32 score: 0.01 or 1%%"
    )
    goal.add_argument("--absolute", type=float, metavar="LOSS", help="allowed loss in units of the score")
    goal.add_argument(
        "--lower-is-better", dest="higher_is_better", action="store_false", help="for scores like perplexity"
    )
    goal.add_argument(
        "--higher-is-better", dest="higher_is_better", action="store_true", help="for scores like accuracy"
    )
    goal.add_argument(
        "--objective",
        metavar="NAME",
        help="what decides between trials within the criterion: latency, size, int8_ops or FILE.py:FUNCTION",
    )

    search = parser.add_argument_group("how to search")
    search.add_argument("--strategy", metavar="NAME", help="a name (see `quaver strategies`) or FILE.py:CLASS")
    search.add_argument(
        "--strategy-option",
        dest="strategy_options",
        metavar="KEY=VALUE",
        type=_pair("KEY=VALUE", str.partition),
        action="append",
        help="an option of the strategy, its value in YAML; repeatable",
    )
    search.add_argument("--timeout", type=float, metavar="SECONDS", help="0 stops at the first success")
    search.add_argument("--max-trials", type=int, metavar="N", help="trials that may be evaluated in all")
    search.add_argument("--seed", type=int, metavar="N", help="the only source of chance")
    add_rules(search)

    run = parser.add_argument_group("how to run")
    run.add_argument("--calibration-sampling-size", type=int, metavar="N", help="calibration samples to use")
    run.add_argument("--quant-format", metavar="FORMAT", help="qdq or qoperator")
    run.add_argument("--threads", type=int, metavar="N", help="threads of one inference; 0 lets the runtime decide")
    run.add_argument(
        "--diagnosis", action="store_true", help="say which ops are bad in int8 and why; tables go to the workspace"
    )
    run.add_argument("--framework", metavar="NAME", help="the framework the model must be of")
    run.add_argument("--workspace", metavar="FOLDER", help="the folder of the run")
    run.add_argument("--resume", metavar="FOLDER", help="go on with an earlier run: its workspace or history.snapshot")
    parser.set_defaults(**dict.fromkeys(_FIELDS))  # None is a flag that was not given


def add_rules(parser: Any) -> None:
    """Add the flags for rules on ops."""
    parser.add_argument(
        "--op-name",
        dest="op_name_dict",
        metavar="REGEX=RULE",
        type=_pair("REGEX=fp32", str.rpartition),
        action="append",
        help="a rule for the ops of that name: fp32, int8, or the longer form in YAML; repeatable, added to the file's",
    )
    parser.add_argument(
        "--op-type",
        dest="op_type_dict",
        metavar="TYPE=RULE",
        type=_pair("Conv=fp32", str.rpartition),
        action="append",
        help="a rule for the ops of that type, such as Conv=fp32; repeatable, added to the file's",
    )


def config(args: argparse.Namespace) -> Config:
    """The settings: the YAML file, if there is one, with the flags that were given on top."""
    given: dict[str, Any] = {name: getattr(args, name) for name in _FIELDS if getattr(args, name) is not None}
    base = make_config(args.config)
    if "strategy_options" in given or given.get("strategy", base.strategy) != base.strategy:
        same = given.get("strategy", base.strategy) == base.strategy
        given["strategy_options"] = _on_top(base.strategy_options if same else {}, given.get("strategy_options", ()))
    for name in ("op_name_dict", "op_type_dict"):
        if name in given:
            given[name] = _on_top(getattr(base, name), given[name])
    # A flag for the one replaces the file's word for the other.
    if "resume" in given:
        given.setdefault("workspace", None)
    elif "workspace" in given:
        given.setdefault("resume", None)
    chosen = make_config(args.config, **given)
    for name in ("strategy", "objective"):
        reference = getattr(chosen, name)
        if loading.is_reference(reference):
            chosen = replace(chosen, **{name: loading.load(reference, f"--{name}")})
    return chosen


def _on_top(below: Any, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Pairs added to a mapping, behind what is there: a later rule wins."""
    merged = dict(below)
    for key, value in pairs:
        merged.pop(key, None)
        merged[key] = value
    return merged


def _fraction(text: str) -> float:
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number like 0.01 or 1%") from None


def _pair(example: str, cut: Callable[[str, str], tuple[str, str, str]]) -> Callable[[str], tuple[str, Any]]:
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


def check_output(output: str | None, model: str) -> None:
    """Refuse, before any work, to write where it cannot be meant."""
    if output is None:
        return
    place = Path(output)
    if place.is_dir():
        raise SettingsError(f"-o takes a file to write, and {output!r} is a folder")
    if Path(model).exists() and place.resolve() == Path(model).resolve():
        raise SettingsError(f"-o {output!r} would overwrite the float model; choose another name")
