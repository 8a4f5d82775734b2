"""Observers that tell a run to MLflow, Weights & Biases or TensorBoard, each imported only where it is used."""

from __future__ import annotations

from quaver.errors import SettingsError
from quaver.insights.trackers.mlflow import MLflow
from quaver.insights.trackers.tensorboard import TensorBoard
from quaver.insights.trackers.tracker import Tracker
from quaver.insights.trackers.wandb import WandB
from quaver.suggestions import hint

TRACKERS: dict[str, type[Tracker]] = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": WandB}


def make_tracker(name: str) -> Tracker:
    """The tracker of that name, with what it does by default."""
    if name not in TRACKERS:
        raise SettingsError(f"there is no tracker {name!r}; {hint(name, TRACKERS)}")
    return TRACKERS[name]()


__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "WandB", "make_tracker"]
