"""The settings of a run with the sections of Neural Compressor's files: `cfg.tuning.strategy.name = "mse"`."""

from __future__ import annotations

from typing import Any

from quaver.api.config.layout import YAML_LAYOUT
from quaver.errors import SettingsError
from quaver.suggestions import hint
from quaver.types import PlainDict


class SettingsView:
    """One section: its attributes are sections and settings, which can be read and set."""

    def __init__(self, settings: PlainDict, section: str = "") -> None:
        object.__setattr__(self, "_settings", settings)
        object.__setattr__(self, "_section", section)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        key = f"{self._section}{name}"
        if YAML_LAYOUT.get(key) is not None:
            return self._settings.get(YAML_LAYOUT[key])
        if any(other.startswith(f"{key}.") for other in YAML_LAYOUT):
            return SettingsView(self._settings, f"{key}.")
        raise self._unknown(name)

    def __setattr__(self, name: str, value: Any) -> None:
        setting = YAML_LAYOUT.get(f"{self._section}{name}")
        if setting is None:
            raise self._unknown(name)
        self._settings[setting] = value

    def _unknown(self, name: str) -> SettingsError:
        inner = [key.removeprefix(self._section).split(".")[0] for key in YAML_LAYOUT if key.startswith(self._section)]
        return SettingsError(f"cfg.{self._section}{name} is not a setting; {hint(name, sorted(set(inner)))}")
