"""quaver finds the ops of a float model that can run in int8, and explains why the others cannot."""

if __name__ == "tuner":
    raise ImportError("this folder is the package quaver: write `import quaver`")

import logging
from importlib.metadata import PackageNotFoundError, version

from quaver.adapters import Adapter, Model
from quaver.api import (
    CheckResult,
    Config,
    TuneResult,
    TuningRun,
    Verdict,
    check,
    diagnose,
    diagnose_quantized,
    fit,
    open_run,
    profile,
    read_provenance,
    recover,
    save_board_kit,
    save_cost_model,
)
from quaver.budget import Budget, StopReason
from quaver.criterion import Criterion
from quaver.diagnosis import Cause, Diagnosis, Profile, QuantizedStatistics
from quaver.engine import events
from quaver.engine.event_base import Stage
from quaver.engine.observers import Observer
from quaver.engine.timing.objective import Objective
from quaver.errors import (
    BuildError,
    CalibrationError,
    EvaluationError,
    ExecutorError,
    HistoryError,
    MissingPackageError,
    ModelError,
    QuaverError,
    SettingsError,
    StrategyError,
)
from quaver.history import Snapshot, read_snapshot
from quaver.limit import Limit
from quaver.ops import FP32, INT4, INT8, Op, OpConfig, Precision, QuantConfig
from quaver.probe import Probe
from quaver.provenance import Provenance
from quaver.scores import Samples
from quaver.slices import Slices
from quaver.space import TuningSpace
from quaver.strategies import Strategy, register_strategy
from quaver.trial import Trial, TrialState
from quaver.unquantizable import Unquantizable

try:
    __version__ = version("quaver")
except PackageNotFoundError:  # run from a folder that was never installed
    __version__ = "0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "FP32", "INT4", "INT8", "Adapter", "Budget", "BuildError", "CalibrationError", "Cause", "CheckResult", "Config",
    "Criterion", "Diagnosis", "EvaluationError", "ExecutorError", "HistoryError", "Limit", "MissingPackageError",
    "Model", "ModelError", "Objective", "Observer", "Op", "OpConfig", "Precision", "Probe", "Profile", "Provenance",
    "QuantConfig", "QuantizedStatistics", "QuaverError", "Samples", "SettingsError", "Slices", "Snapshot", "Stage",
    "StopReason", "Strategy", "StrategyError", "Trial", "TrialState", "TuneResult", "TuningRun", "TuningSpace",
    "Unquantizable", "Verdict", "__version__", "check", "diagnose", "diagnose_quantized", "events", "fit", "open_run",
    "profile", "read_provenance", "read_snapshot", "recover", "register_strategy", "save_board_kit", "save_cost_model",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names: those above, and the packages with public names of their own."""
    return [*__all__, "adapters", "diagnosis", "history", "metrics", "strategies"]
