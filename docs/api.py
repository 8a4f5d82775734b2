"""Write docs/api.md, every public name with its signature and its docstring: python docs/api.py"""

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).with_name("api.md")
MODULES = (
    "quaver", "quaver.events", "quaver.strategies", "quaver.adapters", "quaver.history", "quaver.diagnosis",
    "quaver.metrics", "quaver.statistics", "quaver.insights", "quaver.insights.trackers", "quaver.testing",
)  # fmt: skip
WIDTH = 110
HEAD = """\
# Every public name

This page is the reference of every public name: its signature and its description. Names that are not listed here may
change at any time. [A run](running.md) explains how the settings of a run work together. `make docs` writes this page
from the docstrings.

<!-- no block of this page is run: signatures, written from the source -->
"""


def page() -> str:
    """Return the page as text."""
    parts = [HEAD]
    described: dict[int, str] = {}
    headings: set[str] = set()
    for module_name in MODULES:
        module = _module(module_name)
        parts.append(f"## {module_name}\n\n{_first(module)}\n")
        for name in _public(module):
            value = getattr(module, name)
            if id(value) in described:
                parts.append(f"### {module_name}.{name}\n\nSee [{name}](#{described[id(value)]}).\n")
                continue
            heading = f"{module_name}.{name}" if name.lower() in headings else name
            headings.add(name.lower())
            if inspect.isclass(value) or inspect.isroutine(value):
                described[id(value)] = heading.lower().replace(".", "")
            parts.append("\n\n".join([f"### {heading}", *_description(name, value)]) + "\n")
    return "\n".join(parts)


def _module(name: str) -> ModuleType:
    """Import a module by its public name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        above, _, last = name.rpartition(".")
        module: ModuleType = getattr(importlib.import_module(above), last)
        return module


def _public(module: ModuleType) -> list[str]:
    """Return the names that a module exports: `__all__`, or the classes that it defines."""
    classes = [
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    return sorted(
        getattr(module, "__all__", None) or [name for name in classes if not name.startswith("_")], key=str.lower
    )


def _description(name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield f"A module: {_first(value)} See [{value.__name__.split('.')[0]}.{name}](#quaver{name})."
    elif name == "__version__":
        yield "The version that is installed."
    elif not inspect.isclass(value) and not inspect.isroutine(value):
        yield f"```python\n{name} = {value!r}\n```"
    else:
        signature = _class_line(name, value) if inspect.isclass(value) else _signature(name, value)
        yield f"```python\n{signature}\n```"
        yield _first(value)
        for heading in ("Args", "Attributes"):
            yield from _section(value, heading)
        if inspect.isclass(value):
            yield from _members(value)


def _class_line(name: str, value: type) -> str:
    if issubclass(value, enum.Enum):
        return "\n".join(f"{name}.{member.name} = {member.value!r}" for member in value)
    if (
        issubclass(value, BaseException)
        or getattr(value, "_is_protocol", False)
        or not {"__init__", "__new__"} & vars(value).keys()
    ):
        bases = [
            base.__name__ for base in value.__bases__ if base.__name__ not in ("object", "ABC", "Protocol", "Generic")
        ]
        return f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    return _signature(name, value)


def _members(value: type) -> Iterator[str]:
    """Yield the public methods and properties that a class defines itself."""
    lines = []
    for name, member in vars(value).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        hidden = name.startswith("_") and name != "__call__"
        if hidden or not (inspect.isfunction(plain) or isinstance(plain, property | cached_property)):
            continue
        shown = _signature(name, plain, broken=False) if inspect.isfunction(plain) else name
        lines.append(f"- `{shown}`: {_first(getattr(value, name)) or 'as in the base class.'}")
    if lines:
        yield "Members:"
        yield "\n".join(lines)


def _signature(name: str, value: Any, broken: bool = True) -> str:
    signature = inspect.signature(value)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name not in ("self", "cls")]
    shown: list[str] = []
    for index, parameter in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            shown.append("*")
        if before is parameter.POSITIONAL_ONLY and parameter.kind is not parameter.POSITIONAL_ONLY:
            shown.append("/")
        shown.append(_parameter(parameter))
    back = "" if inspect.isclass(value) else _annotation(" -> ", signature.return_annotation)
    line = f"{name}({', '.join(shown)}){back}"
    if len(line) <= WIDTH or not broken:
        return line
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in shown) + f"){back}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = _annotation(": ", parameter.annotation)
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{annotation}"
    default = getattr(parameter.default, "__qualname__", None) or repr(parameter.default)
    if "<" in default or " at 0x" in default:
        default = "..."
    return f"{parameter.name}{annotation}{' = ' if annotation else '='}{default}"


def _annotation(sign: str, annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    return sign + (annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _first(value: Any) -> str:
    """Return the first paragraph of a docstring, on one line."""
    docstring = value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)
    return " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())


def _section(value: Any, heading: str) -> Iterator[str]:
    """Yield a section of a docstring with a name and a text on each line, as a list."""
    section = re.search(rf"^{heading}:\n((?:    .*\n?|\n)+)", inspect.cleandoc(value.__doc__ or ""), re.MULTILINE)
    if section:
        joined = re.sub(r"\n {5,}", " ", section[1].rstrip())
        yield "\n".join(f"- `{name}`: {text}" for name, text in re.findall(r"^ {4}(\w+): (.*)$", joined, re.MULTILINE))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
