"""Read settings from a dict or a YAML file: nested, flat by their names, or as Neural Compressor calls them.

All mistakes of a file are named in one error.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from quaver.api.config.layout import NAMES, OPEN, SECTIONS, YAML_LAYOUT
from quaver.api.config.neural_compressor import translate
from quaver.api.config.translation import Translation, YamlMapping, merge_mappings
from quaver.api.display.warnings import levels_to_the_caller
from quaver.errors import SettingsError
from quaver.files.paths import check_regular, expanded
from quaver.suggestions import hint, nearest
from quaver.types import PlainDict, PlainMapping, PlainValue

# More than a file written by hand can hold; judgement. The number of values is that of the file with each alias
# written out, because "billion laughs" are a kilobyte.
MAX_BYTES = 512 * 1024
MAX_VALUES = 100_000
MAX_DEPTH = 50
# Python refuses to print an int of more than 4300 digits, and an error shows the value.
MAX_SCALAR = 3000

if TYPE_CHECKING:
    _BaseLoader = yaml.SafeLoader
else:
    _BaseLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooLarge(ValueError):
    """The file is too large for a configuration."""


def load_yaml(path: Path) -> PlainValue:
    """Return the content of a YAML file.

    Raises:
        OSError: the file cannot be read.
        TooLarge: the file is too large, or would be with its aliases written out.
        Exception: the file is not valid; PyYAML raises YAMLError, ValueError, KeyError and others.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TooLarge(f"it has more than {MAX_BYTES:,} bytes")
    text = content.decode("utf-8")
    _check_size(text)
    return yaml.load(text, _Loader)  # a SafeLoader  # nosec B506


