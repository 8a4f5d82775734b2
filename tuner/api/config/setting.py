"""Define settings: one dataclass field holds all that the keywords, YAML files, flags and docs say of a setting."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from quaver.api.config.validators import Validator, boolean, mapping, name, path, real_number, whole_number
from quaver.types import PlainValue

Group: TypeAlias = Literal["criterion", "search", "quantization", "timing", "execution", "output"]

GROUPS: dict[Group, str] = {
    "criterion": "what a trial must meet",
    "search": "how trials are chosen",
    "quantization": "what is quantized, and how",
    "timing": "how latency is measured",
    "execution": "where trials run",
    "output": "what a run reads and writes",
}
"""The groups of settings, in the order in which docs and `--help` show them."""

Kind: TypeAlias = Literal["bool", "int", "float", "text", "path", "mapping", "other"]

_VALIDATORS: dict[Kind, Validator] = {
    "bool": boolean,
    "int": whole_number(0),
    "float": real_number,
    "text": name,
    "path": path("a path"),
    "mapping": mapping,
}
_METADATA = "setting"


@dataclass(frozen=True, kw_only=True)
class Flag:
    """The command-line form of a setting, as far as its type does not say it.

    Attributes:
        name: the flag; by default `--` and the name of the setting.
        metavar: stands for the value in `--help`.
        value: how the text is read; a key of `quaver.command.flags.READERS`. By default the type decides.
        note: what only holds on the command line; `--help` adds it to the summary.
    """

    name: str | None = None
    metavar: str | None = None
    value: str | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Definition:
    group: Group
    doc: str
    yaml: str | None
    flag: Flag
    check: Validator | None


@dataclass(frozen=True)
class Setting:
    """All that is known of one setting.

    Attributes:
        name: its keyword in Python.
        default: its default.
        kind: what its type comes to: what its flag takes and how it is checked.
        optional: True if None is allowed.
        takes_mapping: True if it takes a dict with keys of the user.
        group: the group that docs and `--help` show it in.
        doc: what it does.
        yaml: its place in the nested layout of a YAML file.
        flag: its form on the command line.
        check: checks a value and returns it, perhaps in another form.
    """

    name: str
    default: PlainValue
    kind: Kind
    optional: bool
    takes_mapping: bool
    group: Group
    doc: str
    yaml: str
    flag: Flag
    check: Validator | None

    @property
    def summary(self) -> str:
        """Return the first sentence of the doc."""
        return self.doc.partition(". ")[0].rstrip(".") + "."

    @property
    def flag_name(self) -> str:
        """Return the name of its flag."""
        return self.flag.name or "--" + self.name.replace("_", "-")

    def validated(self, value: PlainValue) -> PlainValue:
        """Check a value and return it as the run uses it."""
        return value if self.check is None or (value is None and self.optional) else self.check(self.name, value)


def setting(
    default: PlainValue,
    group: Group,
    doc: str,
    *,
    yaml: str | None = None,
    flag: Flag | None = None,
    check: Validator | None = None,
) -> Any:
    """Declare a setting as a dataclass field.

    Args:
        default: the default; a function that makes it if it is mutable.
        group: the group that docs and `--help` show it in.
        doc: what it does, in one sentence, which `--help` shows, too; further sentences are for the docs alone.
        yaml: its place in a YAML file; by default `tuning.` and its name.
        flag: its form on the command line, where its type does not say it.
        check: checks a value and returns it; by default the type decides.
    """
    definition = _Definition(group=group, doc=doc, yaml=yaml, flag=flag or Flag(), check=check)
    metadata = {_METADATA: definition}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def settings_of(config: type) -> Mapping[str, Setting]:
    """Return the settings that a dataclass defines, by name."""
    hints = typing.get_type_hints(config)
    return types.MappingProxyType(
        {field.name: _setting(field, hints[field.name]) for field in dataclasses.fields(config)}
    )


def _setting(field: dataclasses.Field[object], hint: object) -> Setting:
    definition: _Definition = field.metadata[_METADATA]
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    kind = _kind(hint)
    return Setting(
        name=field.name,
        default=default,
        kind=kind,
        optional=bool({types.NoneType, Any} & set(_members(hint))),
        takes_mapping=any(member is Any or _is_mapping(member) for member in _members(hint)),
        group=definition.group,
        doc=definition.doc,
        yaml=definition.yaml or f"tuning.{field.name}",
        flag=definition.flag,
        check=definition.check or _VALIDATORS.get(kind),
    )


def _kind(hint: object) -> Kind:
    members = {member for member in _members(hint) if member is not types.NoneType}
    if members == {str, os.PathLike[str]}:
        return "path"
    if len(members) != 1:
        return "other"
    (member,) = members
    if _is_mapping(member):
        return "mapping"
    kinds: dict[object, Kind] = {bool: "bool", int: "int", float: "float", str: "text"}
    return kinds.get(member, "other")


def _members(hint: object) -> tuple[object, ...]:
    """Return the types of a union, or the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _is_mapping(hint: object) -> bool:
    return typing.get_origin(hint) is collections.abc.Mapping
