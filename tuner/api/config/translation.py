"""What the words of another tool come to: settings, problems, and what is not needed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from quaver.types import PlainDict


class Setting(NamedTuple):
    """A word that has a counterpart.

    Attributes:
        name: of the setting of quaver.
        value: of the setting.
        weak: whether it only counts if no other word says the same setting.
    """

    name: str
    value: Any
    weak: bool = False


class Problem(NamedTuple):
    """A word without counterpart, or with a value that has none.

    Attributes:
        key: where it stands, such as "quantization.recipes.layer_wise_quant".
        instead: why it cannot be done, and what to use or to do instead.
    """

    key: str
    instead: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.instead}"


class IgnoredSetting(NamedTuple):
    """A word that asks for nothing which is not given to `fit` in code, or known from the model. It is left out.

    Attributes:
        key: where it stands.
        why: it is not needed.
    """

    key: str
    why: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.why}"


Said = Setting | Problem | IgnoredSetting
# Given where a word stands and its value: what it says. None leaves it to quaver's own reader: it is a word of both.
Reader = Callable[[str, Any], Iterable[Said] | None]


class Translation(NamedTuple):
    """A configuration in the words of another tool, read.

    Attributes:
        settings: by name, what the words come to.
        problems: every word without counterpart.
        idle: words that are not needed.
        rest: what is left of the configuration: words of quaver, or of nobody.
    """

    settings: PlainDict
    problems: tuple[Problem, ...]
    idle: tuple[IgnoredSetting, ...]
    rest: dict[Any, Any]


class Collected:
    """Gathers what words say, and sees where two of them contradict each other."""

    def __init__(self) -> None:
        self.settings: PlainDict = {}
        self.problems: list[Problem] = []
        self.idle: list[IgnoredSetting] = []
        self._said: dict[str, tuple[str, Any]] = {}
        self._weak: PlainDict = {}

    def add(self, key: str, found: Iterable[Said]) -> None:
        """Add what the word at a place says."""
        for one in found:
            if isinstance(one, Problem):
                self.problems.append(one)
            elif isinstance(one, IgnoredSetting):
                self.idle.append(one)
            elif one.weak:
                self._weak[one.name] = one.value
            else:
                self._set(key, one.name, one.value)

    def _set(self, key: str, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            value = merged(self.settings.get(name, {}), value)
        elif name in self._said and self._said[name][1] != value:
            before, other = self._said[name]
            self.problems.append(Problem(key, f"means {name} {value!r}, and {before!r} means {other!r}: give one only"))
            return
        self._said[name] = key, value
        self.settings[name] = value

    def words(self, rest: dict[Any, Any], also_said: Iterable[str]) -> Translation:
        """All of it. `also_said` are settings that the rest names in quaver's own way."""
        said = {*self.settings, *also_said}
        weak = {name: value for name, value in self._weak.items() if name not in said}
        return Translation({**weak, **self.settings}, tuple(self.problems), tuple(self.idle), rest)


def merged(below: Mapping[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
    """Two mappings as one, mappings inside them too; of two values the one above counts."""
    both = dict(below)
    for key, value in above.items():
        before = both.get(key)
        both[key] = merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return both


def as_list(value: Any) -> list[Any]:
    """A list, a single value, or a text with commas, as a list."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return [value]


def leaves(content: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a nested mapping with the dotted place where it stands; an empty mapping is a value."""
    for key, value in content.items():
        place = f"{above}.{key}" if above else str(key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, place)
        else:
            yield place, value
