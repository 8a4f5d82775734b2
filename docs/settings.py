"""Write everything that derives from the settings in `quaver.Config`: python docs/settings.py

- docs/settings.md: every setting with its YAML key, its flag and its default.
- tuner/api/config/keywords.py: the settings as typed keywords, for editors and mypy.
- tuner/api/fit.py: the part of the docstring of `fit` that describes the settings.
- docs/quaver.schema.json: the JSON schema of YAML files, which `quaver schema` prints.
"""

import ast
import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from quaver import Config
from quaver.api.config.layout import YAML_LAYOUT
from quaver.api.config.schema import json_schema
from quaver.api.config.setting import GROUPS, Setting, settings_of
from quaver.command.main import make_parser

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("settings.md")
SCHEMA = Path(__file__).with_name("quaver.schema.json")
CONFIG = ROOT / "tuner" / "api" / "config" / "config.py"
KEYWORDS = CONFIG.with_name("keywords.py")
FIT = ROOT / "tuner" / "api" / "fit.py"
SETTINGS = settings_of(Config)
# Lines of the docstring of `fit` between which the settings stand.
FIRST_SETTING, AFTER_SETTINGS = "        relative: ", "\n    Returns:"
LINE_LENGTH = 120
HEAD = """\
# Settings and YAML

Written by `make docs` from `quaver.Config`. Each setting is a keyword of `quaver.fit` and `quaver.open_run`, a field of
`quaver.Config`, a key of a YAML file and a flag of `quaver tune`. A keyword or a flag overrides the file. An unknown
name is an error that suggests the nearest setting. [running.md](running.md) explains how the settings work together,
[rules.md](rules.md) how to write rules.
"""
FILE = """\
## A YAML file

All keys with their defaults. Leave out what you do not change; `null` means "not set". `version` and `model.name` are
for your own notes: quaver ignores them.
"""
FLAT = """\
A file or a dict can also use the names of the settings, without sections:

```yaml
strategy: auto
relative: 0.01
max_trials: 30
op_type_dict: {Add: fp32}
```

An editor with a YAML language server completes and checks a file that names the schema in its first line.
`quaver schema > quaver.schema.json` writes the schema; docs/quaver.schema.json is the same.

```yaml
# yaml-language-server: $schema=quaver.schema.json
tuning: {strategy: {name: auto}}
```

`fit(model, "conf.yaml", ...)` and `quaver tune conf.yaml ...` read both forms. Every run writes its settings to
`quaver.yaml` in its workspace, which both read, too.
"""


def page() -> str:
    """Return docs/settings.md."""
    return "\n".join([HEAD, *_tables(), FILE, f"```yaml\n{yaml.safe_dump(_defaults(), sort_keys=False)}```\n", FLAT])


def _tables() -> Iterator[str]:
    """Yield a table for each group of settings."""
    flags = _flags()
    for group, title in GROUPS.items():
        lines = [
            f"## {group.capitalize()}: {title}", "",
            "| setting | default | YAML | flag | description |", "|---|---|---|---|---|",
        ]  # fmt: skip
        for setting in SETTINGS.values():
            if setting.group == group:
                flag = ", ".join(f"`{name}`" for name in flags[setting.name])
                cells = (f"`{setting.name}`", _default(setting), f"`{setting.yaml}`", flag, setting.doc)
                lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
        yield "\n".join(lines) + "\n"


def _flags() -> dict[str, list[str]]:
    """Return the long flags of `quaver tune`, by setting."""
    flags: dict[str, list[str]] = {}
    for action in make_parser()[1]["tune"]._actions:
        flags.setdefault(action.dest, []).extend(flag for flag in action.option_strings if flag.startswith("--"))
    return flags


def _default(setting: Setting) -> str:
    if setting.name == "relative":
        return "`0.01`"
    return "" if setting.default in (None, {}) else f"`{setting.default!r}`"


def _defaults() -> dict[str, Any]:
    """Return the default settings in the layout of a file."""
    settings = Config().to_dict()
    examples = {"version": 1.0, "model.name": "my_model"}
    layout: dict[str, Any] = {}
    for key, name in YAML_LAYOUT.items():
        *sections, last = key.split(".")
        place = layout
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = examples[key] if name is None else settings[name]
    return layout


def keywords() -> str:
    """Return tuner/api/config/keywords.py."""
    source = CONFIG.read_text(encoding="utf-8")
    annotations = {name: Config.__annotations__[name] for name in SETTINGS}
    used = {
        node.id for text in annotations.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)
    }
    lines = [
        '"""Type the settings as keywords, so that editors complete them and mypy checks them.', "",
        "Written by `python docs/settings.py` from `quaver.Config`; do not edit.", '"""', "",
        "from __future__ import annotations", "", *_imports(source, used | {"TypedDict"}), "", "",
        "class Settings(TypedDict, total=False):",
        '    """The settings of `quaver.Config`, each of them optional."""', "",
        *(f"    {name}: {annotation}" for name, annotation in annotations.items()), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _imports(source: str, names: set[str]) -> Iterator[str]:
    """Yield the imports of some names as a module has them: a line each, the standard library first."""
    own: list[str] = []
    for node in ast.parse(source.replace("from typing import", "from typing import TypedDict,")).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            aliases = sorted(alias.name for alias in node.names if alias.name in names)
            if isinstance(node, ast.ImportFrom) and aliases:
                line = f"from {node.module} import {', '.join(aliases)}"
                if str(node.module).startswith("quaver"):
                    own.append(line)
                else:
                    yield line
            elif aliases:
                yield f"import {', '.join(aliases)}"
    yield from ["", *own] if own else []


def fit_source() -> str:
    """Return tuner/api/fit.py with the settings in the docstring of `fit`."""
    source = FIT.read_text(encoding="utf-8")
    before, _, rest = source.partition(FIRST_SETTING)
    return before + _arguments(SETTINGS) + AFTER_SETTINGS + rest.partition(AFTER_SETTINGS)[2]


def _arguments(settings: Mapping[str, Setting]) -> str:
    """Return the settings as entries of an Args section."""
    wrap = {"width": LINE_LENGTH, "initial_indent": " " * 8, "subsequent_indent": " " * 12, "break_on_hyphens": False}
    entries = (f"{setting.name}: {setting.doc}" for setting in settings.values())
    return "".join("\n".join(textwrap.wrap(entry, **wrap)) + "\n" for entry in entries)  # type: ignore[arg-type]


def files() -> dict[Path, str]:
    """Return the content of each file that this script writes."""
    schema = json.dumps(json_schema(), indent=2) + "\n"
    return {PAGE: page(), KEYWORDS: keywords(), FIT: fit_source(), SCHEMA: schema}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
