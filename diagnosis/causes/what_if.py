"""What repairs and other modes would do to the errors of ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# By repair or mode the error of each op that offers it, and under an empty name that without.
Errors = Mapping[str, Mapping[str, float]]


class Improvement(NamedTuple):
    """What a repair or a mode does to an op's own error: what it is without and with it, and all ops to treat so."""

    spelled: str
    before: float
    after: float
    ops: tuple[str, ...]


def best_relief(errors: Errors, readers: Mapping[str, str]) -> dict[str, Improvement]:
    """For each op the repair that cuts its error most.

    `readers` holds the tensor that an op reads: ops that read the same are repaired together.
    """
    plain = errors.get("", {})
    found: dict[str, Improvement] = {}
    for spelled, repaired in errors.items():
        for name, after in repaired.items() if spelled else ():
            if name in plain and (name not in found or after < found[name].after):
                ops = tuple(other for other in repaired if other == name or _same(readers, other, name))
                found[name] = Improvement(spelled, plain[name], after, ops)
    return found


def mode_reliefs(errors: Errors) -> dict[str, tuple[Improvement, ...]]:
    """For each op what every other mode that it offers would bring, in the order in which they were tried."""
    plain = errors.get("", {})
    tried = [(mode, found) for mode, found in errors.items() if mode]
    return {
        name: tuple(Improvement(mode, plain[name], found[name], (name,)) for mode, found in tried if name in found)
        for name in plain
    }


def _same(readers: Mapping[str, str], one: str, other: str) -> bool:
    return bool(readers.get(one)) and readers.get(one) == readers.get(other)
