"""Which adapter takes a model. Adapters are found through entry points, so that a new one needs no change here."""

from __future__ import annotations

import functools
import os
from importlib.metadata import entry_points
from typing import Any

from quaver.adapters.base import Adapter, AdapterOptions
from quaver.errors import ModelError

GROUP = "quaver.adapters"


@functools.cache
def adapters() -> dict[str, type[Adapter]]:
    """All installed adapters by name."""
    return {point.name: point.load() for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def open_model(model: Any, options: AdapterOptions) -> Adapter:
    """Hand a model to the first adapter that accepts it."""
    return adapter_for(model).open(model, options)


def adapter_for(model: Any) -> type[Adapter]:
    """The first adapter that accepts a model."""
    for adapter in adapters().values():
        if adapter.accepts(model):
            return adapter
    if isinstance(model, str | os.PathLike) and not os.path.exists(model):
        raise ModelError(f"no model at {os.fspath(model)!r}")
    what = repr(os.fspath(model)) if isinstance(model, str | os.PathLike) else f"a {type(model).__name__}"
    known = "; ".join(f"{name} takes {adapter.takes}" for name, adapter in adapters().items())
    raise ModelError(f"no adapter knows what to do with {what}: {known or 'none is installed'}")
