"""Who knows a framework: ONNX Runtime, and others through the entry point group `quaver.adapters`."""

if __name__ == "adapters":
    raise ImportError("this folder is the package quaver.adapters: write `import quaver.adapters`")

from quaver.adapters.base import Adapter, AdapterOptions, TimingOptions
from quaver.adapters.channels import Statistic
from quaver.adapters.model import Model
from quaver.adapters.registry import adapter_for, open_model
from quaver.adapters.repairs import Repair, RepairableOp, register_repair
from quaver.adapters.view import View

__all__ = [
    "Adapter", "AdapterOptions", "Model", "Repair", "RepairableOp", "Statistic", "TimingOptions", "View", "adapter_for",
    "open_model", "register_repair",
]  # fmt: skip
