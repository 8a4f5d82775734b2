"""Settings from a dict or a YAML file: in the nested layout, by their names, or in Neural Compressor's words.

Every mistake in it is named at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from quaver.api.bounded_yaml import TooLarge, load_yaml
from quaver.api.layout import NAMES, OPEN, SECTIONS, YAML_LAYOUT
from quaver.api.telling import levels_to_the_caller
from quaver.api.words import Words, translate
from quaver.api.words.found import merged
from quaver.errors import SettingsError
from quaver.nearest import hint, nearest
from quaver.paths import check_regular, expanded


def read_settings(given: Any) -> dict[str, Any]:
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


def _together(words: Words, own: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
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


def _own(content: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    """What quaver's own words say, and all that are none."""
    if not any(key in NAMES for key in content) or any(key in SECTIONS for key in content):
        return _from_layout(content)
    settings: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in content.items():
        if key in NAMES:
            settings[key] = value
        else:
            problems.append(f"unknown setting {str(key)!r}; {hint(str(key), NAMES)}")
    return settings, problems


def _load(given: Any) -> tuple[Mapping[str, Any], str]:
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


def _from_layout(content: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    settings: dict[str, Any] = {}
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
