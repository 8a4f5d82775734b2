"""A resumed run goes on with the settings it was started with. What is given and differs is applied, and said aloud."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from quaver.api.config.config import Config
from quaver.api.config.resolve import ResolvedSettings, merge_settings
from quaver.engine.events import SettingChanged
from quaver.engine.scoring.losses import Losses
from quaver.engine.timing.objective import make_objective
from quaver.errors import HistoryError, SettingsError
from quaver.history import History, read_snapshot
from quaver.strategies import make_strategy
from quaver.types import PlainDict, PlainMapping

# Where a run is kept, and how it is shown, is no matter of how it runs.
_PLACES = ("workspace", "resume", "report", "insights")
# What the calibration and the trials in the history were made with.
_FIXED = ("calibration_sampling_size", "quant_format", "optimise_float", "batch", "portable")


def settings_of_run(settings: ResolvedSettings, history: History) -> tuple[Config, list[SettingChanged]]:
    """Return the settings of the run that writes a history, and what changes where the run is resumed."""
    if history.header is None:
        return settings.config, []
    base = history.baseline
    earlier = dict(history.run.settings)
    if "batch" not in earlier and base is not None and base.measured.get("batch", 0) >= 1:
        # Before 0.3.0 there was no such setting, and the batch was that of the calibration data.
        earlier["batch"] = int(base.measured["batch"])
    config, changes = resumed_config(settings.explicit, earlier)
    if base is not None and base.score is not None:
        Losses(config.criterion, base).check()
    return config, changes


def earlier_settings(resume: str | os.PathLike[str] | None) -> PlainMapping:
    """Those of the run that is to be resumed; none if it is a new one, or cannot be read, which `fit` says better."""
    try:
        return {} if resume is None else read_snapshot(resume).run.settings
    except HistoryError:
        return {}


def resumed_config(explicit: PlainDict, earlier: PlainMapping) -> tuple[Config, list[SettingChanged]]:
    """Merge explicit settings over those that an earlier run recorded, and list what that changes."""
    names = [item.name for item in fields(Config) if item.name not in _PLACES]
    before = {name: earlier[name] for name in names if name in earlier}
    before.setdefault("optimise_float", False)  # before there was a choice, the graph stayed as given
    before.setdefault("portable", False)  # before there was a choice, weights used all 8 bits
    merged = merge_settings(before, explicit)
    if "allow_any_loss" not in earlier and not {"relative", "absolute"} & explicit.keys():
        merged.setdefault("allow_any_loss", True)  # a run of a version that did not ask
    config = Config(**merged)
    if "strategy" not in explicit:
        _find("strategy", config.strategy, lambda name: make_strategy(name, config.strategy_options))
    if "objective" not in explicit:
        _find("objective", config.objective, make_objective)
    now = config.to_dict()
    default = Config().to_dict()
    changes = [
        SettingChanged(name, was, now[name])
        for name in names
        if (was := before.get(name, default[name])) != now[name] and name in {*before, *explicit}
    ]
    for change in changes:
        if change.name in _FIXED:
            raise SettingsError(
                f"`{change.name}` is {change.now!r}, but {change.before!r} in the run that is resumed, and its trials "
                "rest on it: leave it out, or start a new run"
            )
    return config, changes


def changed_versions(before: Mapping[str, str], now: Mapping[str, str]) -> list[SettingChanged]:
    """The packages that are of another version than in the run that is resumed; the new run records them."""
    return [
        SettingChanged(f"the version of {name}", before[name], version)
        for name, version in now.items()
        if name in before and before[name] != version
    ]


def _find(setting: str, name: Any, find: Callable[[Any], object]) -> None:
    """What was an object of the user's is recorded by a name that says nothing here."""
    try:
        find(name)
    except SettingsError as error:
        raise SettingsError(f"the run used {setting} {name!r}, pass it again ({error})") from None
