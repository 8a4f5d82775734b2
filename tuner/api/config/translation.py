"""Collect what the configuration of another tool translates to: settings, problems, and keys that can be ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from quaver.types import PlainDict, PlainValue

YamlMapping: TypeAlias = Mapping[PlainValue, PlainValue]
"""A mapping of a YAML file, whose keys may be of any type."""


class TranslatedSetting(NamedTuple):
    """A key that has a counterpart.

    Attributes:
        name: the setting of quaver.
        value: its value.
        weak: True if it only counts where no other key sets the same setting.
    """

    name: str
    value: PlainValue
    weak: bool = False


class Problem(NamedTuple):
    """A key without a counterpart, or with a value that has none.

    Attributes:
        key: its place, such as "quantization.recipes.layer_wise_quant".
        advice: why it is not possible, and what to use or to do instead.
    """

    key: str
    advice: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.advice}"


class IgnoredSetting(NamedTuple):
    """A key that needs no setting, because `fit` gets it in code or reads it from the model.

    Attributes:
        key: its place.
        reason: why it is not needed.
    """

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.reason}"


TranslatedKey: TypeAlias = TranslatedSetting | Problem | IgnoredSetting
Translator: TypeAlias = Callable[[str, PlainValue], Iterable[TranslatedKey] | None]
"""Takes the place of a key and its value; returns None for a key that quaver has too, and reads itself."""


class Translation(NamedTuple):
    """The configuration of another tool, translated.

    Attributes:
        settings: the translated settings, by name.
        problems: every key without a counterpart.
        ignored: keys that are not needed.
        remaining: the keys that were not translated: quaver's own, or unknown ones.
    """

    settings: PlainDict
    problems: tuple[Problem, ...]
    ignored: tuple[IgnoredSetting, ...]
    remaining: dict[PlainValue, PlainValue]


class TranslationBuilder:
    """Collects translated keys, and notices where two of them contradict each other."""

    def __init__(self) -> None:
        self._settings: PlainDict = {}
        self._weak: PlainDict = {}
        self._problems: list[Problem] = []
        self._ignored: list[IgnoredSetting] = []
        self._sources: dict[str, tuple[str, PlainValue]] = {}

    def add(self, key: str, translated: Iterable[TranslatedKey]) -> None:
        """Add what the key at a place translates to."""
        for item in translated:
            if isinstance(item, Problem):
                self._problems.append(item)
            elif isinstance(item, IgnoredSetting):
                self._ignored.append(item)
            elif item.weak:
                self._weak[item.name] = item.value
            else:
                self._set(key, item.name, item.value)

    def _set(self, key: str, name: str, value: PlainValue) -> None:
        if isinstance(value, Mapping):
            value = merge_mappings(self._settings.get(name, {}), value)
        elif name in self._sources and self._sources[name][1] != value:
            other_key, other = self._sources[name]
            problem = f"means {name} {value!r}, and {other_key!r} means {other!r}: leave one of them out"
            self._problems.append(Problem(key, problem))
            return
        self._sources[name] = key, value
        self._settings[name] = value

    def build(self, remaining: dict[PlainValue, PlainValue], own_settings: Iterable[str]) -> Translation:
        """Return the translation. `own_settings` are settings that the remaining keys set in quaver's own way."""
        names = {*self._settings, *own_settings}
        weak = {name: value for name, value in self._weak.items() if name not in names}
        return Translation({**weak, **self._settings}, tuple(self._problems), tuple(self._ignored), remaining)


def merge_mappings(lower: YamlMapping, upper: YamlMapping) -> dict[PlainValue, PlainValue]:
    """Merge two mappings, and mappings inside them; of two values, the upper one counts."""
    merged = dict(lower)
    for key, value in upper.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_mappings(before, value)
        else:
            merged[key] = value
    return merged


def as_list(value: PlainValue) -> list[PlainValue]:
    """Return a list, a single value, or a text with commas, as a list."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return [value]


def leaves(content: YamlMapping, section: str = "") -> Iterator[tuple[str, PlainValue]]:
    """Yield every value of a nested mapping with its dotted place; an empty mapping is a value."""
    for key, value in content.items():
        place = f"{section}.{key}" if section else str(key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, place)
        else:
            yield place, value
