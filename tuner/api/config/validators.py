"""Check the values of settings, each by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from quaver.api.config.serialize import names_only, objective_name
from quaver.engine.executors.base import check_limit
from quaver.engine.executors.select import backends
from quaver.errors import SettingsError
from quaver.files.paths import unwritable
from quaver.objective_traits import traits_of
from quaver.scores import too_many_scores
from quaver.slices import Slices
from quaver.suggestions import hint
from quaver.target_budget import parse_size
from quaver.types import PlainValue

# A target budget (objective="accuracy") replaces the settings of the criterion.
CRITERION = ("relative", "absolute", "slices", "slice_limit", "confidence")
TARGET_BUDGET = ("max_latency", "max_size", "max_bits")
# An allowed loss of this much was probably meant in percent; judgement.
SUSPICIOUS_LOSS = 0.5

Validator: TypeAlias = Callable[[str, PlainValue], PlainValue]
"""Takes the name and the value of a setting; returns the value as the run uses it, or raises SettingsError."""


def must_be(wanted: str, is_valid: Callable[[PlainValue], bool]) -> Validator:
    """Return a validator that refuses the values that a function is False of."""

    def validate(name: str, value: PlainValue) -> PlainValue:
        if not is_valid(value):
            raise SettingsError(f"`{name}` must be {wanted}, not {value!r}")
        return value

    return validate


def one_of(*names: str) -> Validator:
    """Return a validator of one of these names."""
    *others, last = names
    return must_be(f"{', '.join(others)} or {last}", lambda value: value in names)


def is_whole_number(value: PlainValue, minimum: int = 0) -> bool:
    """Return True for an int, but not a bool, of at least a minimum."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def whole_number(minimum: int, note: str = "") -> Validator:
    """Return a validator of whole numbers."""
    return must_be(f"a whole number of at least {minimum}{note}", lambda value: is_whole_number(value, minimum))


def _is_real(value: PlainValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_path(value: PlainValue) -> bool:
    return isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str) and os.fspath(value) != ""


boolean = must_be("True or False", lambda value: isinstance(value, bool))
name = must_be("a name", lambda value: isinstance(value, str))
real_number = must_be("a number", _is_real)
probability = must_be(
    "a probability above 0 and below 0.5, such as 0.05", lambda value: _is_real(value) and 0 < value < 0.5
)
jobs = must_be(
    "a whole number of at least 1, or -1 for one per core",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value != 0,
)


def unchecked(_: str, value: PlainValue) -> PlainValue:
    """Return the value; the `Criterion`, the `Budget` or the strategy checks it."""
    return value


def path(wanted: str) -> Validator:
    """Return a validator of paths."""
    return must_be(wanted, _is_path)


def writable_path(name: str, value: PlainValue) -> PlainValue:
    """Refuse a folder whose name some system cannot write."""
    path("the path of a folder")(name, value)
    reason = unwritable(os.fspath(value))
    if reason is not None:
        raise SettingsError(f"`{name}` must be a path that every system can write; this one {reason}: {value!r}")
    return value


def mapping(name: str, value: PlainValue) -> PlainValue:
    """Refuse what is not a mapping, and names that a recorded run has in place of objects."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"`{name}` must be a mapping, not {value!r}")
    for lost in names_only(value):
        raise SettingsError(f"of {lost!r} in `{name}` only the name was recorded: pass `{name}` again")
    return value


def sample_slices(_: str, value: PlainValue) -> Slices | None:
    """Return slices in their checked form."""
    slices = Slices.of(value)
    if reason := too_many_scores(slices.count):
        raise SettingsError(f"`slices` names too many samples: {reason}")
    return slices


def sample_sizes(name: str, value: PlainValue) -> int | tuple[int, ...]:
    """Return one number of samples, or several to try in order."""
    sizes = tuple(dict.fromkeys(value)) if isinstance(value, list | tuple) and value else (value,)
    if not all(is_whole_number(size, 1) for size in sizes):
        raise SettingsError(f"`{name}` must be a whole number above 0, or a list of them, not {value!r}")
    return sizes if len(sizes) > 1 else sizes[0]


def backend(_: str, value: PlainValue) -> PlainValue:
    """Refuse a backend that does not exist."""
    if value not in backends():
        raise SettingsError(f"unknown backend {value!r}; {hint(str(value), list(backends()))}")
    return value


def file_size(_: str, value: PlainValue) -> float | None:
    """Return a file size as a fraction of fp32's, or in bytes above that."""
    return parse_size(value)


def time_limit(_: str, value: PlainValue) -> float | str | None:
    """Return a limit in seconds, or a multiple such as "10x"."""
    return check_limit(value)


def check_loss(relative: float | Mapping[str, float] | None, allow_any_loss: bool) -> None:
    """Refuse a relative loss that was probably meant in percent."""
    largest = max(relative.values()) if isinstance(relative, Mapping) else relative
    if largest is not None and largest >= SUSPICIOUS_LOSS and not allow_any_loss:
        raise SettingsError(
            f"`relative={relative}` would allow a loss of {largest:.0%} of the fp32 score; 1 % is 0.01. "
            "Pass `allow_any_loss=True` to allow it"
        )


def check_target_budget(objective: object, explicit: Collection[str]) -> None:
    """Refuse a target budget without objective="accuracy", or together with settings of a criterion."""
    limits = [name for name in TARGET_BUDGET if name in explicit]
    if limits and not traits_of(objective).needs_target_budget:
        raise SettingsError(
            f'`{limits[0]}` is a target budget for objective="accuracy", but the objective is '
            f"{objective_name(objective)!r}: pass one or the other"
        )
    criterion = [name for name in CRITERION if name in explicit]
    if traits_of(objective).needs_target_budget and criterion:
        raise SettingsError(
            f'with objective="accuracy" a target budget replaces the criterion: leave out `{criterion[0]}`, and pass '
            "`max_latency`, `max_size` or `max_bits`"
        )
