"""Adapters, one for each framework: ONNX Runtime, and others through the entry point group `quaver.adapters`."""

if __name__ == "adapters":
    raise ImportError("this folder is the package quaver.adapters: write `import quaver.adapters`")

from quaver.adapters.base import Adapter
from quaver.adapters.calibration.calibrator import StreamingCalibrator
from quaver.adapters.calibration.channel_statistics import Statistic
from quaver.adapters.data import InputSpec
from quaver.adapters.inspection import ModelView, StandaloneView
from quaver.adapters.model import Model
from quaver.adapters.onnxrt import disable_telemetry
from quaver.adapters.options import AdapterOptions, TimingOptions
from quaver.adapters.registry import (
    adapter_for,
    import_model,
    imported_beside,
    load_model,
    load_unmodified,
    load_with,
    register_adapter,
    runtimes_of,
)
from quaver.adapters.repairs.base import Repair, RepairableOp, refuse_repairs, register_repair
from quaver.adapters.repairs.builtin import BiasCorrection, Equalisation, Smoothing
from quaver.adapters.repairs.rescaling import Rescaling, SharedInput

__all__ = [
    "Adapter",
    "AdapterOptions",
    "BiasCorrection",
    "Equalisation",
    "InputSpec",
    "Model",
    "ModelView",
    "Repair",
    "RepairableOp",
    "Rescaling",
    "SharedInput",
    "Smoothing",
    "StandaloneView",
    "Statistic",
    "StreamingCalibrator",
    "TimingOptions",
    "adapter_for",
    "import_model",
    "imported_beside",
    "load_model",
    "load_unmodified",
    "load_with",
    "refuse_repairs",
    "register_adapter",
    "register_repair",
    "runtimes_of",
]  # fmt: skip

disable_telemetry()
