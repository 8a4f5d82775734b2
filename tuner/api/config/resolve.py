"""Read, merge and validate the settings of one call, once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeAlias

from quaver.api.config.config import Config
from quaver.api.config.load import read_settings
from quaver.api.config.serialize import strategy_name
from quaver.api.config.setting import settings_of
from quaver.api.config.validators import CRITERION, TARGET_BUDGET
from quaver.errors import SettingsError
from quaver.objective_traits import traits_of
from quaver.suggestions import hint
from quaver.types import PlainDict, PlainMapping

ConfigLike: TypeAlias = Config | PlainMapping | str | os.PathLike[str] | None
"""A `Config`, a dict, the path of a YAML file, or nothing."""

# Of each pair, only one may be set.
_EXCLUSIVE = (("relative", "absolute"), ("workspace", "resume"))


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """The settings of one call.

    Attributes:
        config: every setting, validated.
        explicit: the settings that the caller passed. A resumed run takes all others from the earlier run.
    """

    config: Config
    explicit: PlainDict

    @classmethod
    def of(cls, explicit: PlainDict) -> ResolvedSettings:
        """Validate settings."""
        return cls(Config(**explicit), explicit)

    def replace(self, **changes: object) -> ResolvedSettings:
        """Return these settings with some of them changed."""
        return ResolvedSettings.of({**self.explicit, **changes})


def resolve_settings(config: ConfigLike, keywords: PlainMapping) -> ResolvedSettings:
    """Read a configuration, merge keywords over it and validate the result.

    Raises:
        SettingsError: a name is unknown, or a value is not possible.
    """
    check_names(keywords)
    return ResolvedSettings.of(merge_settings(explicit_settings(config), keywords))


def make_config(config: ConfigLike, **keywords: object) -> Config:
    """Return the validated settings of a configuration with keywords on top."""
    return resolve_settings(config, keywords).config


def check_names(keywords: PlainMapping) -> None:
    """Refuse a keyword that is not a setting."""
    names = list(settings_of(Config))
    for name in keywords:
        if name not in names:
            raise SettingsError(f"unknown setting {name!r}; {hint(name, names)}")


def explicit_settings(config: ConfigLike) -> PlainDict:
    """Return the settings that a configuration sets: all keys of a file or a dict, the changed fields of a Config."""
    if config is None:
        return {}
    if isinstance(config, Config):
        return config.changed()
    return read_settings(config)


def merge_settings(lower: PlainMapping, upper: PlainMapping) -> PlainDict:
    """Merge settings; those of `upper` win, and remove the settings of `lower` that they exclude.

    A new strategy also drops the options of the one it replaces.
    """
    remaining = dict(lower)
    for pair in _EXCLUSIVE:
        for name, excluded in (pair, pair[::-1]):
            if upper.get(name) is not None and excluded not in upper:
                remaining.pop(excluded, None)
    dropped: tuple[str, ...] = ()
    if traits_of(upper.get("objective")).needs_target_budget:
        dropped = (*CRITERION, "allow_any_loss")
    elif upper.get("objective") is not None:
        dropped = TARGET_BUDGET
    for name in dropped:
        if name not in upper:
            remaining.pop(name, None)
    if "strategy" in upper and strategy_name(upper["strategy"]) != strategy_name(lower.get("strategy", "auto")):
        remaining.pop("strategy_options", None)
    return {**remaining, **upper}
