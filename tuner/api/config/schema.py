"""The JSON schema of YAML files, derived from `Config`: editors complete and check files with it."""

from __future__ import annotations

from collections.abc import Mapping

from quaver.api.config.config import Config
from quaver.api.config.layout import YAML_LAYOUT
from quaver.api.config.setting import Kind, Setting, settings_of
from quaver.types import PlainDict

_TYPES: Mapping[Kind, list[str]] = {
    "bool": ["boolean"],
    "int": ["integer"],
    "float": ["number"],
    "text": ["string"],
    "path": ["string"],
    "mapping": ["object"],
}


def json_schema() -> PlainDict:
    """Return the schema of a file: the nested layout, or the names of the settings without sections."""
    settings = settings_of(Config)
    properties: PlainDict = {name: _value(setting) for name, setting in settings.items()}
    for key, name in YAML_LAYOUT.items():
        *sections, last = key.split(".")
        place = properties
        for section in sections:
            entry = place.setdefault(section, {"type": "object", "additionalProperties": False, "properties": {}})
            place = entry["properties"]
        place[last] = {} if name is None else _value(settings[name])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of quaver",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _value(setting: Setting) -> PlainDict:
    schema: PlainDict = {"description": setting.doc}
    if setting.kind in _TYPES:
        types = [*_TYPES[setting.kind], *(["null"] if setting.optional else [])]
        schema["type"] = types[0] if len(types) == 1 else types
    if isinstance(setting.default, bool | int | float | str):
        schema["default"] = setting.default
    return schema
