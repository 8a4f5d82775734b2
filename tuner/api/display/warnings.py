"""What a user should know without having asked for it: said to the observers, or as a warning if there is none."""

from __future__ import annotations

import sys
import warnings

from quaver.engine.events import Confirmed, Event, MeasurementDied, Observer, SamplesOrdered, StartedFrom


def tell(event: Event, watch: Observer, heard: bool, before: str = "") -> None:
    """Tell the observers, and whoever runs this if nobody else is told."""
    watch(event)
    if not heard:
        warnings.warn(f"{before}{event}", UserWarning, stacklevel=levels_to_the_caller())


def aloud(event: Event) -> None:
    """An observer for runs without one: what touches the verdict is a warning then."""
    if isinstance(event, SamplesOrdered | StartedFrom | MeasurementDied) or (
        isinstance(event, Confirmed) and not event.met
    ):
        warnings.warn(str(event), UserWarning, stacklevel=levels_to_the_caller())


def levels_to_the_caller() -> int:
    """How far above the line that warns the user's own code is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "quaver":
        level, frame = level + 1, frame.f_back
    return level
