"""Strategies by name: the built-in ones, registered ones, and those of the entry point group `quaver.strategies`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from quaver.errors import SettingsError, StrategyError
from quaver.nearest import hint
from quaver.strategies.base import Strategy

GROUP = "quaver.strategies"
S = TypeVar("S", bound=type[Strategy])

_registered: dict[str, type[Strategy]] = {}


def register_strategy(cls: S) -> S:
    """Make a strategy available under its `name`. Used as a class decorator."""
    if not (isinstance(cls, type) and issubclass(cls, Strategy)):
        raise StrategyError(f"register_strategy takes a subclass of quaver.Strategy, not {cls!r}")
    if not cls.name:
        raise StrategyError(f"strategy class {cls.__name__} needs a `name` to be registered under")
    _registered[cls.name] = cls
    return cls


def strategies() -> dict[str, type[Strategy]]:
    """All known strategies by name."""
    found = dict(sorted(_registered.items()))
    for point in entry_points(group=GROUP):
        if point.name not in found:
            found[point.name] = point.load()
    return found


def make_strategy(wanted: str | type[Strategy] | Strategy, options: Mapping[str, Any] | None = None) -> Strategy:
    """A strategy from its name, class or instance, with `options` as keywords of its constructor."""
    options = dict(options or {})
    if isinstance(wanted, Strategy):
        if options:
            raise SettingsError(f"strategy_options {sorted(options)} cannot be set on a strategy that exists already")
        return wanted
    if isinstance(wanted, str):
        known = strategies()
        if wanted not in known:
            raise SettingsError(f"unknown strategy {wanted!r}; {hint(wanted, known)}")
        wanted = known[wanted]
    if not (isinstance(wanted, type) and issubclass(wanted, Strategy)):
        raise SettingsError(f"strategy must be a name, a Strategy class or an instance, not {wanted!r}")
    name = wanted.name or wanted.__name__
    if inspect.isabstract(wanted):
        raise StrategyError(f"strategy {name!r} has no `propose` method; write it as a generator of configurations")
    signature = inspect.signature(wanted)
    open_to_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    for option in options:
        if option not in signature.parameters and not open_to_all:
            raise SettingsError(
                f"strategy {name!r} has no option {option!r}; {hint(str(option), signature.parameters)}"
            )
    try:
        signature.bind(**options)
    except TypeError as error:
        raise SettingsError(f"strategy {name!r}: {error}; give it in strategy_options") from None
    return wanted(**options)
