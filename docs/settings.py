"""Write docs/settings.md, every setting with its YAML key, its flag and its default: python docs/settings.py"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from quaver import Config
from quaver.api.config.layout import YAML_LAYOUT
from quaver.command.main import make_parser

PAGE = Path(__file__).with_name("settings.md")
HEAD = """\
# Settings and YAML

Written by `make docs` from `quaver.Config`. A setting is a keyword of `quaver.fit` and `quaver.open_run`, a field of
`quaver.Config`, a key of a YAML file and a flag of `quaver tune`. A keyword or a flag wins over the file. An unknown
name is an error that names the nearest known one. [running.md](running.md) tells how the settings work together,
[rules.md](rules.md) how rules are written.
"""
FILE = """\
## A file

All keys with their defaults; leave out what you do not change. `null` is "not given". `version` and `model.name` are
for you: they are read, and nothing depends on them.
"""
FLAT = """\
A file, or a dict, may as well name the settings as they are called in Python, without sections:

```yaml
strategy: auto
relative: 0.01
max_trials: 30
op_type_dict: {Add: fp32}
```

`fit(model, "conf.yaml", ...)` and `quaver tune conf.yaml ...` read both forms. Every run leaves its settings in the
workspace as `quaver.yaml`, which both take, too.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, *_tables(), FILE, f"```yaml\n{yaml.safe_dump(_defaults(), sort_keys=False)}```\n", FLAT]
    return "\n".join(parts)


def _tables() -> Iterator[str]:
    """A table for each section of a file."""
    told, flags = _told(), _flags()
    keys = {name: path for path, name in YAML_LAYOUT.items() if name is not None}
    for section in dict.fromkeys(path.split(".")[0] for path in keys.values()):
        lines = [f"## {section}", "", "| setting | default | YAML | flag | what it is |", "|---|---|---|---|---|"]
        for field in dataclasses.fields(Config):
            if keys[field.name].split(".")[0] == section:
                flag = ", ".join(f"`{one}`" for one in flags.get(field.name, ()))
                cells = (f"`{field.name}`", _default(field), f"`{keys[field.name]}`", flag, told[field.name])
                lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
        yield "\n".join(lines) + "\n"


def _told() -> dict[str, str]:
    """What the docstring says of each field."""
    section = inspect.cleandoc(Config.__doc__ or "").partition("Attributes:\n")[2]
    joined = re.sub(r"\n {5,}", " ", section)
    return dict(re.findall(r"^ {4}(\w+): (.*)$", joined, re.MULTILINE))


def _flags() -> dict[str, list[str]]:
    """The flags of `quaver tune`, by setting."""
    flags: dict[str, list[str]] = {}
    for action in make_parser()[1]["tune"]._actions:
        flags.setdefault(action.dest, []).extend(one for one in action.option_strings if one.startswith("--"))
    return flags


def _default(field: Any) -> str:
    value = {} if field.default is dataclasses.MISSING else field.default
    if field.name == "relative":
        return "`0.01`"
    return "" if value is None or value == {} else f"`{value!r}`"


def _defaults() -> dict[str, Any]:
    """The settings in the layout of a file, as by default."""
    settings = Config().to_dict()
    made: dict[str, Any] = {}
    for path, name in YAML_LAYOUT.items():
        *above, last = path.split(".")
        place = made
        for part in above:
            place = place.setdefault(part, {})
        place[last] = settings[name] if name is not None else {"version": 1.0}.get(path, "my_model")
    return made


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
