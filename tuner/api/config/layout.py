"""Derive the nested layout of YAML files from the settings."""

from __future__ import annotations

from quaver.api.config.config import Config
from quaver.api.config.setting import settings_of

_SETTINGS = settings_of(Config)
# Keys that are for the reader: they are accepted, and nothing depends on them.
_IGNORED: dict[str, str | None] = {"version": None, "model.name": None}


def _position(key: str) -> tuple[str, bool]:
    """Sort by section, and keys with a section of their own inside before those that hold a value."""
    return key.split(".")[0], key.count(".") < 2


_KEYS: dict[str, str | None] = {**_IGNORED, **{setting.yaml: name for name, setting in _SETTINGS.items()}}

YAML_LAYOUT = {key: _KEYS[key] for key in ("version", *sorted(list(_KEYS)[1:], key=_position))}
"""The setting at each key of a file, in the order of a file; None for keys that set nothing."""

NAMES = tuple(_SETTINGS)
SECTIONS = frozenset(path.split(".")[0] for path in YAML_LAYOUT)
# Values of these are mappings with keys of the user, which are checked elsewhere.
OPEN = frozenset(setting.yaml for setting in _SETTINGS.values() if setting.takes_mapping)


def is_own(key: str) -> bool:
    """Return True for a setting's name or its key in the layout."""
    return key in YAML_LAYOUT or key in NAMES
