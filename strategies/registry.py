"""Strategies by name: the built-in ones, registered ones, and those of the entry point group `quaver.strategies`.

A plug-in is only imported when its name is used, or when all are listed, so a broken one does not affect others.
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
    """A strategy in the list of all strategies.

    Attributes:
        name: what users write in `strategy=`.
        source: "quaver", the distribution that provides it, or the module that registered it.
        strategy: its class; None if it cannot be loaded.
        error: the reason if it cannot be loaded.
    """

    name: str
    source: str
    strategy: type[Strategy] | None
    error: str = ""


def register_strategy(cls: S) -> S:
    """Make a strategy available under its `name`. Use it as a class decorator."""
    if not (isinstance(cls, type) and issubclass(cls, Strategy)):
        raise StrategyError(f"register_strategy takes a subclass of quaver.Strategy, not {cls!r}")
    if not cls.name:
        raise StrategyError(f"strategy class {cls.__name__} needs a `name` to be registered under")
    _registered[cls.name] = cls
    return cls


def find_strategy(name: str) -> type[Strategy]:
    """Return the strategy class of this name. Of all plug-ins at most this one is imported."""
    if name in _registered:
        return _registered[name]
    points = _plug_ins()
    if name not in points:
        raise SettingsError(f"unknown strategy {name!r}; {hint(name, sorted({*_registered, *points}))}")
    return _load(points[name])


def list_strategies() -> list[Listed]:
    """Return all strategies, by name. A plug-in that cannot be loaded causes a warning and is listed with the error."""
    points, listed = _plug_ins(), []
    for name in sorted({*_registered, *points}):
        try:
            strategy = find_strategy(name)
        except StrategyError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            listed.append(Listed(name, _distribution(points[name]), None, _error_text(error.__cause__ or error)))
        else:
            listed.append(Listed(name, _source(strategy, points.get(name)), strategy))
    return listed


def strategies() -> dict[str, type[Strategy]]:
    """Return all strategies that can be used, by name; see `list_strategies`."""
    return {item.name: item.strategy for item in list_strategies() if item.strategy is not None}


def make_strategy(spec: str | type[Strategy] | Strategy, options: PlainMapping | None = None) -> Strategy:
    """Return a strategy from its name, class or instance, with `options` as keywords of its constructor.

    An instance is copied, so that a run never changes the user's object.
    """
    options = dict(options or {})
    if isinstance(spec, Strategy):
        if options:
            raise SettingsError(
                f"strategy_options {sorted(options)} cannot be set on a strategy instance: pass them to its constructor"
            )
        return copy.copy(spec)
    if isinstance(spec, str):
        spec = find_strategy(spec)
    if not (isinstance(spec, type) and issubclass(spec, Strategy)):
        raise SettingsError(f"strategy must be a name, a Strategy class or an instance, not {spec!r}")
    name = spec.name or spec.__name__
    if inspect.isabstract(spec):
        raise StrategyError(f"strategy {name!r} has no `propose` method; write it as a generator of configurations")
    signature = inspect.signature(spec)
    takes_any_option = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    for option in options:
        if option not in signature.parameters and not takes_any_option:
            raise SettingsError(
                f"strategy {name!r} has no option {option!r}; {hint(str(option), signature.parameters)}"
            )
    try:
        signature.bind(**options)
    except TypeError as error:
        raise SettingsError(f"strategy {name!r}: {error}; pass it in strategy_options") from None
    return spec(**options)


def _plug_ins() -> dict[str, EntryPoint]:
    """Return plug-ins by name, the first on the path of several with one name. Nothing is imported."""
    return {point.name: point for point in reversed(tuple(entry_points(group=GROUP)))}


def _load(point: EntryPoint) -> type[Strategy]:
    try:
        strategy = point.load()
        if not (isinstance(strategy, type) and issubclass(strategy, Strategy)):
            raise TypeError(f"{strategy!r:.80} is not a subclass of quaver.Strategy")
    except (Exception, SystemExit) as error:
        raise StrategyError(
            f"strategy {point.name!r}, entry point {point.value!r} of {_distribution(point)}, cannot be loaded: "
            f"{_error_text(error)}; fix or uninstall that package, or choose another strategy"
        ) from error
    return strategy


def _source(strategy: type[Strategy], point: EntryPoint | None) -> str:
    """Return the source of a strategy. A plug-in that registers itself still comes from its distribution."""
    home = strategy.__module__
    if home.startswith("quaver.strategies."):
        return "quaver"
    return _distribution(point) if point is not None and home.split(".")[0] == point.module.split(".")[0] else home


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
