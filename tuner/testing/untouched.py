"""What a strategy must leave as it was, in a form that can be compared."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from quaver.space import TuningSpace
from quaver.strategies import Strategy


def state_of(strategy: Strategy) -> dict[str, object]:
    """What an instance holds: as bytes, or the object itself where that cannot be."""
    state: dict[str, object] = {}
    for name, value in vars(strategy).items():
        try:
            state[name] = pickle.dumps(value)
        except Exception:  # pickle raises all sorts
            state[name] = value
    return state


def changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """The names of what is another object, or in another state."""

    def same(one: object, other: object) -> bool:
        return one == other if isinstance(one, bytes) and isinstance(other, bytes) else one is other

    return [
        repr(name)
        for name in dict.fromkeys((*before, *after))
        if name not in before or name not in after or not same(before[name], after[name])
    ]


def picture_of(space: TuningSpace) -> object:
    """All that a space holds."""
    return {key: dict(value) if isinstance(value, dict) else value for key, value in vars(space).items()}


def global_rng() -> object:
    """The states of the generators of `random` and numpy that everybody shares."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest


@contextmanager
def global_rng_restored() -> Iterator[None]:
    """In the end, the shared generators are where they were."""
    before = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
