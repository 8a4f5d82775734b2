"""Conformance checks for authors of strategies, adapters and executors, and simulated models to try them on."""

from quaver.testing.adapters import check_adapter
from quaver.testing.drive import Drivable, drive
from quaver.testing.executors import check_executor
from quaver.testing.simulated import SimulatedModel, SimulatedProbe
from quaver.testing.strategies import check_strategy

__all__ = ["Drivable", "SimulatedModel", "SimulatedProbe", "check_adapter", "check_executor", "check_strategy", "drive"]
