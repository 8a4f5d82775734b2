"""Observers that record a run in MLflow, Weights & Biases or TensorBoard.

Each tracker imports its package only when it is used. A new tracker is one module of this package with a subclass of
`Tracker`, and its extra in setup.cfg. The name of the extra is the name of the tracker.
"""

from __future__ import annotations

import importlib
import pkgutil

from quaver.errors import SettingsError
from quaver.insights.trackers.mlflow import MLflow
from quaver.insights.trackers.tensorboard import TensorBoard
from quaver.insights.trackers.tracker import Tracker
from quaver.insights.trackers.wandb import WandB
from quaver.suggestions import hint


def trackers() -> dict[str, type[Tracker]]:
    """Return all trackers by name: the subclasses of `Tracker` in the modules of this package."""
    modules = [importlib.import_module(f"{__name__}.{entry.name}") for entry in pkgutil.iter_modules(__path__)]
    classes = [member for module in modules for member in vars(module).values() if isinstance(member, type)]
    return {tracker.extra: tracker for tracker in classes if issubclass(tracker, Tracker) and tracker is not Tracker}


def make_tracker(name: str) -> Tracker:
    """Return the tracker of that name with its default settings."""
    known_trackers = trackers()
    if name not in known_trackers:
        raise SettingsError(f"there is no tracker {name!r}; {hint(name, known_trackers)}")
    return known_trackers[name]()


__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB", "make_tracker", "trackers"]
