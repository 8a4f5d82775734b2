"""Merge the settings of a resumed run with the settings of the call. Changed settings take effect and are reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from quaver.api.config.config import Config
from quaver.api.config.resolve import ResolvedSettings, merge_settings
from quaver.api.config.setting import settings_of
from quaver.engine.events import SettingChanged
from quaver.engine.scoring.losses import Losses
from quaver.engine.timing.objective import make_objective
from quaver.errors import HistoryError, SettingsError
from quaver.history import History, read_snapshot
from quaver.strategies import make_strategy
from quaver.types import PlainDict, PlainMapping, PlainValue

# Settings that a resumed run does not take over: where a run is stored and how it is shown.
_NOT_TAKEN_OVER = ("workspace", "resume", "report", "insights")
# Settings that cannot change, because the recorded calibration, measurements and trials depend on them.
_FIXED = ("calibration_sampling_size", "quant_format", "optimise_float", "batch", "portable", "effort")


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
    """Return the settings that a run recorded. They are empty if it cannot be read, which `fit` reports later."""
    try:
        return {} if resume is None else read_snapshot(resume).run.settings
    except HistoryError:
        return {}


def resumed_config(explicit: PlainDict, earlier: PlainMapping) -> tuple[Config, list[SettingChanged]]:
    """Merge explicit settings over those that an earlier run recorded, and list what that changes."""
    names = [name for name in settings_of(Config) if name not in _NOT_TAKEN_OVER]
    before = {name: earlier[name] for name in names if name in earlier}
    before.setdefault("optimise_float", False)  # runs before 0.2.0 did not rewrite the graph
    before.setdefault("portable", False)  # runs before 0.3.0 used all 8 bits of a weight
    before.setdefault("effort", "high")  # runs before 0.3.0 measured on as many samples
    merged = merge_settings(before, explicit)
    if "allow_any_loss" not in earlier and not {"relative", "absolute"} & explicit.keys():
        merged.setdefault("allow_any_loss", True)  # earlier versions did not ask for it
    config = Config(**merged)
    if "strategy" not in explicit:
        _check_recorded("strategy", config.strategy, lambda name: make_strategy(name, config.strategy_options))
    if "objective" not in explicit:
        _check_recorded("objective", config.objective, make_objective)
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
                "depend on it: leave it out, or start a new run"
            )
    return config, changes


def changed_versions(before: Mapping[str, str], now: Mapping[str, str]) -> list[SettingChanged]:
    """Return the packages whose version differs from the resumed run's; the new run records them."""
    return [
        SettingChanged(f"the version of {name}", before[name], version)
        for name, version in now.items()
        if name in before and before[name] != version
    ]


def _check_recorded(setting: str, name: PlainValue, find: Callable[[PlainValue], object]) -> None:
    """Refuse a recorded name that leads to nothing, because the earlier run had an object of the user."""
    try:
        find(name)
    except SettingsError as error:
        raise SettingsError(f"the run used {setting} {name!r}, pass it again ({error})") from None
