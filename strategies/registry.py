"""Strategies by name: the built-in ones, registered ones, and those of the entry point group `quaver.strategies`.

A plug-in is imported when its name is asked for, or when all are listed, and not before; so one that is broken stops
nobody but those who name it.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from quaver.errors import SettingsError, StrategyError
from quaver.strategies.base import Strategy
from quaver.suggestions import hint
from quaver.types import PlainMapping

GROUP = "quaver.strategies"
S = TypeVar("S", bound=type[Strategy])

_registered: dict[str, type[Strategy]] = {}


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry in the list of strategies.

    Attributes:
        name: what users write in `strategy=`.
        source: "quaver", the distribution that brings it, or the module that registered it.
        strategy: its class; None if it cannot be loaded.
        error: why not.
    """

    name: str
    source: str
    strategy: type[Strategy] | None
    error: str = ""


def register_strategy(cls: S) -> S:
    """Make a strategy available under its `name`. Used as a class decorator."""
    if not (isinstance(cls, type) and issubclass(cls, Strategy)):
        raise StrategyError(f"register_strategy takes a subclass of quaver.Strategy, not {cls!r}")
    if not cls.name:
        raise StrategyError(f"strategy class {cls.__name__} needs a `name` to be registered under")
    _registered[cls.name] = cls
    return cls


def find_strategy(name: str) -> type[Strategy]:
    """Return the class of that name. At most one plug-in is imported, and none for a known strategy."""
    if name in _registered:
        return _registered[name]
    points = _plug_ins()
    if name not in points:
        raise SettingsError(f"unknown strategy {name!r}; {hint(name, sorted({*_registered, *points}))}")
    return _load(points[name])


def list_strategies() -> list[Listed]:
    """Return all strategies by name. A plug-in that cannot be loaded is listed as broken, with a warning."""
    points, listed = _plug_ins(), []
    for name in sorted({*_registered, *points}):
        try:
            strategy = find_strategy(name)
        except StrategyError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            listed.append(Listed(name, _distribution(points[name]), None, _told(error.__cause__ or error)))
        else:
            listed.append(Listed(name, _source(strategy, points.get(name)), strategy))
    return listed


def strategies() -> dict[str, type[Strategy]]:
    """Return all usable strategies by name; see `list_strategies`."""
    return {item.name: item.strategy for item in list_strategies() if item.strategy is not None}


def make_strategy(wanted: str | type[Strategy] | Strategy, options: PlainMapping | None = None) -> Strategy:
    """Make a strategy from its name, class or instance, with `options` as keywords of its constructor.

    An instance is copied, so that a run never changes what belongs to the user.
    """
    options = dict(options or {})
    if isinstance(wanted, Strategy):
        if options:
            raise SettingsError(f"strategy_options {sorted(options)} cannot be set on a strategy that exists already")
        return copy.copy(wanted)
    if isinstance(wanted, str):
        wanted = find_strategy(wanted)
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


def _plug_ins() -> dict[str, EntryPoint]:
    """Return the plug-ins by name, the first on the path if several packages have the same. Nothing is imported."""
    return {point.name: point for point in reversed(tuple(entry_points(group=GROUP)))}


def _load(point: EntryPoint) -> type[Strategy]:
    try:
        found = point.load()
        if not (isinstance(found, type) and issubclass(found, Strategy)):
            raise TypeError(f"{found!r:.80} is not a subclass of quaver.Strategy")
    except (Exception, SystemExit) as error:
        raise StrategyError(
            f"strategy {point.name!r}, entry point {point.value!r} of {_distribution(point)}, cannot be loaded: "
            f"{_told(error)}; mend or uninstall that package, or choose another strategy"
        ) from error
    return found


def _source(strategy: type[Strategy], point: EntryPoint | None) -> str:
    """Return the origin of a strategy. A plug-in that registered itself on import still counts as a plug-in."""
    home = strategy.__module__
    if home.startswith("quaver.strategies."):
        return "quaver"
    return _distribution(point) if point is not None and home.split(".")[0] == point.module.split(".")[0] else home


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
