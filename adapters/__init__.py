"""Who knows a framework: ONNX Runtime, and others through the entry point group `quaver.adapters`."""

if __name__ == "adapters":
    raise ImportError("this folder is the package quaver.adapters: write `import quaver.adapters`")

from quaver.adapters.base import Adapter
from quaver.adapters.calibration.calibrator import StreamingCalibrator
from quaver.adapters.calibration.channel_statistics import Statistic
from quaver.adapters.data import InputSpec
from quaver.adapters.inspection import QuantizedView, View
from quaver.adapters.model import Model
from quaver.adapters.options import AdapterOptions, TimingOptions
from quaver.adapters.registry import adapter_for, load_model, load_unmodified, load_with, register_adapter
from quaver.adapters.repairs.base import Repair, RepairableOp, refuse_repairs, register_repair
from quaver.adapters.repairs.bias_correction import BiasCorrection
from quaver.adapters.repairs.rescaling import Rescaling, SharedInput
from quaver.adapters.repairs.smoothing import Equalisation, Smoothing
from quaver.adapters.telemetry import turn_off

__all__ = [
    "Adapter", "AdapterOptions", "BiasCorrection", "Equalisation", "InputSpec", "Model", "QuantizedView", "Repair",
    "RepairableOp", "Rescaling", "SharedInput", "Smoothing", "Statistic", "StreamingCalibrator", "TimingOptions",
    "View", "adapter_for", "load_model", "load_unmodified", "load_with", "refuse_repairs", "register_adapter",
    "register_repair",
]  # fmt: skip

turn_off()
