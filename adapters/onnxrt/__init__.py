"""The adapter for ONNX Runtime."""

from __future__ import annotations

import os
import sys

# ONNX Runtime reads this variable when it is loaded. Without it, version 1.31 keeps a device id in the home folder and
# reports each session to its makers.
TELEMETRY_VARIABLE = "ORT_DISABLE_TELEMETRY"


def disable_telemetry() -> None:
    """Switch off ONNX Runtime's telemetry, also where it was loaded before, unless the user set the variable."""
    if os.environ.setdefault(TELEMETRY_VARIABLE, "1") != "1":
        return
    runtime = sys.modules.get("onnxruntime")
    if hasattr(runtime, "disable_telemetry_events"):
        runtime.disable_telemetry_events()  # type: ignore[union-attr]
