"""YAML from a file that nobody has vouched for: how large it would become is counted before anything is made of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

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
