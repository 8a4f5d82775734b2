"""Make a flag of every setting. Flags that are not passed leave the YAML file and a resumed run as they are."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from quaver.adapters.generation import GenerationFolder
from quaver.api.config.config import Config
from quaver.api.config.resolve import ResolvedSettings, explicit_settings, merge_settings
from quaver.api.config.resume import earlier_settings, resumed_config
from quaver.api.config.setting import GROUPS, Setting, settings_of
from quaver.command import user_files
from quaver.errors import SettingsError
from quaver.files.paths import check_regular, expanded
from quaver.types import PlainDict, PlainMapping, PlainValue

_SETTINGS = settings_of(Config)
# What the settings are called on the command line that are arguments of `fit` beside them.
_ARGUMENTS = {"eval_func": "--eval", "confirm": "--confirm"}
# Flags that `quaver check` has, too: what may be lost.
_LOSS = ("relative", "absolute", "higher_is_better", "slices", "slice_limit")
_RULES = ("op_name_dict", "op_type_dict")


def add(parser: argparse.ArgumentParser, settings: Mapping[str, Setting] = _SETTINGS) -> None:
    """Add the flags of all settings to a parser, group by group."""
    for group, title in GROUPS.items():
        section = parser.add_argument_group(f"{group}: {title}")
        for setting in settings.values():
            if setting.group == group:
                _add_flag(section, setting)
    parser.set_defaults(**dict.fromkeys(settings))  # None is a flag that was not passed


def add_criterion(section: argparse._ActionsContainer) -> None:
    """Add the flags that say which loss is allowed."""
    for name in _LOSS:
        _add_flag(section, _SETTINGS[name])


def add_rules(parser: argparse._ActionsContainer) -> None:
    """Add the flags for rules on ops."""
    for name in _RULES:
        _add_flag(parser, _SETTINGS[name])


def _add_flag(section: argparse._ActionsContainer, setting: Setting) -> None:
    """Add the flag of one setting, according to its type or its `Flag.value`."""
    value = setting.flag.value or setting.kind
    if value == "direction":
        _add_direction(section, setting.name)
        return
    metavar: PlainDict = {} if setting.flag.metavar is None else {"metavar": setting.flag.metavar}
    arguments = {**READERS[value], **metavar}
    if value in _PAIRS:
        arguments["type"] = pair(arguments["metavar"], _PAIRS[value])
    section.add_argument(setting.flag_name, dest=setting.name, help=_help(setting), **arguments)


def _add_direction(section: argparse._ActionsContainer, name: str) -> None:
    section.add_argument(
        "--lower-is-better",
        dest=name,
        nargs="?",
        const=(None, False),
        type=lambda metric: (metric, False),
        action="append",
        metavar="METRIC",
        help="lower scores are better, as for perplexity (with the name of a metric, for that one; repeatable)",
    )
    section.add_argument(
        "--higher-is-better",
        dest=name,
        action="append_const",
        const=(None, True),
        help="higher scores are better, as for accuracy",
    )


def _help(setting: Setting) -> str:
    """Return the summary in the words of the command line, with its note and its default."""
    text = re.sub(r'(\w+)="(\w+)"', lambda match: f"{_flag_of(match[1])} {match[2]}", setting.summary)
    text = re.sub(r"`?\b(\w+)\b`?", lambda match: _flag_of(match[1], match[0]), text).rstrip(".")
    text = text[0].lower() + text[1:]
    notes = [] if setting.flag.note is None else [setting.flag.note]
    if (default := _default(setting)) is not None:
        notes.append(f"default: {default}")
    return (f"{text} ({'; '.join(notes)})" if notes else text).replace("%", "%%")


def _flag_of(name: str, text: str | None = None) -> str:
    """Return the flag of a setting or an argument in backticks, and anything else as it is."""
    text = f"`{name}`" if text is None else text
    if name in _ARGUMENTS and (text.startswith("`") or name == "eval_func"):
        return _ARGUMENTS[name]
    return _SETTINGS[name].flag_name if name in _SETTINGS and text.startswith("`") else text


def _default(setting: Setting) -> str | None:
    """Return a default as `--help` shows it."""
    if setting.flag.value == "switch" or setting.default is None or isinstance(setting.default, Mapping):
        return None
    if isinstance(setting.default, bool):
        return "yes" if setting.default else "no"
    return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)


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
    flags = _load_references(_passed(args, _SETTINGS))
    earlier = earlier_settings(merge_settings(file, flags).get("resume"))
    lower = merge_settings(earlier, file)
    if "strategy_options" in flags and "strategy" in flags:  # the options of another strategy are dropped
        lower = merge_settings(lower, {"strategy": flags["strategy"]})
    for name in flags:
        if (_SETTINGS[name].flag.value or _SETTINGS[name].kind) in _PAIRS:
            flags[name] = _append_pairs(lower.get(name), flags[name])
    return CommandLineSettings(merge_settings(file, flags), earlier)


def criterion(args: argparse.Namespace) -> PlainDict:
    """Return the settings of the flags of `add_criterion`."""
    return _load_references(_passed(args, _LOSS))


def _passed(args: argparse.Namespace, names: Iterable[str]) -> PlainDict:
    """Return the settings whose flags were passed."""
    passed = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return {
        name: _one_or_dict(name, value) if _SETTINGS[name].flag.value in _PER_NAME else value
        for name, value in passed.items()
    }


def _load_references(settings: PlainDict) -> PlainDict:
    """Replace each FILE.py:NAME by what it names, and the file of slices by its lines."""
    loaded = dict(settings)
    for name, value in settings.items():
        setting = _SETTINGS.get(name)
        if setting is not None and setting.flag.value == "lines" and isinstance(value, str):
            loaded[name] = user_files.lines(value, setting.flag_name)
        elif setting is not None and setting.flag.value == "reference" and user_files.is_reference(value):
            loaded[name] = user_files.load(value, setting.flag_name)
    return loaded


def _append_pairs(lower: PlainValue, pairs: Sequence[tuple[str, PlainValue]]) -> PlainDict:
    """Append pairs to a mapping, because a later rule wins."""
    merged = dict(lower) if isinstance(lower, Mapping) else {}
    for key, value in pairs:
        merged.pop(key, None)
        merged[key] = value
    return merged


def _one_or_dict(name: str, values: Sequence[tuple[str | None, PlainValue]]) -> PlainValue:
    """Return one value for all metrics, or a dict of values by name, from a flag that may be repeated."""
    if all(key is not None for key, _ in values):
        return dict(values)
    if len(values) > 1 and any(key is not None for key, _ in values):
        flag = "--" + name.replace("_", "-")
        metric = next(key for key, _ in values if key)
        raise SettingsError(f"{flag} is passed for all metrics and for {metric!r}: pass one or the other")
    return values[-1][1]


def _per_name(read: Callable[[str], float]) -> Callable[[str], tuple[str | None, float]]:
    """Return a parser of a number, or of NAME=number."""

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


def _time_limit(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # such as "10x"; `Config` refuses what is not possible


def pair(example: str, split: Callable[[str, str], tuple[str, str, str]]) -> Callable[[str], tuple[str, PlainValue]]:
    """Return a parser of KEY=VALUE with the value in YAML; `split` chooses among several "="."""

    def parse(text: str) -> tuple[str, PlainValue]:
        key, sign, value = split(text, "=")
        if not key or not sign or not value:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {example}")
        try:
            return key, yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise argparse.ArgumentTypeError(f"{value!r} is not valid YAML ({error})") from None

    return parse


# At which of several "=" a pair is split: names of ops may hold one, values of options too.
_PAIRS = {"option": str.partition, "mapping": str.partition, "rule": str.rpartition}
_PER_NAME = ("fraction per name", "number per name", "direction")
READERS: dict[str, PlainDict] = {
    "bool": {"action": argparse.BooleanOptionalAction},
    "switch": {"action": "store_true"},
    "int": {"type": int, "metavar": "N"},
    "float": {"type": float, "metavar": "NUMBER"},
    "text": {"metavar": "TEXT"},
    "path": {"metavar": "PATH"},
    "mapping": {"metavar": "KEY=VALUE", "action": "append"},
    "option": {"metavar": "KEY=VALUE", "action": "append"},
    "rule": {"metavar": "NAME=RULE", "action": "append"},
    "size": {"metavar": "SIZE"},
    "fraction": {"type": _fraction, "metavar": "FRACTION"},
    "fraction per name": {"type": _per_name(_fraction), "action": "append"},
    "number per name": {"type": _per_name(float), "action": "append"},
    "time limit": {"type": _time_limit, "metavar": "SECONDS"},
    "reference": {"metavar": "NAME"},
    "lines": {"metavar": "FILE"},
}
"""The arguments of `add_argument` by the kind of value: `Flag.value`, or else the kind of the setting's type."""


def check_output(output: str | None, model: str) -> Path | None:
    """Return where to write the model; refuse, before any work, a target that cannot be written."""
    if output is None:
        return None
    target, source = Path(expanded(output)), Path(expanded(model))
    is_folder = GenerationFolder.of(source) is not None and not target.suffix
    if target.is_dir() and not is_folder:
        raise SettingsError(f"-o takes a file to write, and {output!r} is a folder")
    check_regular(target, "-o: the model to write", folders=is_folder)
    if source.exists() and target.resolve() == source.resolve():
        raise SettingsError(f"-o {output!r} would overwrite the float model; choose another name")
    folder = next(folder for folder in target.absolute().parents if folder.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SettingsError(f"-o {output!r} cannot be written: {str(folder)!r} is not a writable folder")
    return target
