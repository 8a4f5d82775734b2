"""Settings from a dict or a YAML file: in the nested layout, by their names, or in Neural Compressor's words.

Every mistake in it is named at once.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from quaver.api.config.layout import NAMES, OPEN, SECTIONS, YAML_LAYOUT
from quaver.api.config.neural_compressor import translate
from quaver.api.config.translation import Translation, merged
from quaver.api.display.warnings import levels_to_the_caller
from quaver.errors import SettingsError
from quaver.files.paths import check_regular, expanded
from quaver.suggestions import hint, nearest
from quaver.types import PlainDict, PlainMapping

# More than a file written by hand can hold. Aliases count for all they stand for.
MAX_BYTES = 512 * 1024
MAX_VALUES = 100_000
MAX_DEPTH = 50
# A number of so many digits can still be shown.
MAX_SCALAR = 3000

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooLarge(ValueError):
    """The file is no configuration; why."""


def load_yaml(path: Path) -> Any:
    """What a YAML file holds. Raises OSError, `TooLarge`, and whatever PyYAML lets through for what is not valid."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TooLarge(f"it has more than {MAX_BYTES:,} bytes")
    text = content.decode("utf-8")
    _check(text)
    return yaml.load(text, _Loader)  # a SafeLoader  # nosec B506


class _Loader(_Base):  # type: ignore[misc]
    """Reads 1e-2 as a number, too; YAML 1.1 knows only 1.0e-2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _check(text: str) -> None:
    """Count values as they would be printed, each alias anew, while they are parsed."""
    total = 0
    sizes: dict[str, int] = {}  # anchor -> values it stands for, once it is complete
    above: list[tuple[str | None, int]] = []  # anchor of each open container, and the total before it
    for event in yaml.parse(text, _Base):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in above):
                raise TooLarge(f"*{event.anchor} stands inside of itself")
            total += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_SCALAR:
                raise TooLarge(f"it holds a value of more than {MAX_SCALAR:,} characters")
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            above.append((event.anchor, total))
            total += 1
            if len(above) > MAX_DEPTH:
                raise TooLarge(f"it is nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = above.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > MAX_VALUES:
            raise TooLarge(f"its aliases make more than {MAX_VALUES:,} values")


def read_settings(given: Any) -> PlainDict:
    """What a dict or a YAML file says, by setting."""
    content, source = _load(given)
    words = translate(content)
    own, problems = _own(words.rest)
    problems += map(str, words.problems)
    settings = _together(words, own, problems)
    if problems:
        raise SettingsError(_all(problems, source))
    if words.idle:
        listed = "; ".join(map(str, words.idle))
        warnings.warn(f"{source}: not needed, and left out: {listed}", UserWarning, stacklevel=levels_to_the_caller())
    return settings


def _all(problems: Sequence[str], source: str) -> str:
    """One problem in a sentence, or several in a list."""
    if len(problems) == 1:
        return f"{source}: {problems[0]}"
    return "\n  ".join((f"{source}: {len(problems)} things cannot be used:", *problems))


def _together(words: Translation, own: PlainMapping, problems: list[str]) -> PlainDict:
    """What both kinds of words say. Rules add up, all others must not contradict each other."""
    settings = dict(words.settings)
    for name, value in own.items():
        before = settings.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = merged(before, value)
        elif name in settings and before != value:
            problems.append(f"{name!r} is {value!r} here, and other keys mean {before!r}: leave one out")
        settings[name] = value
    return settings


def _own(content: Mapping[Any, Any]) -> tuple[PlainDict, list[str]]:
    """What quaver's own words say, and all that are none."""
    if not any(key in NAMES for key in content) or any(key in SECTIONS for key in content):
        return _from_layout(content)
    settings: PlainDict = {}
    problems: list[str] = []
    for key, value in content.items():
        if key in NAMES:
            settings[key] = value
        else:
            problems.append(f"unknown setting {str(key)!r}; {hint(str(key), NAMES)}")
    return settings, problems


def _load(given: Any) -> tuple[PlainMapping, str]:
    if isinstance(given, Mapping):
        return given, "the configuration"
    if not isinstance(given, str | os.PathLike):
        raise SettingsError(f"a configuration is a YAML file, a dict or a quaver.Config, not {type(given).__name__}")
    path = Path(expanded(given))
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


def _from_layout(content: Mapping[Any, Any]) -> tuple[PlainDict, list[str]]:
    settings: PlainDict = {}
    problems: list[str] = []
    for path, value in _leaves(content, (), problems):
        name = YAML_LAYOUT[path]
        if name is not None and value is not None:
            settings[name] = value
    return settings, problems


def _leaves(content: Mapping[Any, Any], above: tuple[str, ...], problems: list[str]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        path = ".".join((*above, str(key)))
        inner = [known for known in YAML_LAYOUT if known.startswith(f"{path}.")]
        if path in YAML_LAYOUT:
            if not isinstance(value, Mapping) or path in OPEN:
                yield path, value
            else:
                problems.append(f"{path!r} takes a value, not a mapping with {', '.join(map(repr, value))}")
        elif not inner:
            problems.append(f"unknown key {path!r}; {_nearest_key(path, above)}")
        elif isinstance(value, Mapping):
            yield from _leaves(value, (*above, str(key)), problems)
        elif value is not None:
            keys = ", ".join(dict.fromkeys(known.removeprefix(f"{path}.").split(".")[0] for known in inner))
            problems.append(f"{path!r} must hold keys ({keys}), not {value!r:.60}")


def _nearest_key(path: str, above: tuple[str, ...]) -> str:
    """The nearest known key at the same level, or anywhere if the last part is the name of one."""
    last = path.rsplit(".", 1)[-1]
    beside = dict.fromkeys(
        ".".join(parts[: len(above) + 1]) for parts in map(_parts, YAML_LAYOUT) if parts[: len(above)] == above
    )
    by_last = {_parts(known)[-1]: known for known in beside}
    close = [by_last[name] for name in nearest(last, by_last, count=1, cutoff=0.7)]
    alike = [known for known in YAML_LAYOUT if nearest(last, [_parts(known)[-1]], cutoff=0.8) and known not in close]
    found = close + alike
    return f"did you mean {' or '.join(map(repr, found))}?" if found else f"known are: {', '.join(map(repr, beside))}"


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))