class _Loader(_BaseLoader):
    """Reads 1e-2 as a number, too; YAML 1.1 knows only 1.0e-2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _check_size(text: str) -> None:
    """Refuse a text that is too large with each alias written out, without writing it out."""
    total = 0
    sizes: dict[str, int] = {}  # values that each complete anchor stands for
    open_anchors: list[tuple[str | None, int]] = []  # of each open container, with the total before it
    for event in yaml.parse(text, _BaseLoader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_anchors):
                raise TooLarge(f"*{event.anchor} stands inside of itself")
            total += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_SCALAR:
                raise TooLarge(f"it holds a value of more than {MAX_SCALAR:,} characters")
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append((event.anchor, total))
            total += 1
            if len(open_anchors) > MAX_DEPTH:
                raise TooLarge(f"it is nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_anchors.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > MAX_VALUES:
            raise TooLarge(f"with its aliases written out it has more than {MAX_VALUES:,} values")


def read_settings(config: YamlMapping | str | os.PathLike[str]) -> PlainDict:
    """Return the settings of a dict or a YAML file, by name.

    Raises:
        SettingsError: the file cannot be read, or holds keys that are not settings; all of them are named.
    """
    content, source = _load(config)
    translation = translate(content)
    own, problems = _own_settings(translation.remaining)
    problems += map(str, translation.problems)
    settings = _merged(translation, own, problems)
    if problems:
        raise SettingsError(_message(problems, source))
    if translation.ignored:
        ignored = "; ".join(map(str, translation.ignored))
        warnings.warn(f"{source}: not needed and ignored: {ignored}", UserWarning, stacklevel=levels_to_the_caller())
    return settings


def _message(problems: Sequence[str], source: str) -> str:
    """Return one problem as a sentence, or several as a list."""
    if len(problems) == 1:
        return f"{source}: {problems[0]}"
    return "\n  ".join((f"{source}: {len(problems)} keys cannot be used:", *problems))


def _merged(translation: Translation, own: PlainMapping, problems: list[str]) -> PlainDict:
    """Merge translated settings and own ones. Rules add up; other settings must not contradict each other."""
    settings = dict(translation.settings)
    for name, value in own.items():
        translated = settings.get(name)
        if isinstance(translated, Mapping) and isinstance(value, Mapping):
            settings[name] = merge_mappings(translated, value)
            continue
        if name in settings and translated != value:
            problems.append(f"{name!r} is {value!r} here, and other keys mean {translated!r}: leave one of them out")
        settings[name] = value
    return settings


def _own_settings(content: YamlMapping) -> tuple[PlainDict, list[str]]:
    """Return the settings of a mapping, nested or flat, and a problem for each unknown key."""
    if not any(key in NAMES for key in content) or any(key in SECTIONS for key in content):
        return _nested_settings(content)
    settings: PlainDict = {}
    problems: list[str] = []
    for key, value in content.items():
        if key in NAMES:
            settings[key] = value
        else:
            problems.append(f"unknown setting {str(key)!r}; {hint(str(key), NAMES)}")
    return settings, problems


def _load(config: YamlMapping | str | os.PathLike[str]) -> tuple[YamlMapping, str]:
    """Return the content of a dict or a file, and what errors call it."""
    if isinstance(config, Mapping):
        return config, "the configuration"
    if not isinstance(config, str | os.PathLike):
        raise SettingsError(f"a configuration is a YAML file, a dict or a quaver.Config, not {type(config).__name__}")
    path = Path(expanded(config))
    check_regular(path, "the configuration")
    try:
        content = load_yaml(path)
    except OSError as error:
        raise SettingsError(f"cannot read the configuration {str(path)!r}: {error.strerror}") from error
    except TooLarge as error:
        raise SettingsError(f"{str(path)!r} is not a configuration: {error}") from None
    except Exception as error:  # PyYAML lets ValueError, KeyError and others of its own code through
        raise SettingsError(f"{str(path)!r} is not valid YAML: {error}") from error
    if content is None:
        return {}, str(path)
    if not isinstance(content, Mapping):
        raise SettingsError(
            f"{str(path)!r} must hold a mapping (version, model, quantization, tuning), not {content!r:.60}"
        )
    return content, str(path)


def _nested_settings(content: YamlMapping) -> tuple[PlainDict, list[str]]:
    """Return the settings of a mapping in the nested layout, and its problems."""
    settings: PlainDict = {}
    problems: list[str] = []
    for path, value in _values(content, (), problems):
        name = YAML_LAYOUT[path]
        if name is not None and value is not None:
            settings[name] = value
    return settings, problems


def _values(content: YamlMapping, sections: tuple[str, ...], problems: list[str]) -> Iterator[tuple[str, PlainValue]]:
    """Yield the keys of the layout with their values; add a problem for any other key."""
    for key, value in content.items():
        path = ".".join((*sections, str(key)))
        inner = [known_path for known_path in YAML_LAYOUT if known_path.startswith(f"{path}.")]
        if path in YAML_LAYOUT:
            if not isinstance(value, Mapping) or path in OPEN:
                yield path, value
            else:
                problems.append(f"{path!r} takes a value, not a mapping with {', '.join(map(repr, value))}")
        elif not inner:
            problems.append(f"unknown key {path!r}; {_nearest_key(path, sections)}")
        elif isinstance(value, Mapping):
            yield from _values(value, (*sections, str(key)), problems)
        elif value is not None:
            keys = ", ".join(dict.fromkeys(inner_path.removeprefix(f"{path}.").split(".")[0] for inner_path in inner))
            problems.append(f"{path!r} must hold keys ({keys}), not {value!r:.60}")


def _nearest_key(path: str, sections: tuple[str, ...]) -> str:
    """Suggest the nearest key at the same level, or a key of the same name anywhere."""
    last = path.rsplit(".", 1)[-1]
    same_level = dict.fromkeys(
        ".".join(parts[: len(sections) + 1]) for parts in map(_parts, YAML_LAYOUT) if parts[: len(sections)] == sections
    )
    by_last = {_parts(key)[-1]: key for key in same_level}
    close = [by_last[name] for name in nearest(last, by_last, count=1, cutoff=0.7)]
    alike = [key for key in YAML_LAYOUT if nearest(last, [_parts(key)[-1]], cutoff=0.8) and key not in close]
    suggested = close + alike
    if suggested:
        return f"did you mean {' or '.join(map(repr, suggested))}?"
    return f"known are: {', '.join(map(repr, same_level))}"


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))
