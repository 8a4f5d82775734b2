"""quaver: which ops of a float model can run in int8, and why the others cannot."""

if __name__ == "tuner":
    raise ImportError("this folder is the package quaver: write `import quaver`")

import logging
from importlib.metadata import PackageNotFoundError, version

from quaver.adapters import Model
from quaver.api import Config, TuneResult, diagnose, fit, profile, recover
from quaver.budget import Budget, StopReason
from quaver.criterion import Criterion
from quaver.diagnosis import Cause, Diagnosis, Profile
from quaver.engine.events import Observer
from quaver.errors import (
    BuildError,
    CalibrationError,
    EvaluationError,
    HistoryError,
    ModelError,
    QuaverError,
    SettingsError,
    StrategyError,
)
from quaver.history import read_snapshot
from quaver.ops import FP32, INT8, Op, OpConfig, Precision, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy, register_strategy
from quaver.trial import Trial, TrialState

try:
    __version__ = version("quaver")
except PackageNotFoundError:  # run from a folder that was never installed
    __version__ = "0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "FP32", "INT8", "Budget", "BuildError", "CalibrationError", "Cause", "Config", "Criterion", "Diagnosis",
    "EvaluationError",
    "HistoryError", "Model", "ModelError", "Observer", "Op", "OpConfig", "Precision", "Probe", "Profile", "QuantConfig",
    "QuaverError", "SettingsError",
    "StopReason", "Strategy", "StrategyError", "Trial", "TrialState", "TuneResult", "TuningSpace", "__version__",
    "diagnose", "fit", "profile",
    "read_snapshot", "recover", "register_strategy",
]  # fmt: skip
